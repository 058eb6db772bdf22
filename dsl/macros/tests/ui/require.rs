//! Conditions of `require` that are none.
use atlas_macros::atlas_kernel;

atlas_kernel! {
    pub kernel copy(x: &Tensor<f32, [N, D]>, w: i32, y: &mut Tensor<f32, [N, D]>)
    tune { BN: [64] }
    require { N % M == 0, BN <= N, w > 0, N, N > 1 && D > 1, N * 0.5 > 1, abs(N) > 1, load(x[N]) > 1 }
    {
        for n in grid(tiles(N, BN)) {
            store(y[n, ..], load(x[n, ..]) * w.cast::<f32>());
        }
    }
}

fn main() {}
