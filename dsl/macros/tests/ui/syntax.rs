//! A body and a signature that cannot be read.
use atlas_macros::atlas_kernel;

atlas_kernel! {
    pub kernel scale<T: Float>(x: &Tensor<T, [N, D]>, y: &mut Tensor<T, [N, D]>)
    tune { BN: [64, 128] }
    {
        for n in grid(tiles(N, BN)) {
            let rows = load(x[n, ..] x)
            store(y[n, ..], rows);
        }
    }

    pub kernel copy(x: Tensor<f32, [N]>) {}

    kernel ok(y: &mut Tensor<f32, [N]>) {
        for n in grid(tiles(N, 64)) {
            store(y[n], 0.0);
        }
    }
}

fn main() {}
