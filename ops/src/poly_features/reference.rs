//! What `poly_features` computes, in f64.

/// `sum_j a[j] x^(j+1)`, term by term.
pub fn reference(x: &[f64], a: &[f64]) -> Vec<f64> {
    x.iter().map(|x| a.iter().enumerate().map(|(j, a)| a * x.powi(j as i32 + 1)).sum()).collect()
}
