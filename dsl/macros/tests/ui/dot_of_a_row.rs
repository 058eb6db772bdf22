//! A dot of a tile of rank 1.
use atlas_macros::atlas_kernel;

atlas_kernel! {
    pub kernel matmul<T: Float>(a: &Tensor<T, [M, K]>, w: &Tensor<T, [K, N]>, c: &mut Tensor<T, [M, N]>)
    tune { BM: [64, 128], BN: [64, 128] }
    {
        for (m, n) in grid(tiles(M, BM), tiles(N, BN)) {
            let row = load(a[0, ..]);
            let cols = load(w[.., n]);
            store(c[m, n], dot(row, cols).cast::<T>());
        }
    }
}

fn main() {}
