//! The element types of tensors and tiles.

mod fp8;

pub use fp8::Fp8;
use std::fmt;

/// The type of one element of a tensor or tile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DType {
    /// A truth value; exists only inside kernels.
    Bool,
    /// 8-bit signed integer. Like the other integers below 32 bits it is moved and converted, not computed with.
    I8,
    /// 8-bit unsigned integer.
    U8,
    /// 16-bit signed integer.
    I16,
    /// 16-bit unsigned integer.
    U16,
    /// 32-bit signed integer; also the type of coordinates and sizes.
    I32,
    /// 64-bit signed integer.
    I64,
    /// 8-bit float of 4 bits of exponent and 3 of fraction, without infinities. Like the small integers it is moved and converted,
    /// not computed with.
    F8E4M3,
    /// 8-bit float of 5 bits of exponent and 2 of fraction: the upper half of an f16.
    F8E5M2,
    /// IEEE binary16.
    F16,
    /// bfloat16: the upper half of an `f32`.
    Bf16,
    /// IEEE binary32.
    F32,
    /// IEEE binary64.
    F64,
}

impl DType {
    /// Every element type, in declaration order.
    pub const ALL: [DType; 13] = [
        DType::Bool,
        DType::I8,
        DType::U8,
        DType::I16,
        DType::U16,
        DType::I32,
        DType::I64,
        DType::F8E4M3,
        DType::F8E5M2,
        DType::F16,
        DType::Bf16,
        DType::F32,
        DType::F64,
    ];

    /// The name used in kernels, in the text forms and in messages.
    pub const fn name(self) -> &'static str {
        match self {
            DType::Bool => "bool",
            DType::I8 => "i8",
            DType::U8 => "u8",
            DType::I16 => "i16",
            DType::U16 => "u16",
            DType::I32 => "i32",
            DType::I64 => "i64",
            DType::F8E4M3 => "f8e4m3",
            DType::F8E5M2 => "f8e5m2",
            DType::F16 => "f16",
            DType::Bf16 => "bf16",
            DType::F32 => "f32",
            DType::F64 => "f64",
        }
    }

    /// The inverse of [`DType::name`].
    pub fn from_name(name: &str) -> Option<DType> {
        DType::ALL.into_iter().find(|d| d.name() == name)
    }

    /// The name of its variant in Rust.
    pub const fn variant(self) -> &'static str {
        match self {
            DType::Bool => "Bool",
            DType::I8 => "I8",
            DType::U8 => "U8",
            DType::I16 => "I16",
            DType::U16 => "U16",
            DType::I32 => "I32",
            DType::I64 => "I64",
            DType::F8E4M3 => "F8E4M3",
            DType::F8E5M2 => "F8E5M2",
            DType::F16 => "F16",
            DType::Bf16 => "Bf16",
            DType::F32 => "F32",
            DType::F64 => "F64",
        }
    }

    /// Bytes of one element in memory.
    pub const fn bytes(self) -> u32 {
        match self {
            DType::Bool | DType::I8 | DType::U8 | DType::F8E4M3 | DType::F8E5M2 => 1,
            DType::I16 | DType::U16 | DType::F16 | DType::Bf16 => 2,
            DType::I32 | DType::F32 => 4,
            DType::I64 | DType::F64 => 8,
        }
    }

    /// True for f16, bf16, f32 and f64, the floats with arithmetic.
    pub const fn is_float(self) -> bool {
        matches!(self, DType::F16 | DType::Bf16 | DType::F32 | DType::F64)
    }

    /// True for i32 and i64, the integers with arithmetic.
    pub const fn is_int(self) -> bool {
        matches!(self, DType::I32 | DType::I64)
    }

    /// True for i8, u8, i16, u16 and the floats of 8 bits, which are loaded, stored, moved and converted, but not computed with.
    pub const fn is_small(self) -> bool {
        matches!(self, DType::I8 | DType::U8 | DType::I16 | DType::U16) || self.is_fp8()
    }

    /// True for the floats of 8 bits.
    pub const fn is_fp8(self) -> bool {
        matches!(self, DType::F8E4M3 | DType::F8E5M2)
    }

    /// True for every integer type.
    pub const fn is_whole(self) -> bool {
        self.is_int() || (self.is_small() && !self.is_fp8())
    }

    /// What is wrong with a conversion, if there is none: floats of 8 bits convert from and to floats alone.
    pub fn no_conversion(from: DType, to: DType) -> Option<&'static str> {
        let is_float = |d: DType| d.is_float() || d.is_fp8();
        let any = from.is_fp8() || to.is_fp8();
        (any && !(is_float(from) && is_float(to)))
            .then_some("floats of 8 bits convert from and to floats alone: go by f32, as in `.cast::<f32>()`")
    }

    /// True for an integer type without a sign, and for bool: a wider integer has zeros above its bits.
    pub const fn is_unsigned(self) -> bool {
        matches!(self, DType::Bool | DType::U8 | DType::U16)
    }

    /// The least and the greatest number of an integer type.
    pub const fn range(self) -> Option<(i64, i64)> {
        match self {
            DType::I8 => Some((i8::MIN as i64, i8::MAX as i64)),
            DType::U8 => Some((0, u8::MAX as i64)),
            DType::I16 => Some((i16::MIN as i64, i16::MAX as i64)),
            DType::U16 => Some((0, u16::MAX as i64)),
            DType::I32 => Some((i32::MIN as i64, i32::MAX as i64)),
            DType::I64 => Some((i64::MIN, i64::MAX)),
            DType::Bool | DType::F8E4M3 | DType::F8E5M2 | DType::F16 | DType::Bf16 | DType::F32 | DType::F64 => None,
        }
    }

    /// The number of an integer type with the low bits of `x`, as a conversion from a wider integer gives it. The same number in
    /// other types.
    pub const fn low_bits(self, x: i64) -> i64 {
        match self {
            DType::I8 => x as i8 as i64,
            DType::U8 => x as u8 as i64,
            DType::I16 => x as i16 as i64,
            DType::U16 => x as u16 as i64,
            DType::I32 => x as i32 as i64,
            DType::I64 | DType::Bool => x,
            DType::F8E4M3 | DType::F8E5M2 | DType::F16 | DType::Bf16 | DType::F32 | DType::F64 => x,
        }
    }

    /// A float as a number of an integer type: without its fraction, at most as large as the type allows, and 0 for NaN.
    pub const fn saturated(self, x: f64) -> i64 {
        let whole = x as i64;
        match self.range() {
            Some((least, _)) if whole < least => least,
            Some((_, most)) if whole > most => most,
            _ => whole,
        }
    }

    /// True for the 16-bit floats, whose arithmetic computes in f32 and rounds once.
    pub const fn is_half(self) -> bool {
        matches!(self, DType::F16 | DType::Bf16)
    }

    /// The largest number of a float type: as text, and as the smallest number that rounds to infinity instead, or the number
    /// itself where conversions saturate.
    const fn largest(self) -> Option<(&'static str, f64)> {
        match self {
            DType::F8E4M3 => Some(("448", 448.0)),
            DType::F8E5M2 => Some(("57344", 57_344.0)),
            DType::F16 => Some(("65504", 65_520.0)),
            // 2^128 less half a step of the type.
            DType::Bf16 => Some(("3.3895314e38", f64::from_bits(0x47ef_f000_0000_0000))),
            DType::F32 => Some(("3.4028235e38", f64::from_bits(0x47ef_ffff_f000_0000))),
            DType::Bool | DType::I8 | DType::U8 | DType::I16 | DType::U16 | DType::I32 | DType::I64 | DType::F64 => {
                None
            }
        }
    }

    /// Why a number cannot be written in this float type: it is finite but would round to infinity, or would be saturated.
    pub fn overflow(self, x: f64) -> Option<String> {
        let (largest, above) = self.largest()?;
        if self.is_fp8() {
            return (x.abs() > above).then(|| format!("is beyond its largest number, {largest}"));
        }
        (x.is_finite() && x.abs() >= above)
            .then(|| format!("is beyond its largest number, {largest}; infinity is `f32::INFINITY`"))
    }

    /// The type in which `dot` and `sum` over this type accumulate.
    pub const fn accumulator(self) -> DType {
        match self {
            DType::F16 | DType::Bf16 | DType::F32 => DType::F32,
            DType::F64 => DType::F64,
            DType::F8E4M3 | DType::F8E5M2 => DType::F32,
            DType::Bool | DType::I8 | DType::U8 | DType::I16 | DType::U16 | DType::I32 => DType::I32,
            DType::I64 => DType::I64,
        }
    }
}

