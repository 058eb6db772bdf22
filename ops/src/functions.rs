//! Tile functions that kernels of several ops share.

use crate::newton_schulz_small::{EPS, LARGE};
use atlas_macros::atlas_kernel;

atlas_kernel! {
    /// One step of Horner's rule without a constant term: `x (a + rest)`.
    pub tile fn horner(x, a, rest) { x * (a + rest) }

    /// `x sigmoid(x)`.
    pub tile fn silu(x) { x * sigmoid(x) }

    /// `x` as far as its gate lets it pass: `x sigmoid(m)`.
    pub tile fn gated(x, m) { x * sigmoid(m) }

    /// The gradient by the rows `x` of `x * rstd * w` with `rstd = rsqrt(mean(x^2) + eps)`, from `unit = x * rstd`, the gradient
    /// `g` by `unit`, and the number of elements of a row.
    pub tile fn rms_slope(unit, g, rstd, count) { rstd * (g - unit * (sum(g * unit, axis = 1) / count)) }

    /// A matrix of elements up to `top` at a scale at which its squares do not overflow, and its norm of Frobenius there, which is
    /// above 0. No comparison picks the scale: what is compared is computed by slower, precise functions.
    ///
    /// Epsilon: 1e-7 of the matrix's own scale is added to the norm of Frobenius, as by Jordan's Muon.
    pub tile fn with_norm(s, top) {
        let unit = min(LARGE / top, 1.0);
        let scaled = s * unit;
        (scaled, sqrt(sum(scaled * scaled)) + EPS * unit)
    }
}
