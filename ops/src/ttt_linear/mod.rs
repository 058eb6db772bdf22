//! TTT-Linear: a linear memory behind a layer norm, which learns each token by gradient descent.
//!
//! Sources: the paper (arXiv 2407.04620), and the conventions of flash-linear-attention's `ttt_linear`, which this op follows. Per
//! sequence and head, with `W` `[D, D]` and the bias `b` before a mini-batch of `L` tokens, and with a weight `w` and a shift `c` of
//! the norm:
//!
//! ```text
//! z_j  = k_j W + b
//! x_j  = (z_j - mean z_j) / d_j               d_j = sqrt(var z_j + eps)
//! g_j  = w (w x_j + c - (v_j - k_j))          the gradient of |w x_j + c - (v_j - k_j)|^2 / 2 by x_j
//! dz_j = (g_j - mean g_j - x_j mean(g_j x_j)) / d_j
//! r_i  = scale q_i W + b - eta_i sum over j <= i of (scale q_i . k_j + 1) dz_j
//! o_i  = r_i + w (r_i - mean r_i) / sqrt(var r_i + eps) + c
//! W   <- W - eta_last sum over j of k_j^T dz_j
//! b   <- b - eta_last sum over j of dz_j
//! ```
//!
//! All gradients of a mini-batch are taken at the memory before it, so its length `L` is part of the model and no choice of speed. The
//! step size is that of the token that reads, and that of the mini-batch's last token for the memory that goes on. `scale` is usually
//! D^-1/2.
//!
//! What differs elsewhere: the authors' code has `q_i` in place of the first `r_i` in `o_i`, and the step of a token `j` in its
//! `eta`, so that each token has its own in the memory that goes on. The last mini-batch of a sequence may be short. It then ends
//! with the sequence, as in the authors' code. flash-linear-attention fills it up with tokens of zeros, whose gradients enter `b`:
//! outputs and `W` are the same, and `b` after such a sequence is not.
//!
//! [`ttt_mix`] has what does not depend on the memory, `p[i, j] = eta_i (scale q_i . k_j + 1)`. [`ttt_linear`] goes from mini-batch to
//! mini-batch with `W` in registers. A norm needs all `D` numbers of a row, so one program has a whole head.
//!
//! Precision: products have operands of `T` and sums of f32, the norms and the memory are f32. In f16 the elements of `dz` have to be
//! below 65504: an empty memory has `d_j = sqrt(eps)`, which makes them 1000 times as large as `g_j`.
//!
//! The tokens of a mini-batch are mixed by products with zeros for those that a token does not see. A key, query or value that is
//! infinite or no number therefore reaches earlier tokens of its mini-batch, too.
//!
//! FLOPs: `2 B N H (3 D^2 + 2 L D)`. Bytes: `4 s B N H D` for elements of `s` bytes.

#[cfg(feature = "verify")]
pub(crate) mod cases;
#[cfg(feature = "verify")]
pub mod check;
mod mini_batches;
#[cfg(feature = "verify")]
mod plans;
#[cfg(feature = "verify")]
pub mod reference;

pub use mini_batches::MiniBatches;

use atlas_macros::atlas_kernel;
use atlas_runtime::Chain;

/// The memory over a sequence. [`MiniBatches::dims`] gives the dims of the workspace.
pub static TTT_LINEAR: Chain = Chain::new("ttt_linear", &[&ttt_mix, &ttt_linear], &["p"]);

