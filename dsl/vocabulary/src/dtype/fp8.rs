//! The floats of 8 bits: their numbers by their codes, and the one conversion to them.
//!
//! Every device converts as this does: to the nearest number, ties to even, in one rounding; what is too large, and infinity, to
//! the largest number of its sign; and each NaN to the code 0x7f.

use crate::DType;

/// Where the parts of a code are. A code has its sign in bit 7.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fp8 {
    /// Bits of the fraction.
    pub fraction: u32,
    /// What is subtracted from the exponent.
    pub bias: i32,
    /// The code of the largest finite number. What follows it, without the sign, is infinity where the type has it, and NaN.
    pub largest: u8,
}

/// The code that a conversion gives for a NaN.
const NAN: u8 = 0x7f;

impl DType {
    /// The parts of a code; `None` for other types.
    pub const fn fp8(self) -> Option<Fp8> {
        match self {
            DType::F8E4M3 => Some(Fp8 { fraction: 3, bias: 7, largest: 0x7e }),
            DType::F8E5M2 => Some(Fp8 { fraction: 2, bias: 15, largest: 0x7b }),
            _ => None,
        }
    }
}

impl Fp8 {
    /// The exponent of two of the distance between the least numbers.
    pub const fn least_step(self) -> i32 {
        1 - self.bias - self.fraction as i32
    }

    /// The number of a code.
    pub fn decode(self, code: u8) -> f64 {
        let magnitude = code & 0x7f;
        let size = if magnitude <= self.largest {
            let (exponent, low) = (i32::from(magnitude >> self.fraction), magnitude & ((1 << self.fraction) - 1));
            let whole = if exponent == 0 { low } else { low | 1 << self.fraction };
            f64::from(whole) * power_of_two(exponent.max(1) - 1 + self.least_step())
        } else if self.largest == 0x7b && magnitude == 0x7c {
            f64::INFINITY
        } else {
            f64::NAN
        };
        if code & 0x80 == 0 { size } else { -size }
    }

    /// The code of the nearest number.
    pub fn encode(self, x: f64) -> u8 {
        if x.is_nan() {
            return NAN;
        }
        let sign = if x.is_sign_negative() { 0x80 } else { 0 };
        let size = x.abs();
        let least = 1 - self.bias;
        // What is far below the least number has its exponent too, and rounds to 0.
        let exponent = ((size.to_bits() >> 52) as i32 - 1023).max(least);
        if exponent > self.bias + 1 {
            return sign | self.largest;
        }
        let steps = (size / power_of_two(exponent - self.fraction as i32)).round_ties_even();
        let code = steps as i32 + ((exponent - least) << self.fraction);
        sign | code.min(i32::from(self.largest)) as u8
    }

    /// The nearest number.
    pub fn round(self, x: f64) -> f64 {
        self.decode(self.encode(x))
    }
}

/// 2 to a power that is a normal number.
fn power_of_two(exponent: i32) -> f64 {
    f64::from_bits(((exponent + 1023) as u64) << 52)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn types() -> [Fp8; 2] {
        [DType::F8E4M3, DType::F8E5M2].map(|d| d.fp8().expect("a float of 8 bits"))
    }

    #[test]
    fn numbers_of_codes() {
        let [e4m3, e5m2] = types();
        let of = |f: Fp8, codes: [u8; 7]| codes.map(|c| f.decode(c));
        assert_eq!(
            of(e4m3, [0, 0x01, 0x07, 0x08, 0x38, 0x7e, 0xb9]),
            [0.0, 2f64.powi(-9), 7.0 / 512.0, 2f64.powi(-6), 1.0, 448.0, -1.125]
        );
        assert_eq!(
            of(e5m2, [0, 0x01, 0x03, 0x04, 0x3c, 0x7b, 0xfc]),
            [0.0, 2f64.powi(-16), 3.0 / 65536.0, 2f64.powi(-14), 1.0, 57344.0, f64::NEG_INFINITY]
        );
        assert!(e4m3.decode(0x7f).is_nan() && e4m3.decode(0xff).is_nan());
        assert!([0x7d, 0x7e, 0x7f, 0xfd].iter().all(|&c| e5m2.decode(c).is_nan()));
        assert!(e4m3.decode(0x80).is_sign_negative() && e4m3.decode(0x80) == 0.0);
    }

    #[test]
    fn every_number_is_its_code() {
        for f in types() {
            for code in 0..=255 {
                let x = f.decode(code);
                let expected = match x {
                    x if x.is_nan() => NAN,
                    x if x.is_infinite() => code & 0x80 | f.largest,
                    _ => code,
                };
                assert_eq!(f.encode(x), expected, "{f:?} {code:#x} {x}");
            }
        }
    }

    #[test]
    fn every_tie_and_its_neighbours() {
        for f in types() {
            for low in 0..f.largest {
                let (a, b) = (f.decode(low), f.decode(low + 1));
                let tie = (a + b) / 2.0;
                let even = low + (low & 1);
                let (below, above) = (f64::from_bits(tie.to_bits() - 1), f64::from_bits(tie.to_bits() + 1));
                assert_eq!([below, tie, above].map(|x| f.encode(x)), [low, even, low + 1], "{f:?} {tie}");
                assert_eq!([below, tie, above].map(|x| f.encode(-x) & 0x7f), [low, even, low + 1], "{f:?} -{tie}");
            }
            let extremes = [1e300, f64::INFINITY, 5e-324, -0.0, f64::NEG_INFINITY, f64::MIN_POSITIVE];
            let (most, least) = (f.largest, f.largest | 0x80);
            assert_eq!(extremes.map(|x| f.encode(x)), [most, most, 0, 0x80, least, 0]);
            let beyond = f.decode(f.largest) * 1.001;
            assert_eq!([beyond, -beyond].map(|x| f.encode(x)), [most, least]);
        }
    }
}
