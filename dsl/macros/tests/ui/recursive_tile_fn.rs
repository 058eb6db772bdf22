//! Tile fns that call themselves.
use atlas_macros::atlas_kernel;

atlas_kernel! {
    tile fn power(z) { z * power(z) }
    tile fn even(z) { odd(z) }
    tile fn odd(z) { even(z) }

    pub kernel scale<T: Float>(x: &Tensor<T, [N, D]>, y: &mut Tensor<T, [N, D]>)
    tune { BN: [64, 128] }
    {
        for n in grid(tiles(N, BN)) {
            store(y[n, ..], power(even(load(x[n, ..]))));
        }
    }
}

fn main() {}
