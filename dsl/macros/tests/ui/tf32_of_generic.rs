//! Precision tf32 on operands of a type parameter.
use atlas_macros::atlas_kernel;

atlas_kernel! {
    pub kernel matmul<T: Float>(a: &Tensor<T, [M, K]>, w: &Tensor<T, [K, N]>, c: &mut Tensor<T, [M, N]>)
    tune { BM: [64, 128], BN: [64, 128] }
    {
        for (m, n) in grid(tiles(M, BM), tiles(N, BN)) {
            let product = dot(load(a[m, ..]), load(w[.., n])).precision(tf32);
            store(c[m, n], product.cast::<T>());
        }
    }
}

fn main() {}
