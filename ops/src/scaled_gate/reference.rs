//! What `scaled_gate` computes, in f64.

/// Gates of rows as long as `bias` is.
pub fn reference(z: &[f64], bias: &[f64], scale: f64) -> Vec<f64> {
    z.iter().zip(bias.iter().cycle()).map(|(z, b)| scale / (1.0 + (-z - b).exp())).collect()
}

/// Their gradient by `z`. The slope of the sigmoid is written as `1 / (e^(x/2) + e^(-x/2))^2`.
pub fn gradient([z, bias, dy]: [&[f64]; 3], scale: f64) -> Vec<f64> {
    let slope = |x: f64| (2.0 * (x / 2.0).cosh()).powi(-2);
    dy.iter().zip(z).zip(bias.iter().cycle()).map(|((dy, z), b)| scale * dy * slope(z + b)).collect()
}
