//! Element types that do not exist.
use atlas_macros::atlas_kernel;

atlas_kernel! {
    pub kernel scale<T: Float>(x: &Tensor<fp32, [N]>, y: &mut Tensor<T, [N]>)
    tune { BN: [64] }
    {
        for n in grid(tiles(N, BN)) {
            store(y[n], load(x[n]).cast::<U>());
        }
    }
}

fn main() {}
