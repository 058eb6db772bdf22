//! The gradient of [`windowed_attention`](crate::windowed_attention).
//!
//! With the weights `p = exp(scale q kᵀ - lse)` of the keys that a query sees, and 0 for all others:
//!
//! ```text
//! delta = rowsum(dout (*) o),  ds = p (*) (dout vᵀ - delta)
//! dq = scale ds k,  dk = scale dsᵀ q,  dv = pᵀ dout
//! ```
//!
//! `dk` and `dv` are sums over the query heads that share a head of keys. `dpk` and `dpv`, of the prefix keys, are also sums over
//! the sequences. `scale` is the usual factor, such as `1 / sqrt(D)`, and `lse` the natural logarithm.
//!
//! Source: FlashAttention-2 (arXiv 2307.08691), Algorithm 2, in three launches without atomics: `dq` and `delta` by tiles of
//! queries, `dk` and `dv` by tiles of keys, and the prefix keys. Each sum has a fixed order, so a launch gives the same bits each time.
//!
//! Tiles of keys outside of all windows of a tile of queries are not read, and neither are tiles of queries whose windows a tile
//! of keys is outside of. Documents shorten the walk over the keys, but not the walk over the queries. A query that sees nothing
//! has `lse = -infinity` and gives zeros. Weights and `ds` are rounded as products take them. Where one key has nearly all of the
//! weight, `dout vᵀ` and `delta` nearly cancel, and `ds` has the error by which `o` was rounded. As in the forward pass, a key that
//! a query does not see has the weight 0, and 0 times an infinity or NaN is NaN: such rows spoil the tiles in which they stand.
//!
//! Products are those of warps (`mma.sync`), on Hopper too: the bounds of the loops depend on the program, and around `wgmma` in
//! such loops ptxas moves descriptors between registers. Which of the two is faster has not been measured.
//!
//! FLOPs: `14 B H D` times the keys that are seen: `6 B H D` for `dq` and `8 B H D` for `dk` and `dv`.

#[cfg(feature = "verify")]
pub(crate) mod cases;
#[cfg(feature = "verify")]
mod reference;

#[cfg(feature = "verify")]
pub use reference::{Sight, reference};

use atlas_macros::atlas_kernel;
use atlas_runtime::Chain;
use std::f32::consts::LOG2_E;

