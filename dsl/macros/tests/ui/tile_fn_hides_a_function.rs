//! Tile fns named as built-in functions.
use atlas_macros::atlas_kernel;

atlas_kernel! {
    tile fn exp(z) { z + 1.0 }
    tile fn gelu(z) { z * sigmoid(1.702 * z) }

    pub kernel scale<T: Float>(x: &Tensor<T, [N, D]>, y: &mut Tensor<T, [N, D]>)
    tune { BN: [64, 128] }
    {
        for n in grid(tiles(N, BN)) {
            store(y[n, ..], gelu(exp(load(x[n, ..]))));
        }
    }
}

fn main() {}
