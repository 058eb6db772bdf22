//! Matrix product with the right operand transposed, as the weights of linear layers are: `C = A Bᵀ`.
//!
//! FLOPs: `2 M N K`. Sums in f32.

#[cfg(feature = "verify")]
pub(crate) mod cases;
#[cfg(feature = "verify")]
pub(crate) mod precision_cases;
mod precisions;
#[cfg(feature = "verify")]
mod reference;

#[cfg(feature = "verify")]
pub use reference::reference;

pub use precisions::{matmul_bf16x3, matmul_tf32, matmul_tf32x3};

use atlas_macros::atlas_kernel;

atlas_kernel! {
    /// c = a · bᵀ
    pub kernel matmul<T: Float>(a: &Tensor<T, [M, K]>, b: &Tensor<T, [N, K]>, c: &mut Tensor<T, [M, N]>)
    tune {
        BM: [128, 64, 256, 16], BN: [128, 64, 256, 192, 32], BK: [64, 32, 128], stages: [3, 4, 5, 8], warps: [4, 8],
        split_k: [1, 2, 4, 8],
    }
    {
        for (m, n) in grid(tiles(M, BM), tiles(N, BN)) {
            let mut acc = zeros::<f32>([BM, BN]);
            for k in pipeline(tiles(K, BK)) {
                acc += dot(load(a[m, k]), load(b[n, k]).t());
            }
            store(c[m, n], acc.cast::<T>());
        }
    }
}

crate::records::shipped! { "nvidia-h100-80gb-hbm3": "matmul" }
crate::records::shipped! { "nvidia-h200": "matmul" }
