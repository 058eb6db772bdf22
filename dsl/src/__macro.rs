//! The items that code emitted by `atlas_kernel!` refers to, and nothing else. Not part of the public interface.

pub use crate::builder::{Builder, Index, Operand};
pub use crate::config::{Config, Copies, Operands, Order, Products, Programs, Setting, WarpGrid};
pub use crate::def::{
    DTypeRef, Declared, DimDef, GridDef, GridSize, KernelDef, ParamDef, Registered, TuneDef, TypeParamDef,
};
pub use crate::diag::Diagnostics;
pub use crate::fuse::{Fused, Fusion, Part};
pub use crate::ir::{Access, Kernel, Loc};
pub use crate::op::{BinaryOp, LoopKind, Precision, Predicate, Random, ReduceOp, UnaryOp, Update};
pub use crate::require::{Quantity, Requirement};
pub use crate::specialization::Specialization;
pub use crate::types::DType;
pub use inventory;

/// A Rust const that is a number.
#[diagnostic::on_unimplemented(
    message = "a const of type `{Self}` is no number of a kernel",
    label = "a number is a const of an integer type up to 64 bits, or of `f16`, `bf16`, `f32` or `f64`"
)]
pub trait ConstNumber {
    /// The number, whole if it is of an integer type.
    fn number(self) -> Operand;
}

macro_rules! whole_numbers {
    ($($integer:ty),*) => {
        $(impl ConstNumber for $integer {
            fn number(self) -> Operand {
                // What is too large is refused by every integer type, and rounded by floats.
                i64::try_from(self).map_or(Operand::Literal(self as f64), Operand::Whole)
            }
        })*
    };
}
whole_numbers!(u8, u16, u32, u64, usize, i8, i16, i32, i64, isize);

macro_rules! floats {
    ($($float:ty),*) => {
        $(impl ConstNumber for $float {
            fn number(self) -> Operand {
                Operand::Literal(f64::from(self))
            }
        })*
    };
}
floats!(half::f16, half::bf16, f32, f64);

/// A Rust const array that a kernel indexes, `TABLE[i][j]`.
#[diagnostic::on_unimplemented(
    message = "a const of type `{Self}` is no table of a kernel",
    label = "a table is a const array of `f32`, or an array of such arrays"
)]
pub trait ConstTable {
    /// Extents, outermost first, and the elements in row-major order.
    fn shape_and_values(&self) -> (Vec<u32>, Vec<f64>);
}

impl ConstTable for f32 {
    fn shape_and_values(&self) -> (Vec<u32>, Vec<f64>) {
        (Vec::new(), vec![f64::from(*self)])
    }
}

impl ConstTable for f64 {
    fn shape_and_values(&self) -> (Vec<u32>, Vec<f64>) {
        (Vec::new(), vec![*self])
    }
}

impl<T: ConstTable, const N: usize> ConstTable for [T; N] {
    fn shape_and_values(&self) -> (Vec<u32>, Vec<f64>) {
        let rows: Vec<_> = self.iter().map(ConstTable::shape_and_values).collect();
        let mut shape = vec![N as u32];
        shape.extend(rows.iter().take(1).flat_map(|(inner, _)| inner));
        (shape, rows.into_iter().flat_map(|(_, values)| values).collect())
    }
}

/// A Rust const that is an extent of a tile.
#[diagnostic::on_unimplemented(
    message = "a const of type `{Self}` is no extent of a tile",
    label = "an extent is a whole number: a const of type `u32`, `usize` or another integer type"
)]
pub trait ConstExtent {
    /// The number, or the greatest one if it is too large for any tile.
    fn extent(self) -> i64;
}

macro_rules! extents {
    ($($integer:ty),*) => {
        $(impl ConstExtent for $integer {
            fn extent(self) -> i64 {
                i64::try_from(self).unwrap_or(i64::MAX)
            }
        })*
    };
}
extents!(u8, u16, u32, u64, usize, i8, i16, i32, i64, isize);

/// `full::<f32>([A, B], value)`.
pub fn fill(b: &mut Builder, loc: Loc, value: Operand, dtype: DType, shape: &[u32]) -> Operand {
    match value.number() {
        Some(x) => b.splat(loc, x, dtype, shape),
        None => {
            let value = b.cast(loc, dtype, value);
            b.broadcast(loc, value, shape)
        }
    }
}
