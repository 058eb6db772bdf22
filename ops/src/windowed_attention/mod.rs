//! Causal attention over a sliding window, with keys that every query sees, documents, and fewer heads of keys than of
//! queries.
//!
//! Query `i` of `M` stands at key `i + N - M`, so that the last query stands at the last key. It sees the keys `j` with
//! `i' - window < j <= i'` that are not before the first one of its document, and all of the `S` prefix keys. `window` and `first`
//! may be any numbers. A query that sees none, or none whose logit is above -infinity, gets 0, and -infinity for its log-sum-exp.
//! `scale` is as in [`attention`](crate::attention). The log-sum-exp is the natural one, of weights as the product takes them: in 16
//! bits they are rounded. How large logits and values may be, and how far off the log-sum-exp is: see
//! [`online_softmax`](crate::online_softmax). Tiles of keys that no query of a tile sees are not read. The weight of a key that a
//! query does not see is 0, and 0 times a value that is infinite or no number is none: such values reach the queries whose tile of
//! keys they stand in.
//!
//! A window counts the query's own key: `window` keys, as `window_size = (window - 1, 0)` of FlashAttention has them. Queries are
//! aligned with the last keys, as FlashAttention's are, and not with the first ones, as those of `is_causal=True` in PyTorch.
//!
//! Sources: Titans (arXiv 2501.00663) for persistent keys beside a window; [`online_softmax`](crate::online_softmax). A dilated window is this one on views: tokens `r, r + d, r + 2 d, ..` of a sequence as a sequence of its own.
//!
//! FLOPs: `4 B H D` times the keys that are seen. Bytes: `s B D (2 M H + 2 N J)`.

#[cfg(feature = "verify")]
pub(crate) mod cases;
#[cfg(feature = "verify")]
mod reference;

#[cfg(feature = "verify")]
pub use reference::{WindowedAttentionSizes, reference};

use atlas_macros::atlas_kernel;

atlas_kernel! {
    use crate::online_softmax::{attend_rounded, attended, base_two, log_sum};

    /// o = softmax over the window, the prefix and the document (scale · q kᵀ) v, and its log-sum-exp.
    ///
    /// `scale` is the factor of the logits, `1/sqrt(D)` as a rule. It is finite, and may be 0 or negative.
    /// `window` counts the query's own key, and the last query stands at the last key. `first` is the first key that a query may see:
    /// 0, or where its document begins. The prefix `pk`, `pv` is seen by every query; `S` may be 0. A query that sees no key gets 0.
    pub kernel windowed_attention<T: Float>(
        q: &Tensor<T, [B, M, H, D]>,
        k: &Tensor<T, [B, N, J, D]>,
        v: &Tensor<T, [B, N, J, D]>,
        pk: &Tensor<T, [J, S, D]>,
        pv: &Tensor<T, [J, S, D]>,
        first: &Tensor<i32, [B, M]>,
        window: i32,
        scale: f32,
        o: &mut Tensor<T, [B, M, H, D]>,
        lse: &mut Tensor<f32, [B, H, M]>,
    )
    tune { BM: [64, 128, 32], BN: [64, 32], stages: 2..=3, warps: [4, 8] }
    require { H % J == 0 }
    {
        for (b, h, m) in grid(B, H, tiles(M, BM)) {
            let j = h / (size(H) / size(J));
            let qs = load(q[b, m, h, ..]);
            let mut top = full::<f32>([BM, 1], f32::NEG_INFINITY);
            let mut total = zeros::<f32>([BM, 1]);
            let mut acc = zeros::<f32>([BM, D]);
            for n in pipeline(tiles(S, BN)) {
                let z = dot(qs, load(pk[j, n, ..]).t()) * base_two(scale);
                (top, total, acc) = attend_rounded(z, load(pv[j, n, ..]), top, total, acc);
            }
            let start = m * BM + size(N) - size(M);
            // No window reaches past all keys, and no document begins behind them: others would leave the range of numbers.
            let reach = max(min(window, size(N)), 0);
            let row = start + iota([BM, 1], 0);
            let oldest = max(row - reach + 1, load(first[b, m]).or(0).t());
            let last = min(max(oldest), size(N));
            // Every query sees the keys from the last of the oldest to the first query's own: there nothing is chosen.
            let begin = max(max(start - reach + 1, 0), min(load(first[b, m]))) / BN;
            let end = (min(start + BM, size(N)) + BN - 1) / BN;
            let inner = min(max((last + BN - 1) / BN, begin), end);
            let outer = min(max((start + 1) / BN, inner), end);
            for n in pipeline(begin..inner) {
                let key = n * BN + iota([1, BN], 1);
                let seen = (key <= row) && (key >= oldest);
                let z = dot(qs, load(k[b, span(n * BN, BN), j, ..]).t()) * base_two(scale);
                let zs = select(seen, z, f32::NEG_INFINITY);
                (top, total, acc) = attend_rounded(zs, load(v[b, span(n * BN, BN), j, ..]), top, total, acc);
            }
            for n in pipeline(inner..outer) {
                let z = dot(qs, load(k[b, span(n * BN, BN), j, ..]).t()) * base_two(scale);
                (top, total, acc) = attend_rounded(z, load(v[b, span(n * BN, BN), j, ..]), top, total, acc);
            }
            for n in pipeline(outer..end) {
                let key = n * BN + iota([1, BN], 1);
                let seen = (key <= row) && (key >= oldest);
                let z = dot(qs, load(k[b, span(n * BN, BN), j, ..]).t()) * base_two(scale);
                let zs = select(seen, z, f32::NEG_INFINITY);
                (top, total, acc) = attend_rounded(zs, load(v[b, span(n * BN, BN), j, ..]), top, total, acc);
            }
            store(o[b, m, h, ..], attended(top, total, acc).cast::<T>());
            store(lse[b, h, m], log_sum(top, total));
        }
    }
}

crate::records::shipped! { "nvidia-h100-80gb-hbm3": "windowed_attention" }
crate::records::shipped! { "nvidia-h200": "windowed_attention" }
