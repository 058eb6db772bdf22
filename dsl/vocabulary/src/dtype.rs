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

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
