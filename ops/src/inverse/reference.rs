//! What `inverse` computes, in f64.

use rayon::prelude::*;

/// The inverse by elimination with pivots, and the status.
pub fn reference(a: &[f64], n: usize, damping: f64) -> [Vec<f64>; 2] {
    let of = |a: &[f64]| {
        let mut m: Vec<Vec<f64>> = a.chunks(n).map(<[f64]>::to_vec).collect();
        for (i, row) in m.iter_mut().enumerate() {
            row[i] += damping;
            row.extend((0..n).map(|j| f64::from(u8::from(i == j))));
        }
        let top = m.iter().flat_map(|row| &row[..n]).fold(0.0_f64, |top, v| top.max(v.abs()));
        for i in 0..n {
            let pivot = (i..n).max_by(|&p, &q| m[p][i].abs().total_cmp(&m[q][i].abs())).unwrap_or(i);
            if m[pivot][i].abs() <= 1e-9 * top || m[pivot][i].is_nan() {
                return (vec![f64::NAN; n * n], 1.0);
            }
            m.swap(i, pivot);
            let unit = m[i][i];
            m[i].iter_mut().for_each(|v| *v /= unit);
            let row = m[i].clone();
            for (_, other) in m.iter_mut().enumerate().filter(|(j, _)| *j != i) {
                let factor = other[i];
                other.iter_mut().zip(&row).for_each(|(v, r)| *v -= factor * r);
            }
        }
        (m.iter().flat_map(|row| row[n..].to_vec()).collect(), 0.0)
    };
    let all: Vec<(Vec<f64>, f64)> = a.par_chunks((n * n).max(1)).map(of).collect();
    [all.iter().flat_map(|x| x.0.clone()).collect(), all.iter().map(|x| x.1).collect()]
}
