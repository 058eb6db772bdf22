//! What `linear_gelu_train` computes, in f64.

/// `z[m,n] = sum_k x[m,k] w[n,k] + b[n]` and `y[m,n] = gelu(z[m,n])`, row-major.
pub fn reference([x, w, b]: [&[f64]; 3], [m, n, k]: [usize; 3]) -> Vec<Vec<f64>> {
    let mut z = crate::matmul::reference(x, w, [m, n, k]);
    for row in z.chunks_mut(n.max(1)) {
        row.iter_mut().zip(b).for_each(|(z, b)| *z += b);
    }
    let y = z.iter().map(|&z| crate::memory::gelu(z)).collect();
    vec![z, y]
}
