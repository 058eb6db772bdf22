//! Kernels that compute and store nothing, with an output and without one.
use atlas_macros::atlas_kernel;

atlas_kernel! {
    pub kernel scale<T: Float>(x: &Tensor<T, [N, D]>, y: &mut Tensor<T, [N, D]>)
    tune { BN: [64, 128] }
    {
        for n in grid(tiles(N, BN)) {
            let rows = load(x[n, ..]) * 2.0;
        }
    }

    pub kernel scale_all<T: Float>(x: &Tensor<T, [N, D]>)
    tune { BN: [64, 128] }
    {
        for n in grid(tiles(N, BN)) {
            let rows = load(x[n, ..]) * 2.0;
        }
    }
}

fn main() {}
