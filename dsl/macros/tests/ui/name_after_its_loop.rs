//! A name used after the loop that binds it.
use atlas_macros::atlas_kernel;

atlas_kernel! {
    pub kernel scale<T: Float>(x: &Tensor<T, [N, D]>, y: &mut Tensor<T, [N, D]>)
    tune { BN: [64, 128] }
    {
        for n in grid(tiles(N, BN)) {
            for h in 0..4 {
                let part = load(x[h, ..]);
            }
            store(y[n, ..], part);
        }
    }
}

fn main() {}
