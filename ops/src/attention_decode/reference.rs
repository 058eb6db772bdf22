//! What `attention_decode` computes, in f64.

use crate::online_softmax::in_f64;
use crate::problem::{Inputs, Problem};
use rayon::prelude::*;

/// Sizes of a problem.
#[derive(Clone, Copy, Debug)]
pub struct DecodeSizes {
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

/// What each part gives, `[S, J, X, R, D]`, its sums `[S, J, X, R]`, and the maxima of its logits, which are of base two.
pub fn parts([q, k, v]: [&[f64]; 3], tokens: &[f64], scale: f64, z: DecodeSizes) -> [Vec<f64>; 3] {
    let each = z.w.div_ceil(z.x);
    let z_scale = scale * std::f64::consts::LOG2_E;
    let row = |at: usize| {
        let (r, x, j, s) = (at % z.r, at / z.r % z.x, at / z.r / z.x % z.j, at / z.r / z.x / z.j);
        let filled = (tokens[s] as usize).min(z.w);
        let q = &q[((s * z.j + j) * z.r + r) * z.d..][..z.d];
        let slots = x * each..((x + 1) * each).min(filled);
        let of = |slot: usize| ((s * z.w + slot) * z.j + j) * z.d;
        let score = |slot: usize| z_scale * k[of(slot)..][..z.d].iter().zip(q).map(|(k, q)| k * q).sum::<f64>();
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
pub fn join([part, totals, tops]: [&[f64]; 3], z: DecodeSizes) -> [Vec<f64>; 2] {
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
pub(crate) fn checked(p: &Problem, inputs: &Inputs) -> Vec<Vec<f64>> {
    let [s, j, r, d, w, x] = ["S", "J", "R", "D", "W", "X"].map(|dim| p.dim(dim));
    let z = DecodeSizes { s, j, r, d, w, x };
    let names = if p.kernel.name == "decode_parts" { ["q", "k", "v"] } else { ["part", "totals", "tops"] };
    let tensors = names.map(|name| inputs.get(name));
    let tensors = tensors.each_ref().map(Vec::as_slice);
    match p.kernel.name {
        "decode_parts" => parts(tensors, &inputs.get("tokens"), f64::from(p.scalar("scale")), z).into(),
        _ => join(tensors, z).into(),
    }
}
