//! What `block_attention` computes, in f64.

use super::BLOCK;
use crate::online_softmax::in_f64;
use crate::problem::{Inputs, Problem};
use rayon::prelude::*;

/// Softmax over the keys of the listed blocks, row by row.
pub(crate) fn checked(p: &Problem, i: &Inputs) -> Vec<Vec<f64>> {
    let [b, m, h, d, n, j] = ["B", "M", "H", "D", "N", "J"].map(|dim| p.dim(dim));
    let [blocks, most] = ["P", "K"].map(|dim| p.dim(dim));
    let (q, k, v) = (i.get("q"), i.get("k"), i.get("v"));
    let (listed, counts) = (i.get("blocks"), i.get("counts"));
    let scale = f64::from(p.scalar("scale"));
    let row = |at: usize| {
        let (t, head, sequence) = (at % m, at / m % h, at / m / h);
        let list = head * blocks + t / BLOCK;
        let place = (t + n) as i64 - m as i64;
        let mut seen = Vec::new();
        for block in &listed[list * most..][..(counts[list].max(0.0) as usize).min(most)] {
            let first = *block as i64 * BLOCK as i64;
            let inside = |key: &i64| *key >= 0 && *key < n as i64 && (p.scalar("causal") < 1.0 || *key <= place);
            seen.extend((first..first + BLOCK as i64).filter(inside));
        }
        let q = &q[((sequence * m + t) * h + head) * d..][..d];
        let of = |key: i64| ((sequence * n + key as usize) * j + head / (h / j)) * d;
        let score = |&key: &i64| scale * k[of(key)..][..d].iter().zip(q).map(|(a, b)| a * b).sum::<f64>();
        let scores: Vec<f64> = seen.iter().map(score).collect();
        let values = seen.iter().map(|&key| &v[of(key)..][..d]);
        (in_f64::attended(&scores, values, d), in_f64::log_sum_exp(&scores))
    };
    let rows: Vec<(Vec<f64>, f64)> = (0..b * h * m).into_par_iter().map(row).collect();
    let mut o = vec![0.0; b * m * h * d];
    for (at, (of_row, _)) in rows.iter().enumerate() {
        let (t, head, sequence) = (at % m, at / m % h, at / m / h);
        o[((sequence * m + t) * h + head) * d..][..d].copy_from_slice(of_row);
    }
    vec![o, rows.into_iter().map(|r| r.1).collect()]
}
