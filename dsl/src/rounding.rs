//! Rounding of f64 to the 16-bit float types: once, to nearest, ties to even.
//!
//! The conversions of `half` from f64 go through f32 on processors that have an instruction for it, and drop the low half of
//! the number elsewhere. Both round a number just beside a tie as if it were the tie.

use half::{bf16, f16};

/// `x` rounded to odd in f32, so that a second rounding to 16 bits gives the same as one from f64.
fn to_odd(x: f64) -> f32 {
    let y = x as f32;
    let wide = f64::from(y);
    if wide == x || !y.is_finite() || y.to_bits() & 1 == 1 {
        return y;
    }
    // x lies strictly between y, which is even, and the odd neighbour on x's side.
    f32::from_bits(if wide.abs() < x.abs() { y.to_bits() + 1 } else { y.to_bits() - 1 })
}

/// f64 to f16.
pub fn to_f16(x: f64) -> f16 {
    f16::from_f32(to_odd(x))
}

/// f64 to bf16.
pub fn to_bf16(x: f64) -> bf16 {
    bf16::from_f32(to_odd(x))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tests the tie between each two neighbours, and numbers beside it by one step of f64 and by more.
    fn ties(bits: impl Fn(u16) -> f64, round: impl Fn(f64) -> u16, infinity: u16, least: f64, above: f64) {
        for low in 0..infinity {
            let high = low + 1;
            let (a, b) = (bits(low), if high == infinity { above } else { bits(high) });
            let tie = (a + b) / 2.0;
            let even = if low & 1 == 0 { low } else { high };
            let step = tie.max(least) * f64::EPSILON;
            for sign in [0, 1 << 15] {
                let rounded = |x: f64| round(if sign == 0 { x } else { -x });
                assert_eq!(rounded(a), low | sign);
                assert_eq!(rounded(tie), even | sign, "the tie {tie:e}");
                for beside in [step, 1e3 * step, 1e6 * step, (b - a) / 4.0] {
                    assert_eq!(rounded(tie - beside), low | sign, "{beside:e} below the tie {tie:e}");
                    assert_eq!(rounded(tie + beside), high | sign, "{beside:e} above the tie {tie:e}");
                }
            }
        }
    }

    #[test]
    fn every_tie_and_its_neighbours_round_once() {
        let f16s = |bits| f16::from_bits(bits).to_f64();
        ties(f16s, |x| to_f16(x).to_bits(), f16::INFINITY.to_bits(), 2f64.powi(-30), 65536.0);
        let bf16s = |bits| bf16::from_bits(bits).to_f64();
        ties(bf16s, |x| to_bf16(x).to_bits(), bf16::INFINITY.to_bits(), 2f64.powi(-140), 2f64.powi(128));
    }

    #[test]
    fn what_is_no_finite_number_stays_so() {
        assert_eq!((to_f16(1e9), to_f16(-1e9), to_bf16(1e39)), (f16::INFINITY, f16::NEG_INFINITY, bf16::INFINITY));
        assert!(to_f16(f64::NAN).is_nan() && to_bf16(f64::NAN).is_nan());
        assert_eq!((to_f16(-0.0).to_bits(), to_bf16(-1e-300).to_bits()), (0x8000, 0x8000));
    }
}
