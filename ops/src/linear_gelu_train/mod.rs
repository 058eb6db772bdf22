//! A linear layer and its GELU, with what the gradient needs: `z = x wᵀ + b` and `y = gelu(z)`.
//!
//! GELU is exact, by the error function: Hendrycks and Gimpel, arXiv 1606.08415. FLOPs: `2 M N K`. Sums in f32, which reach
//! the epilogue unrounded: `y` is the GELU of the sum, not of the rounded `z`.

#[cfg(feature = "verify")]
pub(crate) mod cases;
#[cfg(feature = "verify")]
mod reference;

#[cfg(feature = "verify")]
pub use reference::reference;

use atlas_macros::atlas_kernel;

atlas_kernel! {
    /// z = x · wᵀ + b, and y = gelu(z)
    pub kernel linear_gelu_train<T: Float>(
        x: &Tensor<T, [M, K]>,
        w: &Tensor<T, [N, K]>,
        b: &Tensor<T, [N]>,
        z: &mut Tensor<T, [M, N]>,
        y: &mut Tensor<T, [M, N]>,
    )
    tune { BM: [128, 64, 256], BN: [128, 64, 256, 192, 32], BK: [64, 32, 128], stages: [3, 4, 5, 8], warps: [4, 8] }
    {
        for (m, n) in grid(tiles(M, BM), tiles(N, BN)) {
            let mut acc = zeros::<f32>([BM, BN]);
            for k in pipeline(tiles(K, BK)) {
                acc += dot(load(x[m, k]), load(w[n, k]).t());
            }
            let sums = acc + load(b[n]).cast::<f32>();
            store(z[m, n], sums.cast::<T>());
            store(y[m, n], gelu(sums).cast::<T>());
        }
    }
}

crate::records::shipped! { "nvidia-h100-80gb-hbm3": "linear_gelu_train" }
crate::records::shipped! { "nvidia-h200": "linear_gelu_train" }
