//! Functions and methods that other languages have, and this one has by another name.
use atlas_macros::atlas_kernel;

atlas_kernel! {
    pub kernel scale<T: Float>(x: &Tensor<T, [N, D]>, y: &mut Tensor<T, [N, D]>)
    tune { BN: [64, 128] }
    {
        for n in grid(tiles(N, BN)) {
            let a = relu(load(x[n, ..]));
            store(y[n, ..], a.transpose().t());
        }
    }
}

fn main() {}
