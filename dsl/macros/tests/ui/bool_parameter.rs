//! A parameter of bool.
use atlas_macros::atlas_kernel;

atlas_kernel! {
    pub kernel copy(x: &Tensor<f32, [N]>, keep: bool, y: &mut Tensor<f32, [N]>)
    tune { BN: [64] }
    {
        for n in grid(tiles(N, BN)) {
            store(y[n], select(keep, load(x[n]), 0.0));
        }
    }
}

fn main() {}
