//! What `linear_row_scale` computes, in f64.

/// `y[m,n] = s[m] sum_k x[m,k] w[n,k]`, row-major.
pub fn reference([x, w, s]: [&[f64]; 3], [m, n, k]: [usize; 3]) -> Vec<f64> {
    let mut y = crate::matmul::reference(x, w, [m, n, k]);
    y.chunks_mut(n.max(1)).zip(s).for_each(|(row, s)| row.iter_mut().for_each(|y| *y *= s));
    y
}
