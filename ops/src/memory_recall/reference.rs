//! What `memory_recall` computes, in f64: number by number, from the formulas at the head of the op.

use crate::memory::gelu;
use crate::problem::{Inputs, Problem};
use rayon::prelude::*;

/// The product of a matrix, row by row, and a vector.
fn times(w: &[f64], x: &[f64]) -> Vec<f64> {
    if x.is_empty() {
        return vec![];
    }
    w.chunks(x.len()).map(|w| w.iter().zip(x).map(|(w, x)| w * x).sum()).collect()
}

/// The reference of a problem.
pub(crate) fn checked(p: &Problem, i: &Inputs) -> Vec<Vec<f64>> {
    let [n, h, d, e] = ["N", "H", "D", "E"].map(|dim| p.dim(dim));
    let name = p.kernel.name.trim_end_matches("_wide");
    let is_linear = name == "memory_recall_linear";
    let m = if is_linear { 0 } else { p.dim("M") };
    let [x, r, w, w1, w2, w3, norm] = ["x", "r", "w", "w1", "w2", "w3", "norm"].map(|name| i.get(name));
    let part = |w: &[f64], of: usize, len: usize| w.get(of * len..(of + 1) * len).unwrap_or_default().to_vec();
    let row = |at: usize| {
        let (head, memory) = (at % h, at / (n * h) * h + at % h);
        let (x, r) = (&x[at * d..][..d], &r[at * e..][..e]);
        let mut read = if is_linear {
            times(&part(&w, memory, e * d), x)
        } else {
            let mut hidden: Vec<f64> = times(&part(&w2, memory, m * d), x).into_iter().map(gelu).collect();
            if name == "memory_recall_gated" {
                hidden.iter_mut().zip(times(&part(&w3, memory, m * d), x)).for_each(|(a, u)| *a *= u);
            }
            times(&part(&w1, memory, e * m), &hidden)
        };
        if name == "memory_recall_normed" {
            let mean = read.iter().sum::<f64>() / e as f64;
            let variance = read.iter().map(|y| (y - mean).powi(2)).sum::<f64>() / e as f64;
            let deviation = (variance + f64::from(p.scalar("eps"))).sqrt();
            let scaled = read.iter().zip(part(&norm, head, e)).map(|(y, w)| (y - mean) / deviation * w);
            read = scaled.collect();
        }
        read.iter().zip(r).map(|(y, r)| y + r).collect::<Vec<f64>>()
    };
    vec![(0..p.dim("B") * n * h).into_par_iter().flat_map_iter(row).collect()]
}
