//! Statements outside the grid loop.
use atlas_macros::atlas_kernel;

atlas_kernel! {
    pub kernel scale<T: Float>(x: &Tensor<T, [N, D]>, y: &mut Tensor<T, [N, D]>)
    tune { BN: [64, 128] }
    {
        let half = 0.5;
        for n in grid(tiles(N, BN)) {
            store(y[n, ..], load(x[n, ..]));
        }
        store(y[0, 0], 0.0);
    }
}

fn main() {}
