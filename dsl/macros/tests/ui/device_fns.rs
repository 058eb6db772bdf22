//! Mistakes with device fns: in what they are given, in what they hold, and in how they are called.
use atlas_macros::atlas_kernel;

mod walks {
    use atlas_macros::atlas_kernel;

    const ROWS: u32 = 16;
    const HALF: f32 = 0.5;

    atlas_kernel! {
        pub(crate) device fn copied(x, y, n, D, BD) {
            for d in tiles(D, BD) {
                store(y[n, d], load(x[n, d]));
            }
        }
        pub(crate) device fn halves(x, y, n) { store(y[n, 0], HALF * load(x[n, 0])); }
        pub(crate) device fn rows(y, n) { for i in 0..2 { store(y[n, i], sum(zeros::<f32>([ROWS]))); } }
        pub(crate) device fn mixed(x, y, n) { store(y[n, 0], load(x[n, 0]) * load(x[n, ..]).cast::<f16>()); }
    }
}

atlas_kernel! {
    tile fn calls(x, y) { own(x, y); x }
    device fn own(x, y, n) { store(y[n, 0], load(x[n, 0])); }
    device fn typed(x, y, n) { store(y[n, ..], load(x[n, ..]).cast::<T>()); }
    device fn sees(x, y, n) { store(y[n, ..], load(x[n, ..]) + load(z[n, ..]) + by); for d in tiles(D, BD) {} }
    device fn unused(x, y, n, D, BD) { let w = 1.0; store(y[n, 0], load(x[n, 0])); }
    device fn again(x, y, n) { again(x, y, n); }
    device fn first(x, n, n) { load(x[n, 0]) }
    device fn two(x, n) { (load(x[n, 0]), load(x[n, 1])) }
    device fn assigns(x, n) { n += 1; load(x[n, 0]) }
    #[cfg(any())]
    device fn conditional(x, n) { load(x[n, 0]) }
    device fn typed_result(x, n) -> f32 { load(x[n, 0]) }

    kernel rows<T: Float>(x: &Tensor<f32, [N, D]>, z: &Tensor<f32, [N, D]>, y: &mut Tensor<f32, [N, D]>, by: f32)
    tune { BD: [64] }
    {
        for n in grid(N) {
            walks::copied(x, y, n, D);
            walks::copied(x, y, n, x, BD);
            walks::copied(x, y, n, BD, D);
            walks::copied(z, x, n, D, BD);
            walks::copied(x, y, n + 1, D, BD);
            walks::halves(x, y, n);
            walks::rows(y, n);
            walks::mixed(x, y, n);
            own(x, y, n, 3);
            typed(x, y, n);
            sees(x, y, n);
            unused(x, y, n, D, BD);
            again(x, y, n);
            let (a, b, c) = two(x, n);
            let d = two(x, n);
            let e = own(x, y, n);
            two(x, n);
            store(y[n, 0], two(x, n) + grad(two)(x, n) + assigns(x, n) + by);
            let f = assigns(x, n);
            store(y[n, 1], a + b + c + d + e + f + calls(load(x[n, 0]), 1.0) + sum(load(z[n, ..])));
        }
    }
}

fn main() {}
