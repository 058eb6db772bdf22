//! A name without a value, and one used in its own value.
use atlas_macros::atlas_kernel;

atlas_kernel! {
    pub kernel scale<T: Float>(x: &Tensor<T, [N, D]>, y: &mut Tensor<T, [N, D]>)
    tune { BN: [64, 128] }
    {
        for n in grid(tiles(N, BN)) {
            let rows;
            let next = next + 1.0;
            store(y[n, ..], rows + next);
        }
    }
}

fn main() {}
