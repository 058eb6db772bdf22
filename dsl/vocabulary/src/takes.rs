//! Which element types an operation takes.

use crate::DType;

/// A set of element types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Takes {
    /// Truth values.
    Bool,
    /// i32 and i64.
    Integers,
    /// i32, i64 and truth values, each of which is one bit.
    Bits,
    /// f16, bf16, f32 and f64.
    Floats,
    /// All but truth values, the integers below 32 bits and the floats of 8 bits, which have no arithmetic.
    Numbers,
}

impl Takes {
    /// True if an element type is in the set.
    pub const fn holds(self, dtype: DType) -> bool {
        match self {
            Takes::Bool => matches!(dtype, DType::Bool),
            Takes::Integers => dtype.is_int(),
            Takes::Bits => dtype.is_int() || matches!(dtype, DType::Bool),
            Takes::Floats => dtype.is_float(),
            Takes::Numbers => dtype.is_int() || dtype.is_float(),
        }
    }
}
