//! What `linear_gelu` computes, in f64.

/// `y[m,n] = gelu(sum_k x[m,k] w[n,k] + b[n])`, row-major.
pub fn reference(x: &[f64], w: &[f64], b: &[f64], [m, n, k]: [usize; 3]) -> Vec<f64> {
    let mut y = crate::matmul::reference(x, w, [m, n, k]);
    for row in y.chunks_mut(n.max(1)) {
        row.iter_mut().zip(b).for_each(|(z, b)| *z = crate::memory::gelu(*z + b));
    }
    y
}
