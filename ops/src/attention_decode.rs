//! Attention of one new token over a cache of the last `W` keys, the keys of each sequence cut into `X` parts.
//!
//! A cache is a ring: the key of token `t` lies in slot `t mod W`. Softmax knows no order, so the slots are read as they lie,
//! and only those that a token has filled count: `min(tokens, W)`. The queries of the `R` heads that share a head of keys are
//! one tile. Each part leaves its own maximum, sum and result in f32 (flash decoding); a second kernel joins them. `scale`, any
//! finite number, is `log2(e)` times the usual one. A sequence of no tokens, or of fewer than none, gives 0 and a log-sum-exp of
//! -infinity, and so does a query whose logits are all -infinity: see [`online_softmax`](crate::online_softmax), also for how
//! large logits and values may be.
//!
//! Bytes: `2 s S W J D` for elements of `s` bytes, of the slots that are filled.

#[cfg(feature = "verify")]
use crate::online_softmax::in_f64;
use crate::online_softmax::online_softmax_kernel;
#[cfg(feature = "verify")]
use crate::problem::{Inputs, Problem};
use atlas_runtime::Chain;
#[cfg(feature = "verify")]
use rayon::prelude::*;

online_softmax_kernel! {
    /// Softmax over a part of each sequence's keys: what it gives, the sum of its exponentials, and their maximum.
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
                let z = dot(qs, load(k[s, span(first + n * BN, BN), j, ..]).t()) * scale;
                (top, total, acc) = attend(z, load(v[s, span(first + n * BN, BN), j, ..]), top, total, acc);
            }
            // The last tile may reach past the part, to slots that nothing has filled, which may hold anything.
            for n in whole..(max(end - first, 0) + BN - 1) / BN {
                let at = first + n * BN;
                let z = dot(qs, load(k[s, span(at, BN), j, ..]).t()) * scale;
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
    Chain { name: "attention_decode", kernels: &[&decode_parts, &decode_join], workspace: &["part", "totals", "tops"] };

/// Sizes of a problem.
#[cfg(feature = "verify")]
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// Sequences.
    pub s: usize,
    /// Heads of keys.
    pub j: usize,
    /// Queries of each.
    pub r: usize,
    /// Elements of a head.
    pub d: usize,
    /// Slots.
    pub w: usize,
    /// Parts.
    pub x: usize,
}

/// What each part gives, `[S, J, X, R, D]`, and its sums and maxima, `[S, J, X, R]`; `scale` as the kernel takes it.
#[cfg(feature = "verify")]
pub fn parts([q, k, v]: [&[f64]; 3], tokens: &[f64], scale: f64, z: Sizes) -> [Vec<f64>; 3] {
    let each = z.w.div_ceil(z.x);
    let row = |at: usize| {
        let (r, x, j, s) = (at % z.r, at / z.r % z.x, at / z.r / z.x % z.j, at / z.r / z.x / z.j);
        let filled = (tokens[s] as usize).min(z.w);
        let q = &q[((s * z.j + j) * z.r + r) * z.d..][..z.d];
        let slots = x * each..((x + 1) * each).min(filled);
        let of = |slot: usize| ((s * z.w + slot) * z.j + j) * z.d;
        let score = |slot: usize| scale * k[of(slot)..][..z.d].iter().zip(q).map(|(k, q)| k * q).sum::<f64>();
        let scores: Vec<f64> = slots.clone().map(score).collect();
        let top = in_f64::greatest(&scores);
        let base = in_f64::base(top);
        let mut out = vec![0.0; z.d];
        for (slot, score) in slots.zip(&scores) {
            out.iter_mut().zip(&v[of(slot)..][..z.d]).for_each(|(o, v)| *o += (score - base).exp2() * v);
        }
        (out, scores.iter().map(|s| (s - base).exp2()).sum::<f64>(), top)
    };
    let rows: Vec<(Vec<f64>, f64, f64)> = (0..z.s * z.j * z.x * z.r).into_par_iter().map(row).collect();
    let total = rows.iter().map(|r| r.1).collect();
    let top = rows.iter().map(|r| r.2).collect();
    [rows.into_iter().flat_map(|r| r.0).collect(), total, top]
}

/// What the parts give together, `[S, J, R, D]`, and its natural log-sum-exp, `[S, J, R]`.
#[cfg(feature = "verify")]
pub fn join([part, totals, tops]: [&[f64]; 3], z: Sizes) -> [Vec<f64>; 2] {
    let (mut o, mut lse) = (Vec::new(), Vec::new());
    for at in 0..z.s * z.j * z.r {
        let (r, sj) = (at % z.r, at / z.r);
        let rows: Vec<usize> = (0..z.x).map(|x| (sj * z.x + x) * z.r + r).collect();
        let top = in_f64::greatest(&rows.iter().map(|&i| tops[i]).collect::<Vec<f64>>());
        let base = in_f64::base(top);
        let total: f64 = rows.iter().map(|&i| (tops[i] - base).exp2() * totals[i]).sum();
        for d in 0..z.d {
            let sum: f64 = rows.iter().map(|&i| (tops[i] - base).exp2() * part[i * z.d + d]).sum();
            o.push(if total == 0.0 { 0.0 } else { sum / total });
        }
        lse.push(if top == f64::INFINITY { top } else { (top + total.log2()) / std::f64::consts::LOG2_E });
    }
    [o, lse]
}

/// The reference of a problem of one of the kernels.
#[cfg(feature = "verify")]
pub(crate) fn checked(p: &Problem, inputs: &Inputs) -> Vec<Vec<f64>> {
    let [s, j, r, d, w, x] = ["S", "J", "R", "D", "W", "X"].map(|dim| p.dim(dim));
    let z = Sizes { s, j, r, d, w, x };
    let names = if p.kernel.name == "decode_parts" { ["q", "k", "v"] } else { ["part", "totals", "tops"] };
    let tensors = names.map(|name| inputs.get(name));
    let tensors = tensors.each_ref().map(Vec::as_slice);
    match p.kernel.name {
        "decode_parts" => parts(tensors, &inputs.get("tokens"), f64::from(p.scalar("scale")), z).into(),
        _ => join(tensors, z).into(),
    }
}
