//! A kernel without a grid loop.
use atlas_macros::atlas_kernel;

atlas_kernel! {
    pub kernel scale<T: Float>(x: &Tensor<T, [N, D]>, y: &mut Tensor<T, [N, D]>)
    tune { BN: [64, 128] }
    {
    }

    pub kernel scale_in_a_loop<T: Float>(x: &Tensor<T, [N, D]>, y: &mut Tensor<T, [N, D]>)
    {
        let half = 0.5;
        for n in tiles(N, 64) {
            store(y[n, ..], load(x[n, ..]) * half);
        }
    }
}

fn main() {}
