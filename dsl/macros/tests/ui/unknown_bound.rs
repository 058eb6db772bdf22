//! A bound that does not exist.
use atlas_macros::atlas_kernel;

atlas_kernel! {
    pub kernel copy<T: Floot, U>(x: &Tensor<T, [N]>, y: &mut Tensor<U, [N]>)
    tune { BN: [64] }
    {
        for n in grid(tiles(N, BN)) {
            store(y[n], load(x[n]).cast::<U>());
        }
    }
}

fn main() {}
