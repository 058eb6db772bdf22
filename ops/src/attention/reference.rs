//! What `attention` computes, in f64.

use crate::online_softmax::in_f64;
use rayon::prelude::*;

/// `softmax(scale q kᵀ) v`, row by row.
pub fn reference(q: &[f64], k: &[f64], v: &[f64], scale: f64, [m, n, d]: [usize; 3]) -> Vec<f64> {
    let row = |(i, q): (usize, &[f64])| {
        let head = i / m * n * d;
        let (k, v) = (&k[head..][..n * d], &v[head..][..n * d]);
        let z: Vec<f64> = k.chunks(d).map(|k| scale * q.iter().zip(k).map(|(x, y)| x * y).sum::<f64>()).collect();
        in_f64::attended(&z, v.chunks(d), d)
    };
    q.par_chunks(d.max(1)).enumerate().flat_map_iter(row).collect()
}
