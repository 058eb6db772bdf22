//! What `windowed_attention` computes, in f64.

use crate::online_softmax::in_f64;
use crate::problem::{Inputs, Problem};
use rayon::prelude::*;

/// Sizes of a problem.
#[derive(Clone, Copy, Debug)]
pub struct WindowedAttentionSizes {
    /// Sequences.
    pub b: usize,
    /// Queries of each.
    pub m: usize,
    /// Keys of each.
    pub n: usize,
    /// Heads of queries.
    pub h: usize,
    /// Heads of keys.
    pub j: usize,
    /// Elements of a head.
    pub d: usize,
    /// Prefix keys.
    pub s: usize,
}

/// What each query sees, the softmax of `scale q kᵀ` over it, and its log-sum-exp.
pub fn reference(
    [q, k, v, pk, pv]: [&[f64]; 5],
    first: &[f64],
    window: i64,
    scale: f64,
    s: WindowedAttentionSizes,
) -> [Vec<f64>; 2] {
    let row = |at: usize| {
        let (i, h, b) = (at % s.m, at / s.m % s.h, at / s.m / s.h);
        let j = h / (s.h / s.j);
        let q = &q[((b * s.m + i) * s.h + h) * s.d..][..s.d];
        let here = (i + s.n) as i64 - s.m as i64;
        let oldest = (here - window.max(0) + 1).max(first[b * s.m + i] as i64).max(0);
        let of_window = (oldest..=here).map(|n| ((b * s.n + n as usize) * s.j + j) * s.d);
        let of_window = of_window.map(|at| (&k[at..][..s.d], &v[at..][..s.d]));
        let of_prefix = (0..s.s).map(|p| (j * s.s + p) * s.d).map(|at| (&pk[at..][..s.d], &pv[at..][..s.d]));
        let seen: Vec<(&[f64], &[f64])> = of_prefix.chain(of_window).collect();
        let scores: Vec<f64> =
            seen.iter().map(|(k, _)| scale * k.iter().zip(q).map(|(k, q)| k * q).sum::<f64>()).collect();
        (in_f64::attended(&scores, seen.iter().map(|(_, v)| *v), s.d), in_f64::log_sum_exp(&scores))
    };
    let rows: Vec<(Vec<f64>, f64)> = (0..s.b * s.h * s.m).into_par_iter().map(row).collect();
    let mut o = vec![0.0; s.b * s.m * s.h * s.d];
    for (at, (of_row, _)) in rows.iter().enumerate() {
        let (i, h, b) = (at % s.m, at / s.m % s.h, at / s.m / s.h);
        o[((b * s.m + i) * s.h + h) * s.d..][..s.d].copy_from_slice(of_row);
    }
    [o, rows.into_iter().map(|r| r.1).collect()]
}

/// The reference of a problem.
pub(crate) fn checked(p: &Problem, inputs: &Inputs) -> Vec<Vec<f64>> {
    let s = WindowedAttentionSizes {
        b: p.dim("B"),
        m: p.dim("M"),
        n: p.dim("N"),
        h: p.dim("H"),
        j: p.dim("J"),
        d: p.dim("D"),
        s: p.dim("S"),
    };
    let tensors = ["q", "k", "v", "pk", "pv"].map(|name| inputs.get(name));
    let (window, scale) = (p.scalar("window") as i64, f64::from(p.scalar("scale")));
    reference(tensors.each_ref().map(Vec::as_slice), &inputs.get("first"), window, scale, s).into()
}
