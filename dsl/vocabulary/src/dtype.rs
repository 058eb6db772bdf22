//! The element types of tensors and tiles.

use std::fmt;

/// The type of one element of a tensor or tile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DType {
    /// A truth value; exists only inside kernels.
    Bool,
    /// 32-bit signed integer; also the type of coordinates and sizes.
    I32,
    /// 64-bit signed integer.
    I64,
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
    pub const ALL: [DType; 7] = [DType::Bool, DType::I32, DType::I64, DType::F16, DType::Bf16, DType::F32, DType::F64];

    /// The name used in kernels, in the text forms and in messages.
    pub const fn name(self) -> &'static str {
        match self {
            DType::Bool => "bool",
            DType::I32 => "i32",
            DType::I64 => "i64",
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
            DType::I32 => "I32",
            DType::I64 => "I64",
            DType::F16 => "F16",
            DType::Bf16 => "Bf16",
            DType::F32 => "F32",
            DType::F64 => "F64",
        }
    }

    /// Bytes of one element in memory.
    pub const fn bytes(self) -> u32 {
        match self {
            DType::Bool => 1,
            DType::F16 | DType::Bf16 => 2,
            DType::I32 | DType::F32 => 4,
            DType::I64 | DType::F64 => 8,
        }
    }

    /// True for f16, bf16, f32 and f64.
    pub const fn is_float(self) -> bool {
        matches!(self, DType::F16 | DType::Bf16 | DType::F32 | DType::F64)
    }

    /// True for i32 and i64.
    pub const fn is_int(self) -> bool {
        matches!(self, DType::I32 | DType::I64)
    }

    /// True for the 16-bit floats, whose arithmetic computes in f32 and rounds once.
    pub const fn is_half(self) -> bool {
        matches!(self, DType::F16 | DType::Bf16)
    }

    /// The largest number of a float type: as text, and as the smallest number that rounds to infinity instead.
    const fn largest(self) -> Option<(&'static str, f64)> {
        match self {
            DType::F16 => Some(("65504", 65_520.0)),
            // 2^128 less half a step of the type.
            DType::Bf16 => Some(("3.3895314e38", f64::from_bits(0x47ef_f000_0000_0000))),
            DType::F32 => Some(("3.4028235e38", f64::from_bits(0x47ef_ffff_f000_0000))),
            DType::Bool | DType::I32 | DType::I64 | DType::F64 => None,
        }
    }

    /// Why a number cannot be written in this float type: it is finite but would round to infinity.
    pub fn overflow(self, x: f64) -> Option<String> {
        let (largest, above) = self.largest()?;
        (x.is_finite() && x.abs() >= above)
            .then(|| format!("is beyond its largest number, {largest}; infinity is `f32::INFINITY`"))
    }

    /// The type in which `dot` and `sum` over this type accumulate.
    pub const fn accumulator(self) -> DType {
        match self {
            DType::F16 | DType::Bf16 | DType::F32 => DType::F32,
            DType::F64 => DType::F64,
            DType::Bool | DType::I32 => DType::I32,
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
}
