//! Read-out of the memories of an Omega rule, as they stand: all forms, each with the weights that the rule trains.
//!
//! ```text
//! memory_recall_linear   y = r + W x
//! memory_recall_mlp      y = r + W1 gelu(W2 x)                          ATLAS Eq. 42
//! memory_recall_gated    y = r + W1 (gelu(W2 x) (*) W3 x)               ATLAS Eq. 43
//! memory_recall_normed   y = r + norm(W1 gelu(W2 x)) (*) w              TTT (arXiv 2407.04620)
//! ```
//!
//! Tokens lie `[B, N, H, D]` and weights `[B, H, ..]` in f32, as those of [`omega_mlp`](crate::omega::omega_mlp) and its kin. Weights
//! are rounded to the type of tokens, as there. [`memory_read`](crate::memory_read) and
//! [`memory_read_gated`](crate::gated_memory) are the same functions of weights in the type of tokens, group by group. The norm is a
//! layer norm without a bias, with the domain and the epsilon of `memory_read_normed`.
//!
//! These hold whole rows of tokens in shared memory. Those with `_wide` in their names read rows in tiles, and take any `D`.
//!
//! Source: Titans (arXiv 2501.00663) Eq. 21, what a memory recalls for the queries of a segment. FLOPs: `2 B N H M (D + E)`, half as
//! much again of the gated one, and `2 B N H D E` of the linear one.

#[cfg(feature = "verify")]
pub(crate) mod cases;
#[cfg(feature = "verify")]
mod reference;
mod wide;

pub use wide::{
    memory_recall_gated_wide, memory_recall_linear_wide, memory_recall_mlp_wide, memory_recall_normed_wide,
};

use atlas_macros::atlas_kernel;

atlas_kernel! {
    use crate::omega::normed::layer_normed;

    /// y = r + W x
    pub kernel memory_recall_linear<T: Float>(
        x: &Tensor<T, [B, N, H, D]>,
        w: &Tensor<f32, [B, H, E, D]>,
        r: &Tensor<T, [B, N, H, E]>,
        y: &mut Tensor<T, [B, N, H, E]>,
    )
    tune { BN: [64, 32, 16], BE: [32, 64, 16], warps: [4, 2] }
    {
        for (b, h, n, e) in grid(B, H, tiles(N, BN), tiles(E, BE)) {
            let read = dot(load(x[b, n, h, ..]), load(w[b, h, e, ..]).cast::<T>().t());
            store(y[b, n, h, e], (load(r[b, n, h, e]).cast::<f32>() + read).cast::<T>());
        }
    }

    /// y = r + W1 gelu(W2 x)
    pub kernel memory_recall_mlp<T: Float>(
        x: &Tensor<T, [B, N, H, D]>,
        w1: &Tensor<f32, [B, H, E, M]>,
        w2: &Tensor<f32, [B, H, M, D]>,
        r: &Tensor<T, [B, N, H, E]>,
        y: &mut Tensor<T, [B, N, H, E]>,
    )
    tune { BN: [64, 32, 16], BM: [32, 64, 16], warps: [4, 2] }
    {
        for (b, h, n) in grid(B, H, tiles(N, BN)) {
            let xs = load(x[b, n, h, ..]);
            let mut acc = load(r[b, n, h, ..]).cast::<f32>();
            for m in tiles(M, BM) {
                let z = dot(xs, load(w2[b, h, m, ..]).cast::<T>().t());
                acc += dot(gelu(z).cast::<T>(), load(w1[b, h, .., m]).cast::<T>().t());
            }
            store(y[b, n, h, ..], acc.cast::<T>());
        }
    }

    /// y = r + W1 (gelu(W2 x) * W3 x)
    pub kernel memory_recall_gated<T: Float>(
        x: &Tensor<T, [B, N, H, D]>,
        w1: &Tensor<f32, [B, H, E, M]>,
        w2: &Tensor<f32, [B, H, M, D]>,
        w3: &Tensor<f32, [B, H, M, D]>,
        r: &Tensor<T, [B, N, H, E]>,
        y: &mut Tensor<T, [B, N, H, E]>,
    )
    tune { BN: [64, 32, 16], BM: [32, 64, 16], warps: [4, 2] }
    {
        for (b, h, n) in grid(B, H, tiles(N, BN)) {
            let xs = load(x[b, n, h, ..]);
            let mut acc = load(r[b, n, h, ..]).cast::<f32>();
            for m in tiles(M, BM) {
                let z = dot(xs, load(w2[b, h, m, ..]).cast::<T>().t());
                let u = dot(xs, load(w3[b, h, m, ..]).cast::<T>().t());
                acc += dot((gelu(z) * u).cast::<T>(), load(w1[b, h, .., m]).cast::<T>().t());
            }
            store(y[b, n, h, ..], acc.cast::<T>());
        }
    }

    /// y = r + w * (m - mean m) / sqrt(var m + eps) with m = W1 gelu(W2 x)
    ///
    /// Epsilon: `eps` is added to the variance, before its root, as by `torch.nn.LayerNorm`.
    pub kernel memory_recall_normed<T: Float>(
        x: &Tensor<T, [B, N, H, D]>,
        w1: &Tensor<f32, [B, H, E, M]>,
        w2: &Tensor<f32, [B, H, M, D]>,
        norm: &Tensor<T, [H, E]>,
        r: &Tensor<T, [B, N, H, E]>,
        eps: f32,
        y: &mut Tensor<T, [B, N, H, E]>,
    )
    tune { BN: [64, 32, 16], BM: [32, 64, 16], warps: [4, 2] }
    {
        for (b, h, n) in grid(B, H, tiles(N, BN)) {
            let xs = load(x[b, n, h, ..]);
            let mut acc = zeros::<f32>([BN, E]);
            for m in tiles(M, BM) {
                let z = dot(xs, load(w2[b, h, m, ..]).cast::<T>().t());
                acc += dot(gelu(z).cast::<T>(), load(w1[b, h, .., m]).cast::<T>().t());
            }
            let (unit, _) = layer_normed(acc, size(E).cast::<f32>(), eps);
            let normed = unit * load(norm[h, ..]).cast::<f32>();
            store(y[b, n, h, ..], (load(r[b, n, h, ..]).cast::<f32>() + normed).cast::<T>());
        }
    }
}
