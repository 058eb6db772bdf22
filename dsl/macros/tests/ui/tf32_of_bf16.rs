//! Precision tf32 on operands that are not f32.
use atlas_macros::atlas_kernel;

atlas_kernel! {
    pub kernel matmul(a: &Tensor<bf16, [M, K]>, w: &Tensor<bf16, [K, N]>, c: &mut Tensor<bf16, [M, N]>)
    tune { BM: [64, 128], BN: [64, 128] }
    {
        for (m, n) in grid(tiles(M, BM), tiles(N, BN)) {
            let product = dot(load(a[m, ..]), load(w[.., n])).precision(tf32);
            store(c[m, n], product.cast::<bf16>());
        }
    }
}

fn main() {}
