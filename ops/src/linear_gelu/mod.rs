//! A linear layer and its GELU: `y = gelu(x wᵀ + b)`, the product's epilogue in the product's kernel.
//!
//! GELU is exact, by the error function: Hendrycks and Gimpel, arXiv 1606.08415. FLOPs: `2 M N K`. Sums in f32, which reach
//! the epilogue unrounded.

#[cfg(feature = "verify")]
pub(crate) mod cases;
#[cfg(feature = "verify")]
mod reference;

#[cfg(feature = "verify")]
pub use reference::reference;

use atlas_macros::atlas_kernel;

atlas_kernel! {
    /// y = gelu(x · wᵀ + b)
    pub kernel linear_gelu<T: Float>(
        x: &Tensor<T, [M, K]>,
        w: &Tensor<T, [N, K]>,
        b: &Tensor<T, [N]>,
        y: &mut Tensor<T, [M, N]>,
    )
    tune {
        BM: [128, 64, 256, 16], BN: [128, 64, 256, 192, 32], BK: [64, 32, 128], stages: [3, 4, 5, 8], warps: [4, 8],
        split_k: [1, 2, 4],
    }
    {
        for (m, n) in grid(tiles(M, BM), tiles(N, BN)) {
            let mut acc = zeros::<f32>([BM, BN]);
            for k in pipeline(tiles(K, BK)) {
                acc += dot(load(x[m, k]), load(w[n, k]).t());
            }
            store(y[m, n], gelu(acc + load(b[n]).cast::<f32>()).cast::<T>());
        }
    }
}

crate::records::shipped! { "nvidia-h100-80gb-hbm3": "linear_gelu" }
crate::records::shipped! { "nvidia-h200": "linear_gelu" }
