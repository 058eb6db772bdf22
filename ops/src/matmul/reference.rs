//! What `matmul` computes, in f64.

use rayon::prelude::*;

/// `c[m,n] = sum_k a[m,k] b[n,k]`, row-major.
pub fn reference(a: &[f64], b: &[f64], [m, n, k]: [usize; 3]) -> Vec<f64> {
    if k == 0 {
        return vec![0.0; m * n];
    }
    let row = |a: &[f64]| b.chunks(k).map(|b| a.iter().zip(b).map(|(x, y)| x * y).sum()).collect::<Vec<f64>>();
    a.par_chunks(k).flat_map_iter(row).collect()
}
