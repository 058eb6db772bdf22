//! A reduction along an axis that the tile does not have.
use atlas_macros::atlas_kernel;

atlas_kernel! {
    pub kernel scale<T: Float>(x: &Tensor<T, [N, D]>, y: &mut Tensor<T, [N, D]>)
    tune { BN: [64, 128] }
    {
        for n in grid(tiles(N, BN)) {
            let rows = load(x[n, ..]);
            store(y[n, ..], rows / sum(rows, axis = 2));
        }
    }
}

fn main() {}
