//! What `linear_square_sums` computes, in f64.

/// `y[m,j,c] = sum_k x[m,k] w[j,c,k]` and `q[m,j] = sum_c y[m,j,c]^2`, row-major.
pub fn reference([x, w]: [&[f64]; 2], [m, j, c, k]: [usize; 4]) -> Vec<Vec<f64>> {
    let y = crate::matmul::reference(x, w, [m, j * c, k]);
    let q = y.chunks(c.max(1)).map(|head| head.iter().map(|y| y * y).sum());
    let q = if c == 0 { vec![0.0; m * j] } else { q.collect() };
    vec![y, q]
}
