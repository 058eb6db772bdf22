//! Gradients of what a [layer](crate::layer) does besides its memory and its attention, on tokens `[B, N, H, D]`.
//!
//! ```text
//! layer_features_grad   dx = dy (a1 + 2 a2 x + 3 a3 x^2)
//! layer_gate_grad       dx = dy s,  dm = dy x s (1 - s),  s = sigmoid(m)
//! layer_norm_grad       as rms_norm_grad, with the weights of each head
//! layer_combine_grad    of y = norm(attention, wa) * sigmoid(norm(memory, wm)), by the chain rule of both
//! ```
//!
//! The gradients by the weights of norms are sums over all tokens, in f32, by launches of their own: a program has one head, and
//! where CTAs share its tokens (`split_k`), the last one adds their sums in a fixed order. They compute the norms again, so nothing
//! is kept between the launches. Source: Titans (arXiv 2501.00663) Eq. 28, and the chain rule. Rows have the domain of
//! [`rms_norm_grad`](crate::rms_norm_grad), with its note on rows along which both terms cancel.
//!
//! Bytes of `layer_combine_grad`: `5 s B N H D`, and `3 s B N H D` of its weights; bound by memory.

#[cfg(feature = "verify")]
pub(crate) mod cases;
#[cfg(feature = "verify")]
mod reference;

#[cfg(feature = "verify")]
pub use reference::{CombineGrad, combine_grad};

use atlas_macros::atlas_kernel;
use atlas_runtime::Chain;

