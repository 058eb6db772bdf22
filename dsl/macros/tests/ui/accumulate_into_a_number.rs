//! A dot accumulated into a number.
use atlas_macros::atlas_kernel;

atlas_kernel! {
    pub kernel matmul<T: Float>(a: &Tensor<T, [M, K]>, w: &Tensor<T, [K, N]>, c: &mut Tensor<T, [M, N]>)
    tune { BM: [64, 128], BN: [64, 128], BK: [32, 64] }
    {
        for (m, n) in grid(tiles(M, BM), tiles(N, BN)) {
            let mut total = 0.0;
            for k in pipeline(tiles(K, BK)) {
                total += dot(load(a[m, k]), load(w[k, n]));
            }
            store(c[m, n], total.cast::<T>());
        }
    }
}

fn main() {}
