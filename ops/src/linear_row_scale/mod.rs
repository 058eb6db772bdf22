//! A matrix product of which each row has a factor: `y = diag(s) x wᵀ`.
//!
//! With `s` the reciprocal root mean squares of the rows of `x`, and the weights of the norm in those of the layer, this is a
//! linear layer of normed rows without a normed copy of `x`: the factor of a row goes through the product. FLOPs: `2 M N K`.
//! Sums in f32, and one rounding at the end.

#[cfg(feature = "verify")]
pub(crate) mod cases;
#[cfg(feature = "verify")]
mod reference;

#[cfg(feature = "verify")]
pub use reference::reference;

use atlas_macros::atlas_kernel;

atlas_kernel! {
    /// y[m, n] = s[m] (x · wᵀ)[m, n]
    pub kernel linear_row_scale<T: Float>(
        x: &Tensor<T, [M, K]>,
        w: &Tensor<T, [N, K]>,
        s: &Tensor<f32, [M]>,
        y: &mut Tensor<T, [M, N]>,
    )
    tune { BM: [128, 64, 256], BN: [128, 64, 256, 192, 32], BK: [64, 32, 128], stages: [3, 4, 5, 8], warps: [4, 8] }
    {
        for (m, n) in grid(tiles(M, BM), tiles(N, BN)) {
            let mut acc = zeros::<f32>([BM, BN]);
            for k in pipeline(tiles(K, BK)) {
                acc += dot(load(x[m, k]), load(w[n, k]).t());
            }
            store(y[m, n], (acc * load(s[m]).t()).cast::<T>());
        }
    }
}

crate::records::shipped! { "nvidia-h100-80gb-hbm3": "linear_row_scale" }
crate::records::shipped! { "nvidia-h200": "linear_row_scale" }
