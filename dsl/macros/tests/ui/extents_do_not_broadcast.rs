//! Two tiles whose extents do not broadcast.
use atlas_macros::atlas_kernel;

atlas_kernel! {
    pub kernel matmul<T: Float>(a: &Tensor<T, [M, K]>, w: &Tensor<T, [K, N]>, c: &mut Tensor<T, [M, N]>)
    tune { BM: [64, 128], BN: [64, 128] }
    {
        for (m, n) in grid(tiles(M, BM), tiles(N, BN)) {
            let rows = load(a[m, ..]);
            let cols = load(w[.., n]);
            store(c[m, n], rows + cols);
        }
    }
}

atlas_kernel! {
    pub kernel scaled(s: &Tensor<f32, [N]>, w: &Tensor<f32, [N, D]>, y: &mut Tensor<f32, [N, D]>)
    tune { BN: [64], BD: [32] }
    {
        for (n, d) in grid(tiles(N, BN), tiles(D, BD)) {
            store(y[n, d], load(s[n]) * load(w[n, d]));
        }
    }
}

fn main() {}