atlas_kernel! {
    use crate::functions::{gated, rms_slope};

    /// What the rows of a tile are divided by, inverted.
    tile fn inverse_root(x, count, eps) { rsqrt(sum(x * x, axis = 1) / count + eps) }

    /// dx of y = a1 x + a2 x^2 + a3 x^3.
    pub kernel layer_features_grad<T: Float>(
        x: &Tensor<T, [B, N, H, D]>,
        dy: &Tensor<T, [B, N, H, D]>,
        dx: &mut Tensor<T, [B, N, H, D]>,
        a1: f32,
        a2: f32,
        a3: f32,
    )
    tune { BN: [16, 1], warps: [4, 1] }
    {
        for (b, n, h) in grid(B, tiles(N, BN), H) {
            let v = load(x[b, n, h, ..]).cast::<f32>();
            let slope = a1 + v * (2.0 * a2 + v * (3.0 * a3));
            store(dx[b, n, h, ..], (load(dy[b, n, h, ..]).cast::<f32>() * slope).cast::<T>());
        }
    }

    /// dx and dm of y = x * sigmoid(m).
    pub kernel layer_gate_grad<T: Float>(
        x: &Tensor<T, [B, N, H, D]>,
        m: &Tensor<T, [B, N, H, D]>,
        dy: &Tensor<T, [B, N, H, D]>,
        dx: &mut Tensor<T, [B, N, H, D]>,
        dm: &mut Tensor<T, [B, N, H, D]>,
    )
    tune { BN: [16, 1], warps: [4, 1] }
    {
        for (b, n, h) in grid(B, tiles(N, BN), H) {
            let dys = load(dy[b, n, h, ..]).cast::<f32>();
            let (by_x, by_m) = grad(gated)(load(x[b, n, h, ..]).cast::<f32>(), load(m[b, n, h, ..]).cast::<f32>());
            store(dx[b, n, h, ..], (dys * by_x).cast::<T>());
            store(dm[b, n, h, ..], (dys * by_m).cast::<T>());
        }
    }

    /// dx of y = x / sqrt(mean(x^2) + eps) * w.
    pub kernel layer_norm_grad<T: Float>(
        x: &Tensor<T, [B, N, H, D]>,
        w: &Tensor<T, [H, D]>,
        dy: &Tensor<T, [B, N, H, D]>,
        eps: f32,
        dx: &mut Tensor<T, [B, N, H, D]>,
    )
    tune { BN: [16, 1], warps: [4, 1] }
    {
        for (b, n, h) in grid(B, tiles(N, BN), H) {
            let count = size(D).cast::<f32>();
            let xs = load(x[b, n, h, ..]).cast::<f32>();
            let rstd = inverse_root(xs, count, eps);
            let g = load(dy[b, n, h, ..]).cast::<f32>() * load(w[h, ..]).cast::<f32>();
            store(dx[b, n, h, ..], rms_slope(xs * rstd, g, rstd, count).cast::<T>());
        }
    }

    /// dw of the same.
    pub kernel layer_norm_weight_grad<T: Float>(
        x: &Tensor<T, [B, N, H, D]>,
        dy: &Tensor<T, [B, N, H, D]>,
        eps: f32,
        dw: &mut Tensor<f32, [H, D]>,
    )
    tune { BN: [16, 8], warps: [4], split_k: [1, 16] }
    {
        for h in grid(H) {
            let count = (size(N) + BN - 1) / BN;
            let mut acc = zeros::<f32>([BN, D]);
            for i in pipeline(0..size(B) * count) {
                let b = i / count;
                let at = i % count * BN;
                let xs = load(x[b, span(at, BN), h, ..]).cast::<f32>();
                let unit = xs * inverse_root(xs, size(D).cast::<f32>(), eps);
                acc += (load(dy[b, span(at, BN), h, ..]).cast::<f32>() * unit).or(0.0);
            }
            store(dw[h, ..], sum(acc, axis = 0));
        }
    }

    /// The gradients by what the memory and the attention give.
    pub kernel layer_combine_grad<T: Float>(
        memory: &Tensor<T, [B, N, H, D]>,
        wm: &Tensor<T, [H, D]>,
        eps: f32,
        attention: &Tensor<T, [B, N, H, D]>,
        wa: &Tensor<T, [H, D]>,
        dy: &Tensor<T, [B, N, H, D]>,
        dmemory: &mut Tensor<T, [B, N, H, D]>,
        dattention: &mut Tensor<T, [B, N, H, D]>,
    )
    tune { BN: [16, 1], warps: [4, 1] }
    {
        for (b, n, h) in grid(B, tiles(N, BN), H) {
            let count = size(D).cast::<f32>();
            let ms = load(memory[b, n, h, ..]).cast::<f32>();
            let xs = load(attention[b, n, h, ..]).cast::<f32>();
            let of_m = inverse_root(ms, count, eps);
            let of_x = inverse_root(xs, count, eps);
            let wms = load(wm[h, ..]).cast::<f32>();
            let was = load(wa[h, ..]).cast::<f32>();
            let dys = load(dy[b, n, h, ..]).cast::<f32>();
            let (by_x, by_m) = grad(gated)(xs * of_x * was, ms * of_m * wms);
            store(dmemory[b, n, h, ..], rms_slope(ms * of_m, dys * by_m * wms, of_m, count).cast::<T>());
            store(dattention[b, n, h, ..], rms_slope(xs * of_x, dys * by_x * was, of_x, count).cast::<T>());
        }
    }

    /// The gradients by the weights of both norms.
    pub kernel layer_combine_weight_grad<T: Float>(
        memory: &Tensor<T, [B, N, H, D]>,
        wm: &Tensor<T, [H, D]>,
        eps: f32,
        attention: &Tensor<T, [B, N, H, D]>,
        wa: &Tensor<T, [H, D]>,
        dy: &Tensor<T, [B, N, H, D]>,
        dwm: &mut Tensor<f32, [H, D]>,
        dwa: &mut Tensor<f32, [H, D]>,
    )
    tune { BN: [16, 8], warps: [4], split_k: [1, 16] }
    {
        for h in grid(H) {
            let wms = load(wm[h, ..]).cast::<f32>();
            let was = load(wa[h, ..]).cast::<f32>();
            let count = (size(N) + BN - 1) / BN;
            let mut of_m = zeros::<f32>([BN, D]);
            let mut of_x = zeros::<f32>([BN, D]);
            for i in pipeline(0..size(B) * count) {
                let b = i / count;
                let at = i % count * BN;
                let ms = load(memory[b, span(at, BN), h, ..]).cast::<f32>();
                let xs = load(attention[b, span(at, BN), h, ..]).cast::<f32>();
                let unit_m = ms * inverse_root(ms, size(D).cast::<f32>(), eps);
                let unit_x = xs * inverse_root(xs, size(D).cast::<f32>(), eps);
                let dys = load(dy[b, span(at, BN), h, ..]).cast::<f32>();
                let (by_x, by_m) = grad(gated)(unit_x * was, unit_m * wms);
                of_m += (dys * by_m * unit_m).or(0.0);
                of_x += (dys * by_x * unit_x).or(0.0);
            }
            store(dwm[h, ..], sum(of_m, axis = 0));
            store(dwa[h, ..], sum(of_x, axis = 0));
        }
    }
}

/// All gradients of the norm of each head: x, w, dy, eps, dx, dw. There is no workspace.
pub static LAYER_NORM_GRAD: Chain = Chain::new("layer_norm_grad", &[&layer_norm_grad, &layer_norm_weight_grad], &[]);

/// All gradients of what combines memory and attention: memory, wm, eps, attention, wa, dy, dmemory, dattention, dwm, dwa. There
/// is no workspace.
pub static LAYER_COMBINE_GRAD: Chain =
    Chain::new("layer_combine_grad", &[&layer_combine_grad, &layer_combine_weight_grad], &[]);
