//! What the code emitted by `atlas_kernel!` names, and nothing else. Not part of the public interface.

pub use crate::builder::{Builder, Index, Operand};
pub use crate::config::{Config, Order, Setting, WarpGrid};
pub use crate::def::{
    DTypeRef, Declared, DimDef, GridDef, GridSize, KernelDef, ParamDef, Registered, TuneDef, TypeParamDef,
};
pub use crate::diag::Diagnostics;
pub use crate::fuse::{Fused, Fusion, Part};
pub use crate::ir::{Access, Kernel, Loc};
pub use crate::op::{BinaryOp, LoopKind, Precision, Predicate, ReduceOp, UnaryOp};
pub use crate::require::{Quantity, Requirement};
pub use crate::specialization::Specialization;
pub use crate::types::DType;
pub use inventory;

/// A Rust const array that a kernel indexes, `TABLE[i][j]`.
pub trait ConstTable {
    /// Extents, outermost first, and the elements in row-major order.
    fn shape_and_values(&self) -> (Vec<u32>, Vec<f32>);
}

impl ConstTable for f32 {
    fn shape_and_values(&self) -> (Vec<u32>, Vec<f32>) {
        (Vec::new(), vec![*self])
    }
}

impl ConstTable for f64 {
    fn shape_and_values(&self) -> (Vec<u32>, Vec<f32>) {
        (Vec::new(), vec![*self as f32])
    }
}

impl<T: ConstTable, const N: usize> ConstTable for [T; N] {
    fn shape_and_values(&self) -> (Vec<u32>, Vec<f32>) {
        let rows: Vec<_> = self.iter().map(ConstTable::shape_and_values).collect();
        let mut shape = vec![N as u32];
        shape.extend(rows.iter().take(1).flat_map(|(inner, _)| inner));
        (shape, rows.into_iter().flat_map(|(_, values)| values).collect())
    }
}

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
