//! Softmax of rows: `y = exp(x - max x) / sum exp(x - max x)`.
//!
//! The maximum is taken off first, so that no exponential overflows. Computed in f32, whatever the element
//! type. Bytes: `2 s N D`; bound by memory.

#[cfg(feature = "verify")]
pub(crate) mod cases;
#[cfg(feature = "verify")]
mod reference;

#[cfg(feature = "verify")]
pub use reference::reference;

use atlas_macros::atlas_kernel;

atlas_kernel! {
    /// y = softmax(x), row by row.
    pub kernel softmax<T: Float>(x: &Tensor<T, [N, D]>, y: &mut Tensor<T, [N, D]>)
    tune { BN: [1, 2, 4, 8], warps: [4, 8, 16], occupancy: [1, 4] }
    {
        for n in grid(tiles(N, BN)) {
            let xs = load(x[n, ..]).cast::<f32>();
            let e = exp(xs - max(xs, axis = 1));
            store(y[n, ..], (e / sum(e, axis = 1)).cast::<T>());
        }
    }
}

crate::records::shipped! { "nvidia-h100-80gb-hbm3": "softmax" }
crate::records::shipped! { "nvidia-h200": "softmax" }
