//! An assignment to a name that is not `mut`.
use atlas_macros::atlas_kernel;

atlas_kernel! {
    pub kernel scale<T: Float>(x: &Tensor<T, [N, D]>, y: &mut Tensor<T, [N, D]>)
    tune { BN: [64, 128] }
    {
        for n in grid(tiles(N, BN)) {
            let total = zeros::<f32>([BN, D]);
            for _ in 0..4 {
                total += load(x[n, ..]).cast::<f32>();
            }
            store(y[n, ..], total.cast::<T>());
        }
    }
}

fn main() {}
