//! A precision that does not exist, and one on a tile that is no dot.
use atlas_macros::atlas_kernel;

atlas_kernel! {
    pub kernel matmul<T: Float>(a: &Tensor<T, [M, K]>, w: &Tensor<T, [K, N]>, c: &mut Tensor<T, [M, N]>)
    tune { BM: [64, 128], BN: [64, 128] }
    {
        for (m, n) in grid(tiles(M, BM), tiles(N, BN)) {
            let rows = load(a[m, ..]);
            let cols = load(w[.., n]);
            let product = dot(rows, cols).precision(tf23);
            store(c[m, n], (product + rows.precision(tf32)).cast::<T>());
        }
    }
}

fn main() {}
