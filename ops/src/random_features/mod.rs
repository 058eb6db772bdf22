//! Random features: maps whose inner products are kernels on average over the projections `w`, which are inputs.
//!
//! - Positive features (FAVOR+, Choromanski et al., arXiv 2009.14794): `exp(w·x' - |x'|²/2 - shift) / sqrt(M)` of
//!   `x' = scale x`, for `exp(x'·y')`. `scale` is `D^-1/4` for attention; `shift` keeps exponents of long vectors small, and
//!   has to be the same for all whose products are compared. Rows have a norm of at most 1.8e19 and a `scale` whose square is a
//!   number of f32; the features of a longer row are 0, or NaN where `w·x` is infinite or the square of `scale` vanishes. Of
//!   an exponent its terms are rounded: a feature is off, relative to itself, by up to
//!   `(|w·x'| + |x'|²/2 + |shift|) (D + 4) 2^-24`, so that rows with `|x'|²` near `2^20` have lost all digits.
//! - Fourier features (Rahimi and Recht 2007): `sqrt(2 / M) cos(w·x + b)`, and as pairs `cos(w·x), sin(w·x)` over
//!   `sqrt(M)`, which need no `b`, for a kernel of `x - y` whose transform is the density of `w`.
//!
//! FLOPs: `2 N D M` and a function of each feature. Bytes: `s N (D + M)`, of pairs `s N (D + 2 M)`; bound by memory.

#[cfg(feature = "verify")]
pub(crate) mod cases;
#[cfg(feature = "verify")]
mod reference;

#[cfg(feature = "verify")]
pub use reference::{Feature, reference};

use atlas_macros::atlas_kernel;
use std::f32::consts::LOG2_E;

atlas_kernel! {
    /// y = exp(scale w·x - |scale x|²/2 - shift) / sqrt(M)
    pub kernel favor_features<T: Float>(
        x: &Tensor<T, [N, D]>,
        w: &Tensor<T, [M, D]>,
        scale: f32,
        shift: f32,
        y: &mut Tensor<T, [N, M]>,
    )
    tune { BN: [64, 128, 32], BM: [64, 32, 128], stages: 2..=3, warps: [4, 2, 8] }
    {
        for n in grid(tiles(N, BN)) {
            let xs = load(x[n, ..]);
            let long = xs.cast::<f32>();
            let half = 0.5 * scale * scale * sum(long * long, axis = 1);
            // In powers of 2, sqrt(M) among them: an exponent is a product and a difference.
            let less = (half + shift + 0.5 * log(size(M).cast::<f32>())) * LOG2_E;
            let unit = scale * LOG2_E;
            for m in pipeline(tiles(M, BM)) {
                let z = dot(xs, load(w[m, ..]).t());
                store(y[n, m], exp2(z * unit - less).cast::<T>());
            }
        }
    }

    /// y = sqrt(2 / M) cos(w·x + b)
    pub kernel fourier_features<T: Float>(
        x: &Tensor<T, [N, D]>,
        w: &Tensor<T, [M, D]>,
        b: &Tensor<f32, [M]>,
        y: &mut Tensor<T, [N, M]>,
    )
    tune { BN: [64, 128, 32], BM: [64, 32, 128], stages: 2..=3, warps: [4, 2, 8] }
    {
        for n in grid(tiles(N, BN)) {
            let xs = load(x[n, ..]);
            let norm = sqrt(2.0 / size(M).cast::<f32>());
            for m in pipeline(tiles(M, BM)) {
                let z = dot(xs, load(w[m, ..]).t()) + load(b[m]);
                store(y[n, m], (cos(z) * norm).cast::<T>());
            }
        }
    }

    /// y = cos(w·x) / sqrt(M), sin(w·x) / sqrt(M)
    pub kernel fourier_pairs<T: Float>(
        x: &Tensor<T, [N, D]>,
        w: &Tensor<T, [M, D]>,
        y: &mut Tensor<T, [N, P, M]>,
    )
    tune { BN: [64, 32], BM: [32, 64], stages: 2..=3, warps: [4, 2, 8] }
    require { P == 2 }
    {
        for n in grid(tiles(N, BN)) {
            let xs = load(x[n, ..]);
            let norm = rsqrt(size(M).cast::<f32>());
            for m in pipeline(tiles(M, BM)) {
                let z = dot(xs, load(w[m, ..]).t());
                store(y[n, 0, m], (cos(z) * norm).cast::<T>());
                store(y[n, 1, m], (sin(z) * norm).cast::<T>());
            }
        }
    }
}

crate::records::shipped! { "nvidia-h100-80gb-hbm3": "favor_features" "fourier_features" "fourier_pairs" }
crate::records::shipped! { "nvidia-h200": "favor_features" "fourier_features" "fourier_pairs" }
