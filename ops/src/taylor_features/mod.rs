//! Features whose inner product is the exponential's to second order: `phi(q) . phi(k) = 1 + q.k + (q.k)^2 / 2`.
//!
//! `phi(x) = (1, x, x (x) x / sqrt 2)`, all `D^2` products, in the order of rows of `x (x) x`. Source: ATLAS (arXiv 2505.23735)
//! Eq. 5 with `a_j = 1/j!`, of degree 2. Rows of `1 + D + D^2` elements begin where no vector does, so they are written
//! element by element. FLOPs: `2 N D^2`. Bytes: `s N (1 + 2 D + D^2)`; bound by memory.

#[cfg(feature = "verify")]
pub(crate) mod cases;
#[cfg(feature = "verify")]
mod reference;

#[cfg(feature = "verify")]
pub use reference::reference;

use atlas_macros::atlas_kernel;
use std::f32::consts::FRAC_1_SQRT_2;

atlas_kernel! {
    /// y = (1, x, x (x) x / sqrt 2), row by row; `E` is `1 + D + D^2`.
    pub kernel taylor2_features<T: Float>(x: &Tensor<T, [N, D]>, y: &mut Tensor<T, [N, E]>)
    tune { BN: [4], warps: [8] }
    require { E == 1 + D + D * D }
    {
        for n in grid(tiles(N, BN)) {
            let xs = load(x[n, ..]).cast::<f32>();
            store(y[n, span(0, 1)], full::<T>([BN, 1], 1.0));
            store(y[n, span(1, D)], xs.cast::<T>());
            for i in 0..size(D) {
                let one = load(x[n, span(i, 1)]).cast::<f32>();
                store(y[n, span(1 + size(D) + i * size(D), D)], (one * xs * FRAC_1_SQRT_2).cast::<T>());
            }
        }
    }
}

crate::records::shipped! { "nvidia-h100-80gb-hbm3": "taylor2_features" }
crate::records::shipped! { "nvidia-h200": "taylor2_features" }
