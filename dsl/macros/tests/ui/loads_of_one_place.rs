//! Two loads that a repetition of a macro writes, at one place of the source, are two loads.
use atlas_macros::atlas_kernel;

macro_rules! both {
    ($name:ident: $($s:expr),*) => {
        atlas_kernel! {
            pub kernel $name(x: &Tensor<f32, [N, D]>, t: i32, y: &mut Tensor<f32, [N, D]>) {
                for n in grid(N) {
                    store(y[n, span(t, 8)], 0.0 $(+ load(x[n, span($s, 8)]))*);
                }
            }
        }
    };
}
both!(alike: t, t);
both!(unlike: t, t - 1);

fn main() {}
