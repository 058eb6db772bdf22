//! Products of a batch of matrices, the right one of each transposed: `C[s] = A[s] B[s]ᵀ`.
//!
//! FLOPs: `2 S M N K`. Sums in f32. One right matrix for the whole batch is a view of stride 0 along the batch
//! ([`Tensor::expand`](atlas_runtime::Tensor::expand)), which is copied as other tensors are.

#[cfg(feature = "verify")]
pub(crate) mod cases;
#[cfg(feature = "verify")]
mod reference;

#[cfg(feature = "verify")]
pub use reference::reference;

use atlas_macros::atlas_kernel;

atlas_kernel! {
    /// c[s] = a[s] · b[s]ᵀ, for each of S pairs of matrices.
    ///
    /// `a` and `b` may have any strides. A matrix that all of the batch share is an expanded view.
    pub kernel batched_matmul<T: Float>(
        a: &Tensor<T, [S, M, K]>,
        b: &Tensor<T, [S, N, K]>,
        c: &mut Tensor<T, [S, M, N]>,
    )
    tune { BM: [128, 64, 256], BN: [128, 64, 256, 192, 32], BK: [64, 32, 128], stages: [3, 4, 5, 8], warps: [4, 8] }
    {
        for (s, m, n) in grid(S, tiles(M, BM), tiles(N, BN)) {
            let mut acc = zeros::<f32>([BM, BN]);
            for k in pipeline(tiles(K, BK)) {
                acc += dot(load(a[s, m, k]), load(b[s, n, k]).t());
            }
            store(c[s, m, n], acc.cast::<T>());
        }
    }
}

crate::records::shipped! { "nvidia-h100-80gb-hbm3": "batched_matmul" }
crate::records::shipped! { "nvidia-h200": "batched_matmul" }
