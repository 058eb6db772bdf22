//! What `rms_norm` computes, in f64.

/// `y[n,i] = x[n,i] / sqrt(sum_j x[n,j]^2 / d + eps) * w[i]`.
pub fn reference(x: &[f64], w: &[f64], eps: f64) -> Vec<f64> {
    let d = w.len().max(1);
    x.chunks(d)
        .flat_map(|row| {
            let mean = row.iter().map(|v| v * v).sum::<f64>() / d as f64;
            let root = (mean + eps).sqrt();
            row.iter().zip(w).map(move |(v, w)| v / root * w)
        })
        .collect()
}
