//! What the kernels of `linear_residual` compute, in f64.

/// `y[m,n] = act(sum_k x[m,k] w[n,k] + b[n]) + r[m,n]`, row-major.
pub fn reference([x, w, b, r]: [&[f64]; 4], [m, n, k]: [usize; 3], act: impl Fn(f64) -> f64) -> Vec<f64> {
    let mut y = crate::matmul::reference(x, w, [m, n, k]);
    for (row, r) in y.chunks_mut(n.max(1)).zip(r.chunks(n.max(1))) {
        row.iter_mut().zip(b).zip(r).for_each(|((z, b), r)| *z = act(*z + b) + r);
    }
    y
}
