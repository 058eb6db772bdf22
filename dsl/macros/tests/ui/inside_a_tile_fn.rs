//! A mistake inside a tile fn, for one of its calls.
use atlas_macros::atlas_kernel;

atlas_kernel! {
    tile fn normalize(z) { z / sum(z, axis = 1) }

    pub kernel rows(x: &Tensor<f32, [N]>, y: &mut Tensor<f32, [N]>)
    tune { BN: [64] }
    {
        for n in grid(tiles(N, BN)) {
            store(y[n], normalize(load(x[n])));
        }
    }
}

fn main() {}
