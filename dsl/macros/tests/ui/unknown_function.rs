//! A function that does not exist.
use atlas_macros::atlas_kernel;

atlas_kernel! {
    pub kernel scale<T: Float>(x: &Tensor<T, [N, D]>, y: &mut Tensor<T, [N, D]>)
    tune { BN: [64, 128] }
    {
        for n in grid(tiles(N, BN)) {
            store(y[n, ..], sqrtt(load(x[n, ..])));
        }
    }
}

fn main() {}
