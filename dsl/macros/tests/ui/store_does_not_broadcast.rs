//! Stores of what would have to be repeated.
use atlas_macros::atlas_kernel;

atlas_kernel! {
    pub kernel scale(x: &Tensor<f32, [N, D]>, eps: f32, y: &mut Tensor<f32, [N, D]>, z: &mut Tensor<f32, [N]>)
    tune { BN: [64, 128] }
    {
        for n in grid(tiles(N, BN)) {
            let rows = load(x[n, ..]);
            store(y[n, ..], max(rows, axis = 0));
            store(y[n, ..], eps);
            store(y[n, ..], broadcast(rows, [D, D]));
            store(y[n, ..], broadcast(1.0, [BN, D]));
            store(z[n], sum(rows));
            // These may: a literal fills, and axes of one element come and go.
            store(y[n, ..], 0.0);
            store(z[n], sum(rows, axis = 1));
        }
    }
}

fn main() {}
