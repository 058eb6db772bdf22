//! Which element types an operation takes.

use crate::DType;

/// A set of element types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Takes {
    /// Truth values.
    Bool,
    /// i32 and i64.
    Integers,
    /// f16, bf16, f32 and f64.
    Floats,
    /// All but truth values.
    Numbers,
}

impl Takes {
    /// True if an element type is in the set.
    pub const fn holds(self, dtype: DType) -> bool {
        match self {
            Takes::Bool => matches!(dtype, DType::Bool),
            Takes::Integers => dtype.is_int(),
            Takes::Floats => dtype.is_float(),
            Takes::Numbers => !matches!(dtype, DType::Bool),
        }
    }
}
