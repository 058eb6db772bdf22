//! Attention of one new token over a cache of the last `W` keys, the keys of each sequence cut into `X` parts.
//!
//! A cache is a ring: the key of token `t` lies in slot `t mod W`. Softmax knows no order, so the slots are read as they lie,
//! and only those that a token has filled count: `min(tokens, W)`. The queries of the `R` heads that share a head of keys are
//! one tile. Each part leaves its own maximum, sum and result in f32 (flash decoding); a second kernel joins them. `scale` is as in
//! [`attention`](crate::attention). A sequence of no tokens, or of fewer than none, gives 0 and a log-sum-exp of -infinity, and so
//! does a query whose logits are all -infinity: see [`online_softmax`](crate::online_softmax), also for how large logits and values
//! may be. Maxima of parts are of logits of base two: `log2(e)` times the others.
//!
//! Bytes: `2 s S W J D` for elements of `s` bytes, of the slots that are filled.

#[cfg(feature = "verify")]
pub(crate) mod cases;
#[cfg(feature = "verify")]
mod plans;
#[cfg(feature = "verify")]
mod reference;

#[cfg(feature = "verify")]
pub use reference::{DecodeSizes, join, parts};

use atlas_macros::atlas_kernel;
use atlas_runtime::Chain;

atlas_kernel! {
    use crate::online_softmax::{attend, base_of, base_two, log_sum};

    /// Softmax of `scale · q kᵀ` over a part of each sequence's keys: what it gives, the sum of its exponentials, and the greatest
    /// logit, of base two.
    ///
    /// `scale` is the factor of the logits, `1/sqrt(D)` as a rule. It is finite, and may be 0 or negative.
    pub kernel decode_parts<T: Float>(
        q: &Tensor<T, [S, J, R, D]>,
        k: &Tensor<T, [S, W, J, D]>,
        v: &Tensor<T, [S, W, J, D]>,
        tokens: &Tensor<i32, [S]>,
        scale: f32,
        part: &mut Tensor<f32, [S, J, X, R, D]>,
        totals: &mut Tensor<f32, [S, J, X, R]>,
        tops: &mut Tensor<f32, [S, J, X, R]>,
    )
    tune { BN: [64, 32, 128], stages: 2..=4, warps: [4, 2] }
    {
        for (s, j, x) in grid(S, J, X) {
            let filled = max(min(load(tokens[s]), size(W)), 0);
            let each = (size(W) + size(X) - 1) / size(X);
            let first = x * each;
            let end = min(first + each, filled);
            let qs = load(q[s, j, .., ..]);
            let mut top = full::<f32>([R, 1], f32::NEG_INFINITY);
            let mut total = zeros::<f32>([R, 1]);
            let mut acc = zeros::<f32>([R, D]);
            let whole = max(end - first, 0) / BN;
            for n in pipeline(0..whole) {
                let z = dot(qs, load(k[s, span(first + n * BN, BN), j, ..]).t()) * base_two(scale);
                (top, total, acc) = attend(z, load(v[s, span(first + n * BN, BN), j, ..]), top, total, acc);
            }
            // The last tile may reach past the part, to slots that nothing has filled, which may hold anything.
            for n in whole..(max(end - first, 0) + BN - 1) / BN {
                let at = first + n * BN;
                let z = dot(qs, load(k[s, span(at, BN), j, ..]).t()) * base_two(scale);
                let seen = select((at + iota([1, BN], 1)) < end, z, f32::NEG_INFINITY);
                let vs = select((at + iota([BN, 1], 0)) < end, load(v[s, span(at, BN), j, ..]), 0.0);
                (top, total, acc) = attend(seen, vs, top, total, acc);
            }
            store(part[s, j, x, .., ..], acc);
            store(totals[s, j, x, ..], total);
            store(tops[s, j, x, ..], top);
        }
    }

    /// The softmax over all parts.
    pub kernel decode_join<T: Float>(
        part: &Tensor<f32, [S, J, X, R, D]>,
        totals: &Tensor<f32, [S, J, X, R]>,
        tops: &Tensor<f32, [S, J, X, R]>,
        o: &mut Tensor<T, [S, J, R, D]>,
        lse: &mut Tensor<f32, [S, J, R]>,
    )
    tune { warps: [1, 2, 4] }
    {
        for (s, j, r) in grid(S, J, R) {
            let all = load(tops[s, j, .., r]).t();
            let top = max(all);
            let weight = exp2(all - base_of(top));
            let total = sum(weight * load(totals[s, j, .., r]).t());
            let joined = sum(weight * load(part[s, j, .., r, ..]), axis = 0);
            store(o[s, j, r, ..], select(total == 0.0, 0.0, joined / total).cast::<T>());
            store(lse[s, j, r], log_sum(top, total));
        }
    }
}

/// Both kernels: q, k, v, tokens, scale, o, lse. The workspace needs `S`, `J`, `X`, `R` and `D`.
pub static ATTENTION_DECODE: Chain =
    Chain::new("attention_decode", &[&decode_parts, &decode_join], &["part", "totals", "tops"]);

crate::records::shipped! { "nvidia-h100-80gb-hbm3": "decode_join" "decode_parts" }
crate::records::shipped! { "nvidia-h200": "decode_join" "decode_parts" }
