//! Inverses of small matrices by the iteration of Newton and Schulz, each matrix on chip throughout.
//!
//! `X0 = Aᵀ / (|A|_1 |A|_inf)`, then `X <- X + X E` with `E = I - A X`, whose norm is squared by each step once it is below 1. It
//! begins to fall for every matrix that has an inverse; from `X0` that takes about `2 log2 kappa` steps. The first of them change
//! `E` by less than f32 shows, so a step is taken if it makes `E` smaller, or, as long as `E` is large, if it makes it no larger
//! than rounding does. Near the inverse a step that would not make `E` smaller is not taken, so that more steps than needed change
//! nothing, and no host looks on: the iteration is captured into a graph as it is.
//!
//! Source: Schulz (1933), and Ben-Israel and Cohen (1966) for the start. The residual `|I - A X|_F / sqrt N` that f32 attains
//! is about `1e-7 kappa`. A matrix has no inverse to report, a status of 1 and a result of NaN, if its residual stays above 0.1,
//! or above `1 / (2 sqrt N)`, which a matrix without an inverse never reaches; or if an element of the inverse is beyond `T`.
//!
//! The iteration works on the matrix times a power of two, so that one of numbers far from 1 has an inverse as well as one near
//! it: the two norms of the start are multiplied, and overflow or vanish where elements of 1e20 or 1e-24 do not.
//!
//! Epsilon: none. `damping` is added to the diagonal, and 0 adds nothing.
//!
//! FLOPs: `4 B N^3` per step.

#[cfg(feature = "verify")]
pub(crate) mod cases;
#[cfg(feature = "verify")]
mod reference;

#[cfg(feature = "verify")]
pub use reference::reference;

use crate::newton_schulz_small::{LARGE, SHRINK};
use atlas_macros::atlas_kernel;

/// `2^-48`, below which a product of norms may lose digits.
const SMALL: f32 = 1.0 / LARGE;

/// `2^80`, by which what is smaller is multiplied.
const GROW: f32 = 1.0 / SHRINK;

/// The largest residual of an inverse. Below it a step has to make the residual smaller.
const LARGEST: f32 = 0.1;

/// By how much rounding may change a residual that stays.
const ROUNDING: f32 = 1.00001;

atlas_kernel! {
    /// I - a x
    tile fn error_of(a, x, on_diagonal) {
        let ax = dot(a, x);
        select(on_diagonal, 1.0 - ax, -ax)
    }

    /// x = (a + damping I)⁻¹ by at most `count` steps; `status` is 0 where there is an inverse.
    pub kernel inverse<T: Float>(
        a: &Tensor<T, [B, N, N]>,
        x: &mut Tensor<T, [B, N, N]>,
        status: &mut Tensor<i32, [B]>,
        count: i32,
        damping: f32,
    )
    tune { warps: [4, 8, 2] }
    {
        for b in grid(B) {
            let on_diagonal = iota([N, N], 0) == iota([N, N], 1);
            let given = load(a[b, .., ..]).cast::<f32>();
            let damped = select(on_diagonal, given + damping, given);
            let top = max(abs(damped));
            let unit = select(top > LARGE, SHRINK, select(top < SMALL, GROW, 1.0));
            let whole = damped * unit;
            let sizes = max(sum(abs(whole), axis = 0)) * max(sum(abs(whole), axis = 1));
            let mut xs = whole.t() / select(sizes == 0.0, 1.0, sizes);
            let mut e = error_of(whole, xs, on_diagonal);
            let mut norm = sqrt(sum(e * e) / size(N).cast::<f32>());
            for _ in 0..count {
                let next = xs + dot(xs, e);
                let left = error_of(whole, next, on_diagonal);
                let size_of_left = sqrt(sum(left * left) / size(N).cast::<f32>());
                let goes_on = (norm > LARGEST) && (size_of_left <= norm * ROUNDING);
                let better = (size_of_left < norm) || goes_on;
                xs = select(better, next, xs);
                e = select(better, left, e);
                norm = select(better, size_of_left, norm);
            }
            let bound = min(LARGEST, 0.5 * rsqrt(size(N).cast::<f32>()));
            let inverted = (xs * unit).cast::<T>().cast::<f32>();
            let found = (norm <= bound) && (max(abs(inverted)) < f32::INFINITY);
            store(x[b, .., ..], select(found, inverted, f32::NAN).cast::<T>());
            store(status[b], select(found, 0.cast::<i32>(), 1));
        }
    }
}

crate::records::shipped! { "nvidia-h100-80gb-hbm3": "inverse" }
crate::records::shipped! { "nvidia-h200": "inverse" }
