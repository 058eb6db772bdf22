//! Precision bf16x3 on operands that are not f32.
use atlas_macros::atlas_kernel;

atlas_kernel! {
    pub kernel matmul(a: &Tensor<f16, [M, K]>, w: &Tensor<f16, [K, N]>, c: &mut Tensor<f16, [M, N]>)
    tune { BM: [64, 128], BN: [64, 128] }
    {
        for (m, n) in grid(tiles(M, BM), tiles(N, BN)) {
            let product = dot(load(a[m, ..]), load(w[.., n])).precision(bf16x3);
            store(c[m, n], product.cast::<f16>());
        }
    }
}

fn main() {}
