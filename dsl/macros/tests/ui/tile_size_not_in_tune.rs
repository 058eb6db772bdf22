//! A tile size that `tune` does not list.
use atlas_macros::atlas_kernel;

atlas_kernel! {
    pub kernel scale<T: Float>(x: &Tensor<T, [N, D]>, y: &mut Tensor<T, [N, D]>)
    tune { BN: [64, 128] }
    {
        for n in grid(tiles(N, BN)) {
            for d in tiles(D, BD) {
                store(y[n, d], load(x[n, d]));
            }
        }
    }
}

fn main() {}
