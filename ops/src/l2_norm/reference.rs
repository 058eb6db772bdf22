//! What `l2_norm` computes, in f64.

/// `y[n,i] = x[n,i] / sqrt(sum_j x[n,j]^2 + eps)`, of rows of `d` elements.
pub fn reference(x: &[f64], d: usize, eps: f64) -> Vec<f64> {
    let row = |row: &[f64]| {
        let root = (row.iter().map(|v| v * v).sum::<f64>() + eps).sqrt();
        row.iter().map(|v| v / root).collect::<Vec<f64>>()
    };
    x.chunks(d.max(1)).flat_map(row).collect()
}
