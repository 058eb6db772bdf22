//! What `rbf_features` computes, in f64.

use rayon::prelude::*;

/// As the head says, by differences.
pub fn reference(x: &[f64], c: &[f64], g: &[f64], d: usize) -> Vec<f64> {
    let one = |x: &[f64], c: &[f64]| x.iter().zip(c).map(|(x, c)| (x - c) * (x - c)).sum::<f64>();
    let row = |x: &[f64]| c.chunks(d.max(1)).zip(g).map(|(c, g)| (-g * one(x, c)).exp()).collect::<Vec<f64>>();
    x.par_chunks(d.max(1)).flat_map_iter(row).collect()
}