atlas_kernel! {
    /// Columns less their mean, of elements that are each `share` of a column. The mean is taken off twice: what it was rounded by
    /// would be all that a column of equal numbers has.
    tile fn centred(x, share) {
        let off = x - sum(x, axis = 0) * share;
        off - sum(off, axis = 0) * share
    }

    /// One over the deviation of columns of the mean 0.
    tile fn one_over_deviation(x, share, eps) { rsqrt(sum(x * x, axis = 0) * share + eps) }

    /// Of each mini-batch, by how much each of its tokens sees the gradients of those up to it.
    pub kernel ttt_mix<T: Float>(
        q: &Tensor<T, [B, N, H, D]>,
        k: &Tensor<T, [B, N, H, D]>,
        eta: &Tensor<f32, [B, N, H]>,
        p: &mut Tensor<T, [B, H, C, L, L]>,
        scale: f32,
    )
    tune { warps: [1, 4], occupancy: [1, 4] }
    require { C * L >= N }
    {
        for (b, h, c) in grid(B, H, C) {
            let qc = load(q[b, span(c * size(L), L), h, ..]).or(0.0);
            let kc = load(k[b, span(c * size(L), L), h, ..]).or(0.0);
            let rate = load(eta[b, span(c * size(L), L), h]).or(0.0).t();
            // Behind the last token nothing is seen, whatever its keys are.
            let is_token = c * size(L) + iota([L, 1], 0) < size(N);
            let seen = iota([L, L], 1) <= iota([L, L], 0) && is_token;
            store(p[b, h, c, .., ..], select(seen, rate * (scale * dot(qc, kc.t()) + 1.0), 0.0).cast::<T>());
        }
    }

    /// Reads and trains a memory over a sequence. It is carried with its outputs in rows, so that it is the left operand of all
    /// products and stays in registers.
    ///
    /// Epsilon: `eps` is added to the variance, before its root, as by `torch.nn.LayerNorm`.
    pub kernel ttt_linear<T: Float>(
        q: &Tensor<T, [B, N, H, D]>,
        k: &Tensor<T, [B, N, H, D]>,
        v: &Tensor<T, [B, N, H, D]>,
        eta: &Tensor<f32, [B, N, H]>,
        p: &Tensor<T, [B, H, C, L, L]>,
        weight: &Tensor<f32, [H, D]>,
        shift: &Tensor<f32, [H, D]>,
        s: &mut Tensor<f32, [B, H, D, D]>,
        bias: &mut Tensor<f32, [B, H, D]>,
        o: &mut Tensor<T, [B, N, H, D]>,
        scale: f32,
        eps: f32,
    )
    tune { stages: [2, 1, 3], warps: [4, 8], warp_grid: [4x1, 8x1, 4x2, 2x4] }
    require { C * L >= N }
    {
        for (b, h) in grid(B, H) {
            let share = 1.0 / size(D).cast::<f32>();
            let by_weight = load(weight[h, ..]).t();
            let shifted = load(shift[h, ..]).t();
            let mut held = load(s[b, h, .., ..]).t();
            let mut offset = load(bias[b, h, ..]).t();
            for c in pipeline(0..size(C)) {
                let first = c * size(L);
                let kc = load(k[b, span(first, L), h, ..]);
                let qc = load(q[b, span(first, L), h, ..]);
                let vc = load(v[b, span(first, L), h, ..]);
                let operand = held.cast::<T>();
                let z = centred(dot(operand, kc.t()) + offset, share);
                let by = one_over_deviation(z, share, eps);
                let unit = z * by;
                let wanted = vc.t().cast::<f32>() - kc.t().cast::<f32>();
                let g = by_weight * (by_weight * unit + shifted - wanted);
                // What is taken off is made negative, so that products add to what they meet in place.
                let less = by * (sum(g, axis = 0) * share + unit * (sum(g * unit, axis = 0) * share) - g);
                let seen = less.cast::<T>();
                let before = offset;
                // The memory goes on before anything is read, so that `less` does not take registers until then.
                let step = less * load(eta[b, min(first + size(L), size(N)) - 1, h]);
                held += dot(step.cast::<T>(), kc);
                offset += sum(step, axis = 1);
                let mut read = scale * dot(operand, qc.t()) + before;
                read += dot(seen, load(p[b, h, c, .., ..]).t());
                let off = centred(read, share);
                let normed = by_weight * (off * one_over_deviation(off, share, eps)) + shifted;
                store(o[b, span(first, L), h, ..], (read + normed).cast::<T>().t());
            }
            store(s[b, h, .., ..], held.t());
            store(bias[b, h, ..], offset.t());
        }
    }
}
