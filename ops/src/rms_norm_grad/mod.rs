//! The gradient of [`rms_norm`](crate::rms_norm), `y = x * rstd * w` with `rstd = 1 / sqrt(mean(x^2) + eps)`.
//!
//! ```text
//! u = x * rstd,  g = dy * w
//! dx = rstd (g - u mean(g u)),  dw = sum over rows of dy * u
//! ```
//!
//! Source: Zhang and Sennrich, arXiv 1910.07467, and the chain rule. Computed in f32, whatever the element type, in the domain of
//! `rms_norm`. The two terms of `dx` cancel along `x` itself, so `dx` is accurate relative to `rstd * g`: a row of one element has
//! a `dx` that is `eps / (x^2 + eps)` of that, and nearly all of it is rounding error.
//!
//! Two launches: `dx` and `rstd` by rows, and `dw` by tiles of columns. `dw` is added in a fixed order: where CTAs share the rows
//! (`split_k`), the last one adds their sums in order; a program has one warp, as in [`column_sums`](crate::column_sums). Bytes:
//! `5 s N D`; bound by memory.

#[cfg(feature = "verify")]
pub(crate) mod cases;
#[cfg(feature = "verify")]
mod reference;

#[cfg(feature = "verify")]
pub use reference::reference;

use atlas_macros::atlas_kernel;
use atlas_runtime::Chain;

atlas_kernel! {
    use crate::functions::rms_slope;

    /// dx, and rstd of each row.
    pub kernel rms_norm_grad<T: Float>(
        x: &Tensor<T, [N, D]>,
        w: &Tensor<T, [D]>,
        dy: &Tensor<T, [N, D]>,
        eps: f32,
        dx: &mut Tensor<T, [N, D]>,
        rstd: &mut Tensor<f32, [N]>,
    )
    tune { BN: [1, 4], warps: [4, 8, 16] }
    {
        for n in grid(tiles(N, BN)) {
            let xs = load(x[n, ..]).cast::<f32>();
            let scale = rsqrt(sum(xs * xs, axis = 1) / size(D).cast::<f32>() + eps);
            let g = load(dy[n, ..]).cast::<f32>() * load(w[..]).cast::<f32>();
            store(dx[n, ..], rms_slope(xs * scale, g, scale, size(D).cast::<f32>()).cast::<T>());
            store(rstd[n], scale);
        }
    }

    /// The same of `x + f(norm(x))`: dx is added to `dr`, the gradient that goes around the norm.
    pub kernel rms_norm_residual_grad<T: Float>(
        x: &Tensor<T, [N, D]>,
        w: &Tensor<T, [D]>,
        dy: &Tensor<T, [N, D]>,
        dr: &Tensor<T, [N, D]>,
        eps: f32,
        dx: &mut Tensor<T, [N, D]>,
        rstd: &mut Tensor<f32, [N]>,
    )
    tune { BN: [1, 4], warps: [4, 8, 16] }
    {
        for n in grid(tiles(N, BN)) {
            let xs = load(x[n, ..]).cast::<f32>();
            let scale = rsqrt(sum(xs * xs, axis = 1) / size(D).cast::<f32>() + eps);
            let g = load(dy[n, ..]).cast::<f32>() * load(w[..]).cast::<f32>();
            let slope = rms_slope(xs * scale, g, scale, size(D).cast::<f32>());
            store(dx[n, ..], (load(dr[n, ..]).cast::<f32>() + slope).cast::<T>());
            store(rstd[n], scale);
        }
    }

    /// dw, from rstd of each row.
    pub kernel rms_norm_weight_grad<T: Float>(
        x: &Tensor<T, [N, D]>,
        rstd: &Tensor<f32, [N]>,
        dy: &Tensor<T, [N, D]>,
        dw: &mut Tensor<f32, [D]>,
    )
    tune { BD: [64, 32], BN: [16], warps: [1], split_k: [1, 4, 16] }
    {
        for d in grid(tiles(D, BD)) {
            let mut acc = zeros::<f32>([BN, BD]);
            for n in pipeline(tiles(N, BN)) {
                let unit = load(x[n, d]).cast::<f32>() * load(rstd[n]).t();
                acc += (load(dy[n, d]).cast::<f32>() * unit).or(0.0);
            }
            store(dw[d], sum(acc, axis = 0));
        }
    }
}

/// Both gradients: x, w, dy, eps, dx, dw. The workspace needs `N`.
pub static RMS_NORM_GRAD: Chain = Chain::new("rms_norm_grad", &[&rms_norm_grad, &rms_norm_weight_grad], &["rstd"]);

/// The gradient by `x` alone, for weights that do not learn: x, w, dy, eps, dx. The workspace needs `N`.
pub static RMS_NORM_INPUT_GRAD: Chain = Chain::new("rms_norm_input_grad", &[&rms_norm_grad], &["rstd"]);

/// Both gradients of `x + f(norm(x))`: x, w, dy, dr, eps, dx, dw. The workspace needs `N`.
pub static RMS_NORM_RESIDUAL_GRAD: Chain =
    Chain::new("rms_norm_residual_grad", &[&rms_norm_residual_grad, &rms_norm_weight_grad], &["rstd"]);

/// The gradient of `x + f(norm(x))` by `x` alone: x, w, dy, dr, eps, dx. The workspace needs `N`.
pub static RMS_NORM_RESIDUAL_INPUT_GRAD: Chain =
    Chain::new("rms_norm_residual_input_grad", &[&rms_norm_residual_grad], &["rstd"]);
