//! Rounding to the narrow float types, each once and to nearest even.

use atlas_dsl::DType;
pub(crate) use atlas_dsl::rounding::{to_bf16, to_f16};
use half::{bf16, f16};

/// `x` as a value of `dtype` (f16, bf16 or f32), in one rounding.
pub(crate) fn to_narrow(dtype: DType, x: f64) -> f32 {
    match dtype {
        DType::F16 => to_f16(x).to_f32(),
        DType::Bf16 => to_bf16(x).to_f32(),
        _ => x as f32,
    }
}

/// Rounds f32 results to `dtype`; nothing to do unless it is f16 or bf16.
pub(crate) fn round_all(dtype: DType, xs: &mut [f32]) {
    match dtype {
        DType::F16 => xs.iter_mut().for_each(|x| *x = f16::from_f32(*x).to_f32()),
        DType::Bf16 => xs.iter_mut().for_each(|x| *x = bf16::from_f32(*x).to_f32()),
        _ => {}
    }
}

/// `x` rounded to tf32: 10 bits of mantissa, to nearest, ties away from zero.
pub(crate) fn to_tf32(x: f32) -> f32 {
    if x.is_finite() { f32::from_bits((x.to_bits() + 0x1000) & !0x1fff) } else { x }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_rounding_from_f64() {
        // Just above a bf16 tie: rounding through f32 would land on the tie and go down.
        let x = 1.0 + f64::from(2f32.powi(-8)) + 2f64.powi(-50);
        assert_eq!(to_bf16(x).to_f64(), 1.0 + 2f64.powi(-7));
        assert_eq!(to_bf16(-x).to_f64(), -1.0 - 2f64.powi(-7));
        assert_eq!(to_f16(1.0 + 2f64.powi(-11) + 2f64.powi(-40)).to_f64(), 1.0 + 2f64.powi(-10));
        assert_eq!(to_f16(1e9), f16::INFINITY);
        assert!(to_bf16(f64::NAN).is_nan());
    }

    #[test]
    fn tf32_ties_go_away_from_zero() {
        assert_eq!(to_tf32(1.0 + 2f32.powi(-11)), 1.0 + 2f32.powi(-10));
        assert_eq!(to_tf32(-1.0 - 2f32.powi(-11)), -1.0 - 2f32.powi(-10));
        assert_eq!(to_tf32(1.0 + 2f32.powi(-12)), 1.0);
        assert!(to_tf32(f32::NAN).is_nan());
    }
}
