//! What `matmul_add` computes, in f64.

/// `d[m,n] = alpha sum_k a[m,k] b[n,k] + beta c[m,n]`, row-major; without `c` if `beta` is 0.
pub fn reference([a, b, c]: [&[f64]; 3], [alpha, beta]: [f64; 2], [m, n, k]: [usize; 3]) -> Vec<f64> {
    let mut d = crate::matmul::reference(a, b, [m, n, k]);
    for (d, c) in d.iter_mut().zip(c) {
        *d = alpha * *d + if beta == 0.0 { 0.0 } else { beta * c };
    }
    d
}
