//! What `batched_matmul` computes, in f64.

/// `c[s,m,n] = sum_k a[s,m,k] b[s,n,k]`, row-major.
pub fn reference(a: &[f64], b: &[f64], [s, m, n, k]: [usize; 4]) -> Vec<f64> {
    let matrix = |at: usize| crate::matmul::reference(&a[at * m * k..][..m * k], &b[at * n * k..][..n * k], [m, n, k]);
    (0..s).flat_map(matrix).collect()
}
