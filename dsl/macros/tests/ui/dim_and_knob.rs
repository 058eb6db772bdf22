//! A dim and a knob of one name.
use atlas_macros::atlas_kernel;

atlas_kernel! {
    pub kernel copy(x: &Tensor<f32, [N]>, y: &mut Tensor<f32, [N]>)
    tune { N: [64] }
    {
        for n in grid(tiles(N, N)) {
            store(y[n], load(x[n]));
        }
    }
}

fn main() {}
