//! Errors in units of the last place.

/// The distance in units of the last place of f32 at `want`; infinite if only one is NaN or infinite
/// where overflow does not explain it.
pub(crate) fn ulps(got: f32, want: f64) -> f64 {
    if want.is_nan() || got.is_nan() {
        return if want.is_nan() && got.is_nan() { 0.0 } else { f64::INFINITY };
    }
    if want.is_infinite() {
        return if f64::from(got) == want { 0.0 } else { f64::INFINITY };
    }
    // Overflow counts as 2^128.
    let end = 128f64.exp2();
    let (got, want) = (f64::from(got).clamp(-end, end), want.clamp(-end, end));
    let exponent = ((want.abs().to_bits() >> 52) as i32 - 1023).clamp(-126, 127);
    (got - want).abs() / f64::from(exponent - 23).exp2()
}
