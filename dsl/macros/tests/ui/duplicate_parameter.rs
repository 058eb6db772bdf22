//! Two parameters of one name.
use atlas_macros::atlas_kernel;

atlas_kernel! {
    pub kernel add(x: &Tensor<f32, [N]>, x: &Tensor<f32, [N]>, y: &mut Tensor<f32, [N]>)
    tune { BN: [64] }
    {
        for n in grid(tiles(N, BN)) {
            store(y[n], load(x[n]) + load(x[n]));
        }
    }
}

fn main() {}
