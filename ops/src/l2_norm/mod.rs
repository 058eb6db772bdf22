//! Rows of unit length: `y = x / sqrt(sum(x^2) + eps)`, as flash-linear-attention normalises queries and keys, with an `eps` of 1e-6.
//!
//! Computed in f32, whatever the element type. Domain: rows whose norm is at most 1.8e19, as for [`rms_norm`](crate::rms_norm).
//!
//! Bytes: `2 s N D`; bound by memory.

#[cfg(feature = "verify")]
pub(crate) mod cases;
#[cfg(feature = "verify")]
mod reference;

#[cfg(feature = "verify")]
pub use reference::reference;

use atlas_macros::atlas_kernel;

atlas_kernel! {
    /// y = x * rsqrt(sum(x^2) + eps), row by row.
    pub kernel l2_norm<T: Float>(x: &Tensor<T, [N, D]>, y: &mut Tensor<T, [N, D]>, eps: f32)
    tune { BN: [1, 4, 16], warps: [4, 1, 8] }
    {
        for n in grid(tiles(N, BN)) {
            let xs = load(x[n, ..]).cast::<f32>();
            store(y[n, ..], (xs * rsqrt(sum(xs * xs, axis = 1) + eps)).cast::<T>());
        }
    }
}
