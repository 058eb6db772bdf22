//! What `taylor_features` computes, in f64.

/// The features of rows of `d` numbers.
pub fn reference(x: &[f64], d: usize) -> Vec<f64> {
    let of = |row: &[f64]| {
        let products = row.iter().flat_map(|a| row.iter().map(move |b| a * b * std::f64::consts::FRAC_1_SQRT_2));
        std::iter::once(1.0).chain(row.iter().copied()).chain(products).collect::<Vec<f64>>()
    };
    x.chunks(d.max(1)).flat_map(of).collect()
}
