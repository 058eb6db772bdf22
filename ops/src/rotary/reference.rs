//! What the kernels of `rotary` compute, in f64.

use rayon::prelude::*;

/// Pairs of elements that are `D` apart; for `h` heads of `2 d` elements.
pub fn halves(x: &[f64], c: &[f64], s: &[f64], [h, d]: [usize; 2]) -> Vec<f64> {
    turned(x, c, s, [h, d], |j| [j, d + j])
}

/// Pairs of neighbours; for `h` heads of `2 d` elements.
pub fn interleaved(x: &[f64], c: &[f64], s: &[f64], [h, d]: [usize; 2]) -> Vec<f64> {
    turned(x, c, s, [h, d], |j| [2 * j, 2 * j + 1])
}

/// Each pair, times its number of the unit circle; `pair` says where pair `j` of a head stands.
fn turned(x: &[f64], c: &[f64], s: &[f64], [h, d]: [usize; 2], pair: impl Fn(usize) -> [usize; 2] + Sync) -> Vec<f64> {
    let mut y = vec![0.0; x.len()];
    let heads = x.par_chunks((2 * d).max(1));
    y.par_chunks_mut((2 * d).max(1)).zip(heads).enumerate().for_each(|(i, (y, x))| {
        for j in 0..d {
            let (c, s) = (c[i / h * d + j], s[i / h * d + j]);
            let [a, b] = pair(j);
            y[a] = x[a] * c - x[b] * s;
            y[b] = x[b] * c + x[a] * s;
        }
    });
    y
}
