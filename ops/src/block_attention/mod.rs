//! Attention over chosen blocks of keys: each tile of queries lists the tiles of keys that it sees.
//!
//! Queries and keys are cut into blocks of 64. Of each head `h` and block of queries `p`, `blocks[h, p, ..counts[h, p]]` are the
//! blocks of keys that are read, in any order and each at most once; the others cost nothing, and a number that no block has
//! names none. With `causal` above 0 a query sees no key behind its own place, which is the key's with the same number from the
//! end. A query that sees none, or none whose logit is above -infinity, gets 0, and -infinity for its log-sum-exp.
//!
//! The log-sum-exp is of the weights as the product takes them: in 16 bits they are rounded. How large logits and values may be: see
//! [`online_softmax`](crate::online_softmax).
//!
//! Source: block-sparse masks as FlexAttention (arXiv 2412.05496) takes them; the
//! [online softmax](crate::online_softmax), with `scale` as in [`attention`](crate::attention). FLOPs:
//! `4 B H D` times the keys that are read.

#[cfg(feature = "verify")]
pub(crate) mod cases;
#[cfg(feature = "verify")]
mod reference;

use atlas_macros::atlas_kernel;

atlas_kernel! {
    use crate::online_softmax::{attend_rounded, attended, base_two, log_sum};

    /// o = softmax over the listed blocks (scale · q kᵀ) v, and its log-sum-exp.
    ///
    /// `scale` is the factor of the logits, `1/sqrt(D)` as a rule. It is finite, and may be 0 or negative.
    pub kernel block_attention<T: Float>(
        q: &Tensor<T, [B, M, H, D]>,
        k: &Tensor<T, [B, N, J, D]>,
        v: &Tensor<T, [B, N, J, D]>,
        blocks: &Tensor<i32, [H, P, K]>,
        counts: &Tensor<i32, [H, P]>,
        causal: i32,
        scale: f32,
        o: &mut Tensor<T, [B, M, H, D]>,
        lse: &mut Tensor<f32, [B, H, M]>,
    )
    tune { stages: 2..=3, warps: [4, 8] }
    require { H % J == 0, P * 64 >= M }
    {
        for (b, h, m) in grid(B, H, tiles(M, 64)) {
            let j = h / (size(H) / size(J));
            let qs = load(q[b, m, h, ..]);
            let mut top = full::<f32>([64, 1], f32::NEG_INFINITY);
            let mut total = zeros::<f32>([64, 1]);
            let mut acc = zeros::<f32>([64, D]);
            let row = m * 64 + size(N) - size(M) + iota([64, 1], 0);
            let block = m * 64 / 64;
            for i in 0..min(load(counts[h, block]), size(K)) {
                let listed = load(blocks[h, block, i]);
                // What is no block lies before the first key. A number beyond the last one, times 64, might be any other.
                let at = select(listed <= (size(N) - 1) / 64, max(listed, -1), -1) * 64;
                let key = at + iota([1, 64], 1);
                let seen = (key < size(N)) && ((key <= row) || (causal < 1));
                let z = dot(qs, load(k[b, span(at, 64), j, ..]).t()) * base_two(scale);
                let zs = select(seen, z, f32::NEG_INFINITY);
                (top, total, acc) = attend_rounded(zs, load(v[b, span(at, 64), j, ..]), top, total, acc);
            }
            store(o[b, m, h, ..], attended(top, total, acc).cast::<T>());
            store(lse[b, h, m], log_sum(top, total));
        }
    }
}

/// Elements of a block.
pub const BLOCK: usize = 64;

crate::records::shipped! { "nvidia-h100-80gb-hbm3": "block_attention" }
crate::records::shipped! { "nvidia-h200": "block_attention" }