atlas_kernel! {
    /// The weights of logits: `exp(scale z - lse)`. A query without weights has the logarithm -infinity: all of its are 0.
    tile fn weights(z, scale, lse) {
        let base = select(lse == f32::NEG_INFINITY, f32::INFINITY, lse * LOG2_E);
        exp2(z * (scale * LOG2_E) - base)
    }

    /// dq, and delta.
    pub kernel attention_query_grad<T: Float>(
        q: &Tensor<T, [B, M, H, D]>,
        k: &Tensor<T, [B, N, J, D]>,
        v: &Tensor<T, [B, N, J, D]>,
        pk: &Tensor<T, [J, S, D]>,
        pv: &Tensor<T, [J, S, D]>,
        first: &Tensor<i32, [B, M]>,
        window: i32,
        scale: f32,
        o: &Tensor<T, [B, M, H, D]>,
        lse: &Tensor<f32, [B, H, M]>,
        dout: &Tensor<T, [B, M, H, D]>,
        dq: &mut Tensor<T, [B, M, H, D]>,
        delta: &mut Tensor<f32, [B, H, M]>,
    )
    tune { BM: [64, 32], BN: [32, 64, 16], warps: [4], products: [warps] }
    require { H % J == 0 }
    {
        for (b, h, m) in grid(B, H, tiles(M, BM)) {
            let j = h / (size(H) / size(J));
            let qs = load(q[b, m, h, ..]);
            let douts = load(dout[b, m, h, ..]);
            let deltas = sum(load(o[b, m, h, ..]).cast::<f32>() * load(dout[b, m, h, ..]).cast::<f32>(), axis = 1);
            store(delta[b, h, m], deltas);
            let sums = load(lse[b, h, m]).t();
            let mut acc = zeros::<f32>([BM, D]);
            for n in pipeline(tiles(S, BN)) {
                let ks = load(pk[j, n, ..]);
                let p = weights(dot(qs, ks.t()), scale, sums);
                let ds = p * (dot(douts, load(pv[j, n, ..]).t()) - deltas);
                acc += dot(ds.cast::<T>(), ks);
            }
            let start = m * BM + size(N) - size(M);
            // No window reaches past all keys, and no document begins behind them: others would leave the range of numbers.
            let reach = max(min(window, size(N)), 0);
            let row = start + iota([BM, 1], 0);
            let oldest = max(row - reach + 1, load(first[b, m]).or(0).t());
            let begin = max(max(start - reach + 1, 0), min(load(first[b, m]))) / BN;
            let end = (min(start + BM, size(N)) + BN - 1) / BN;
            for n in pipeline(begin..end) {
                let key = n * BN + iota([1, BN], 1);
                let seen = (key <= row) && (key >= oldest);
                let ks = load(k[b, span(n * BN, BN), j, ..]);
                let p = select(seen, weights(dot(qs, ks.t()), scale, sums), 0.0);
                let ds = p * (dot(douts, load(v[b, span(n * BN, BN), j, ..]).t()) - deltas);
                acc += dot(ds.cast::<T>(), ks);
            }
            store(dq[b, m, h, ..], (acc * scale).cast::<T>());
        }
    }

    /// dk and dv: the queries of all heads that share a head of keys, one tile of theirs after the other.
    pub kernel attention_key_grad<T: Float>(
        q: &Tensor<T, [B, M, H, D]>,
        k: &Tensor<T, [B, N, J, D]>,
        v: &Tensor<T, [B, N, J, D]>,
        first: &Tensor<i32, [B, M]>,
        window: i32,
        scale: f32,
        lse: &Tensor<f32, [B, H, M]>,
        delta: &Tensor<f32, [B, H, M]>,
        dout: &Tensor<T, [B, M, H, D]>,
        dk: &mut Tensor<T, [B, N, J, D]>,
        dv: &mut Tensor<T, [B, N, J, D]>,
    )
    tune { BN: [64, 32], BM: [32, 64, 16], warps: [4, 8], products: [warps] }
    require { H % J == 0 }
    {
        for (b, j, n) in grid(B, J, tiles(N, BN)) {
            let ks = load(k[b, n, j, ..]);
            let vs = load(v[b, n, j, ..]);
            let key = n * BN + iota([BN, 1], 0);
            let reach = max(min(window, size(N)), 0);
            // Query `i` stands at key `i + ahead`. The last that may see the tile stands `reach - 1` behind its last key.
            let ahead = size(N) - size(M);
            let begin = max(n * BN - ahead, 0) / BM;
            let behind = min((n + 1) * BN + reach - 1 - ahead, size(M));
            let count = max((behind + BM - 1) / BM - begin, 0);
            let group = size(H) / size(J);
            let mut by_k = zeros::<f32>([BN, D]);
            let mut by_v = zeros::<f32>([BN, D]);
            for i in pipeline(0..group * count) {
                let h = j * group + i / count;
                let at = (begin + i % count) * BM;
                let qs = load(q[b, span(at, BM), h, ..]);
                let douts = load(dout[b, span(at, BM), h, ..]);
                let row = at + ahead + iota([1, BM], 1);
                let oldest = max(row - reach + 1, load(first[b, span(at, BM)]));
                let seen = (key <= row) && (key >= oldest);
                let p = select(seen, weights(dot(ks, qs.t()), scale, load(lse[b, h, span(at, BM)])), 0.0);
                by_v += dot(p.cast::<T>(), douts);
                let ds = p * (dot(vs, douts.t()) - load(delta[b, h, span(at, BM)]));
                by_k += dot(ds.cast::<T>(), qs);
            }
            store(dk[b, n, j, ..], (by_k * scale).cast::<T>());
            store(dv[b, n, j, ..], by_v.cast::<T>());
        }
    }

    /// dpk and dpv: the queries of all sequences, and of all heads that share a head of keys.
    pub kernel attention_prefix_grad<T: Float>(
        q: &Tensor<T, [B, M, H, D]>,
        pk: &Tensor<T, [J, S, D]>,
        pv: &Tensor<T, [J, S, D]>,
        scale: f32,
        lse: &Tensor<f32, [B, H, M]>,
        delta: &Tensor<f32, [B, H, M]>,
        dout: &Tensor<T, [B, M, H, D]>,
        dpk: &mut Tensor<f32, [J, S, D]>,
        dpv: &mut Tensor<f32, [J, S, D]>,
    )
    tune { BS: [16], BM: [64, 32, 16], warps: [4], split_k: [1, 8] }
    require { H % J == 0 }
    {
        for (j, s) in grid(J, tiles(S, BS)) {
            let ks = load(pk[j, s, ..]);
            let vs = load(pv[j, s, ..]);
            let group = size(H) / size(J);
            let count = (size(M) + BM - 1) / BM;
            let mut by_k = zeros::<f32>([BS, D]);
            let mut by_v = zeros::<f32>([BS, D]);
            for i in pipeline(0..size(B) * group * count) {
                let b = i / (group * count);
                let h = j * group + i / count % group;
                let at = i % count * BM;
                let qs = load(q[b, span(at, BM), h, ..]);
                let douts = load(dout[b, span(at, BM), h, ..]);
                let p = weights(dot(ks, qs.t()), scale, load(lse[b, h, span(at, BM)]));
                by_v += dot(p.cast::<T>(), douts);
                let ds = p * (dot(vs, douts.t()) - load(delta[b, h, span(at, BM)]));
                by_k += dot(ds.cast::<T>(), qs);
            }
            store(dpk[j, s, ..], by_k * scale);
            store(dpv[j, s, ..], by_v);
        }
    }
}

/// The whole gradient: q, k, v, pk, pv, first, window, scale, o, lse, dout, dq, dk, dv, dpk, dpv. The workspace needs `B`, `H`
/// and `M`.
pub static WINDOWED_ATTENTION_GRAD: Chain = Chain::new(
    "windowed_attention_grad",
    &[&attention_query_grad, &attention_key_grad, &attention_prefix_grad],
    &["delta"],
);
