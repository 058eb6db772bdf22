//! What `rotary` computes, in f64.

use rayon::prelude::*;

/// As the head says, for two halves.
pub fn reference(x: &[f64], c: &[f64], s: &[f64], [h, d]: [usize; 2]) -> Vec<f64> {
    let mut y = vec![0.0; x.len()];
    y.par_chunks_mut((2 * d).max(1)).zip(x.par_chunks((2 * d).max(1))).enumerate().for_each(|(i, (y, x))| {
        let n = i / h;
        for j in 0..d {
            let (c, s) = (c[n * d + j], s[n * d + j]);
            y[j] = x[j] * c - x[d + j] * s;
            y[d + j] = x[d + j] * c + x[j] * s;
        }
    });
    y
}
