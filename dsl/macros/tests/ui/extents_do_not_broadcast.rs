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

fn main() {}
