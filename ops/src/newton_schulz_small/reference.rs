//! What `newton_schulz_small` computes, in f64.

use super::{CLASSIC, COUNT, EPS};
use rayon::prelude::*;

/// The same polynomial in f64, matrix by matrix, row-major.
pub fn reference(g: &[f64], [m, n]: [usize; 2]) -> Vec<f64> {
    let mut y = g.to_vec();
    if m * n > 0 {
        y.par_chunks_mut(m * n).for_each(|x| orthogonalise(x, m, n));
    }
    y
}

fn orthogonalise(x: &mut [f64], m: usize, n: usize) {
    let norm = x.iter().map(|v| v * v).sum::<f64>().sqrt();
    x.iter_mut().for_each(|v| *v /= norm + f64::from(EPS));
    let [a, b, c] = CLASSIC;
    for _ in 0..COUNT {
        let gram = product(x, &transposed(x, m, n), [m, n, m]);
        let square = product(&gram, &gram, [m, m, m]);
        let poly: Vec<f64> = gram.iter().zip(&square).map(|(g, s)| b * g + c * s).collect();
        let px = product(&poly, x, [m, m, n]);
        x.iter_mut().zip(&px).for_each(|(x, p)| *x = a * *x + p);
    }
}

fn transposed(x: &[f64], m: usize, n: usize) -> Vec<f64> {
    (0..m * n).map(|i| x[(i % m) * n + i / m]).collect()
}

fn product(a: &[f64], b: &[f64], [m, k, n]: [usize; 3]) -> Vec<f64> {
    let mut c = vec![0.0; m * n];
    // Rows are slices, because an index into a matrix is checked each time, and tests solve many such problems.
    for (scales, sums) in a.chunks_exact(k).zip(c.chunks_exact_mut(n)) {
        for (scale, row) in scales.iter().zip(b.chunks_exact(n)) {
            sums.iter_mut().zip(row).for_each(|(sum, x)| *sum += scale * x);
        }
    }
    c
}
