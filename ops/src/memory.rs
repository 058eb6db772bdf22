//! What the memories of all ops have in common, in f64: the activation and its slope.

/// `z Phi(z)`, of the standard normal distribution.
pub fn gelu(z: f64) -> f64 {
    0.5 * z * (1.0 + libm::erf(z * std::f64::consts::FRAC_1_SQRT_2))
}

/// `Phi(z) + z phi(z)`.
pub fn gelu_slope(z: f64) -> f64 {
    let density = (-0.5 * z * z).exp() / std::f64::consts::TAU.sqrt();
    0.5 * (1.0 + libm::erf(z * std::f64::consts::FRAC_1_SQRT_2)) + z * density
}
