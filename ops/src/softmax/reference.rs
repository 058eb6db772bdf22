//! What `softmax` computes, in f64.

/// `y[n,i] = exp(x[n,i] - m) / sum_j exp(x[n,j] - m)` with `m` the row's maximum.
pub fn reference(x: &[f64], d: usize) -> Vec<f64> {
    x.chunks(d.max(1))
        .flat_map(|row| {
            let max = row.iter().fold(f64::NEG_INFINITY, |m, &v| if m.is_nan() || v <= m { m } else { v });
            let sum: f64 = row.iter().map(|v| (v - max).exp()).sum();
            row.iter().map(move |v| (v - max).exp() / sum)
        })
        .collect()
}
