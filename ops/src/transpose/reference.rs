//! What `transpose` computes, in f64.

/// What `swap_axes` makes of `[A, B, C, D]`.
pub fn swapped(x: &[f64], [b, c, d]: [usize; 3]) -> Vec<f64> {
    let of = |part: &[f64]| {
        (0..c)
            .flat_map(|j| (0..b).flat_map(move |i| (0..d).map(move |k| (i * c + j) * d + k)))
            .map(|at| part[at])
            .collect()
    };
    x.chunks((b * c * d).max(1)).flat_map(|part| -> Vec<f64> { of(part) }).collect()
}

/// As the head says.
pub fn reference(x: &[f64], [n, m]: [usize; 2]) -> Vec<f64> {
    (0..m).flat_map(|j| (0..n).map(move |i| x[i * m + j])).collect()
}