/// A number as a message shows it: a long one as a power of ten.
pub fn number(x: f64) -> String {
    if x.is_finite() && x.abs() >= 1e16 { format!("{x:e}") } else { x.to_string() }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::DType;

    #[test]
    fn what_would_round_to_infinity() {
        for (dtype, last, first) in [
            (DType::F16, 65_519.99, 65_520.0),
            // 2^128 - 2^119 and 2^128 - 2^103 are half a step above the largest numbers.
            (DType::Bf16, 3.395e38, 2f64.powi(128) - 2f64.powi(119)),
            (DType::F32, f64::from(f32::MAX), 2f64.powi(128) - 2f64.powi(103)),
        ] {
            assert_eq!((dtype.overflow(last), dtype.overflow(-last)), (None, None), "{dtype}");
            assert!(dtype.overflow(first).is_some() && dtype.overflow(-first).is_some(), "{dtype}");
            assert_eq!(dtype.overflow(f64::NEG_INFINITY), None);
        }
        assert!((2f64.powi(128) - 2f64.powi(103)) as f32 == f32::INFINITY);
        assert_eq!(DType::F64.overflow(f64::MAX), None);
    }

    #[test]
    fn small_integers_keep_low_bits_and_saturate() {
        let types = [DType::I8, DType::U8, DType::I16, DType::U16];
        assert_eq!(types.map(|d| d.low_bits(0x1_2380)), [-128, 128, 0x2380, 0x2380]);
        assert_eq!(types.map(|d| d.low_bits(-1)), [-1, 255, -1, 65_535]);
        assert_eq!(types.map(|d| d.saturated(1e9)), [127, 255, 32_767, 65_535]);
        assert_eq!(types.map(|d| d.saturated(f64::NEG_INFINITY)), [-128, 0, -32_768, 0]);
        assert_eq!(types.map(|d| d.saturated(f64::NAN)), [0; 4]);
        assert_eq!(types.map(|d| d.saturated(-1.9)), [-1, 0, -1, 0]);
        for dtype in DType::ALL {
            assert_eq!(dtype.range().is_some(), dtype.is_whole(), "{dtype}");
        }
    }
}
