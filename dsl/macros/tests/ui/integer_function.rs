//! A float function of an integer.
use atlas_macros::atlas_kernel;

atlas_kernel! {
    pub kernel scale<T: Float>(x: &Tensor<T, [N, D]>, y: &mut Tensor<T, [N, D]>)
    tune { BN: [64, 128] }
    {
        for n in grid(tiles(N, BN)) {
            let counts = iota([BN, D], 1);
            store(y[n, ..], exp(counts).cast::<T>() + load(x[n, ..]));
        }
    }
}

fn main() {}
