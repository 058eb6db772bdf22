//! A dim where a number is wanted, and a tile that is indexed.
use atlas_macros::atlas_kernel;

atlas_kernel! {
    pub kernel scale<T: Float>(x: &Tensor<T, [N, D]>, y: &mut Tensor<T, [N, D]>)
    tune { BN: [64, 128] }
    {
        for n in grid(tiles(N, BN)) {
            let rows = load(x[n, ..]);
            let first = rows[0];
            store(y[n, ..], first / N);
        }
    }
}

fn main() {}
