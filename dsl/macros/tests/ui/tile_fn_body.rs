//! Statements that a tile fn cannot hold.
use atlas_macros::atlas_kernel;

atlas_kernel! {
    tile fn nothing(z) { let w = z; }
    tile fn looping(z) {
        for _ in 0..4 {}
        z
    }
    tile fn unused(z, w) { z + 1.0 }

    pub kernel scale<T: Float>(x: &Tensor<T, [N, D]>, y: &mut Tensor<T, [N, D]>)
    tune { BN: [64, 128] }
    {
        for n in grid(tiles(N, BN)) {
            store(y[n, ..], load(x[n, ..]));
        }
    }
}

fn main() {}
