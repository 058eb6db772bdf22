//! Radial basis functions: `y = exp(-g |x - c|²)` of centres `c`, each of its own width `g`.
//!
//! With `|x - c|² = |x|² + |c|² - 2 x·c`, which rounding may take below 0 and is kept from it. What is rounded are the squares:
//! the exponent is off by up to `g (|x|² + |c|²) (D + 4) 2^-24`, and a feature by as much relative to itself. So features of rows
//! that lie far from 0, about one place, lose digits, at `g |x|²` near `2^20` all of them: take that place off `x` and `c` before,
//! which changes no distance. Domain: `|x|` and `|c|` are at most 1.3e19 and `|g|` is at most 1.1e38, so that all of `|x|²`, `|c|²`,
//! `|x - c|²/2` and `2 log2(e) g` are numbers of f32; beyond it features may be NaN. FLOPs: `2 N D M` and an exponential of each
//! feature. Bytes: `s N (D + M)`; bound by memory.

#[cfg(feature = "verify")]
pub(crate) mod cases;
#[cfg(feature = "verify")]
mod reference;

#[cfg(feature = "verify")]
pub use reference::reference;

use atlas_macros::atlas_kernel;
use std::f32::consts::LOG2_E;

atlas_kernel! {
    /// Half the sum of the squares of each row.
    tile fn half_squared(x) { 0.5 * sum(x * x, axis = 1) }

    /// y = exp(-g |x - c|²)
    pub kernel rbf_features<T: Float>(
        x: &Tensor<T, [N, D]>,
        c: &Tensor<T, [M, D]>,
        g: &Tensor<f32, [M]>,
        y: &mut Tensor<T, [N, M]>,
    )
    tune { BN: [64, 128, 32], BM: [64, 32, 128], stages: 2..=3, warps: [4, 2, 8] }
    {
        for n in grid(tiles(N, BN)) {
            let xs = load(x[n, ..]);
            let from = half_squared(xs.cast::<f32>());
            for m in pipeline(tiles(M, BM)) {
                let cs = load(c[m, ..]);
                let ends = from + half_squared(cs.cast::<f32>()).t();
                let half = max(ends - dot(xs, cs.t()), 0.0);
                store(y[n, m], exp2(load(g[m]) * (-2.0 * LOG2_E) * half).cast::<T>());
            }
        }
    }
}

crate::records::shipped! { "nvidia-h100-80gb-hbm3": "rbf_features" }
crate::records::shipped! { "nvidia-h200": "rbf_features" }
