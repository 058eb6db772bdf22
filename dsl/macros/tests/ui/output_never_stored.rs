//! An output that nothing is stored to.
use atlas_macros::atlas_kernel;

atlas_kernel! {
    pub kernel scale(x: &Tensor<f32, [N]>, y: &mut Tensor<f32, [N]>, z: &mut Tensor<f32, [N]>)
    tune { BN: [64] }
    {
        for n in grid(tiles(N, BN)) {
            store(y[n], load(x[n]) * 2.0);
        }
    }
}

fn main() {}
