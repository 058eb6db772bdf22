//! How far a slice may reach out of its dim, as far as its coordinate proves it.
//!
//! # Promise
//! [`Reach::Inside`] only if every element of the slice lies in the dim in every run, whatever the sizes bound at launch;
//! [`Reach::PastEnd`] only if the first element does. [`Reach::Anywhere`] is always right.
//!
//! # Argument
//! A coordinate is in range for one of four reasons, each about the same dim and the same tile size. The grid counts it. A loop
//! counts it from a constant `lo >= 0` up to the number of tiles (or elements) of the dim. A loop counts it up to a constant
//! that a constant dim allows. Or it is itself a constant that a constant dim allows. A program or an iteration in which none
//! of these held would not run. A tile whose number is in range begins inside. If its size divides the dim, it also ends
//! inside, because a multiple of the size has no ragged tile.
//!
//! The argument only covers iterations that run. So a pass that issues a load before its iteration has to guard it with the
//! loop's bound.
//!
//! # Breaks it
//! - A coordinate that counts tiles of another dim, or of another size, or is a constant past a dim:
//!   dsl/tests/validity.rs::a_tile_is_full_if_it_divides_the_dim_and_its_index_counts_it.
//! - A loop that begins below 0 or at a number that is not constant:
//!   dsl/tests/validity.rs::a_loop_index_counts_what_its_bounds_say.
//! - One computed from a coordinate (`n + 1`): tests/cases/tile/error_load_of_output.tile has it.
//! - Loads of iterations that do not run: tests/agreement/wrong_code.rs::a_dim_of_no_elements_has_no_tiles.

use crate::entity::{Block, Dim, Value};
use crate::ir::{DimSize, Kernel, ValueDef};
use crate::op::{Op, Slice};
use crate::types::DType;

/// How far a slice may reach out of its dim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reach {
    /// Nowhere: every element lies in the dim.
    Inside,
    /// Past the end: its first element lies in the dim.
    PastEnd,
    /// Anywhere: nothing is known about where it lies.
    Anywhere,
}

impl Reach {
    /// All of them.
    pub const ALL: [Reach; 3] = [Reach::Inside, Reach::PastEnd, Reach::Anywhere];

    /// The word of GPU IR's text form.
    pub fn word(self) -> &'static str {
        match self {
            Reach::Inside => "in_bounds",
            Reach::PastEnd => "past_end",
            Reach::Anywhere => "",
        }
    }
}

/// How far a slice of a dim reaches; an element is [`Reach::Inside`] or [`Reach::Anywhere`].
pub fn reach(kernel: &Kernel, slice: Slice, dim: Dim) -> Reach {
    let size = kernel.dims[dim].size;
    match slice {
        Slice::Whole => Reach::Inside,
        Slice::At(v) if in_range(kernel, v, dim, 1) => Reach::Inside,
        Slice::At(_) => Reach::Anywhere,
        Slice::Tile { index, size: tile } if in_range(kernel, index, dim, tile) => {
            if size.divisor().is_multiple_of(u64::from(tile)) { Reach::Inside } else { Reach::PastEnd }
        }
        Slice::Tile { .. } | Slice::Gather(_) => Reach::Anywhere,
        Slice::Span { start, len: 1 } if in_range(kernel, start, dim, 1) => Reach::Inside,
        Slice::Span { start, len } => match (constant(kernel, start), size) {
            (Some(first), DimSize::Const(n)) if first >= 0 && (first as u64).saturating_add(len.into()) <= n => {
                Reach::Inside
            }
            _ => Reach::Anywhere,
        },
    }
}

/// The number that an integer scalar always is, if the kernel states it.
pub fn constant(kernel: &Kernel, v: Value) -> Option<i64> {
    match kernel.def_op(v) {
        Some((_, Op::Splat { value, dtype: DType::I32 | DType::I64, shape })) if shape.is_empty() => {
            Some(*value as i64)
        }
        _ => None,
    }
}

/// The number that every element of a float always is, if the kernel states it.
pub fn constant_float(kernel: &Kernel, v: Value) -> Option<f64> {
    match kernel.def_op(v) {
        Some((_, Op::Splat { value, dtype, .. })) if dtype.is_float() => Some(*value),
        _ => None,
    }
}

/// True if a slice is one element that the grid or a loop counts along the dim, whatever its size. False for a tile that is
/// counted as a tile, because its size is one of many that it may have.
pub(crate) fn is_counted_point(kernel: &Kernel, slice: Slice, dim: Dim) -> bool {
    match slice {
        Slice::Tile { index: v, size: 1 } => !counts_tiles(kernel, v) && is_counted(kernel, v, dim, 1),
        Slice::Span { start: v, len: 1 } => is_counted(kernel, v, dim, 1),
        _ => false,
    }
}

/// True for a coordinate that the grid or a loop counts as a tile.
fn counts_tiles(kernel: &Kernel, v: Value) -> bool {
    match kernel.values[v].def {
        ValueDef::Grid(axis) => kernel.grid[axis as usize].extent.tile().is_some(),
        ValueDef::BlockParam(body, 0) => {
            bounds(kernel, body).is_some_and(|(_, hi)| matches!(kernel.def_op(hi), Some((_, Op::DimTiles { .. }))))
        }
        _ => false,
    }
}

/// True if the grid, or a loop from a constant that is not negative, counts a dim's tiles of a size, or its elements.
fn is_counted(kernel: &Kernel, v: Value, dim: Dim, tile: u32) -> bool {
    match kernel.values[v].def {
        ValueDef::Grid(axis) => {
            let extent = kernel.grid[axis as usize].extent;
            extent.dim() == dim && extent.tile().unwrap_or(1) == tile
        }
        ValueDef::BlockParam(body, 0) => bounds(kernel, body).is_some_and(|(lo, hi)| {
            let counts = match kernel.def_op(hi).map(|(_, op)| op) {
                Some(&Op::DimTiles { dim: d, size }) => d == dim && size == tile,
                Some(&Op::DimSize(d)) => d == dim && tile == 1,
                // The size of a constant dim is a number.
                Some(Op::Splat { .. }) if tile == 1 => match kernel.dims[dim].size {
                    DimSize::Const(n) => constant(kernel, hi) == Some(n as i64),
                    DimSize::Dynamic { .. } => false,
                },
                _ => false,
            };
            counts && constant(kernel, lo).is_some_and(|lo| lo >= 0)
        }),
        _ => false,
    }
}

/// True if a number lies in the range that counts a dim's tiles of a size, or its elements.
fn in_range(kernel: &Kernel, v: Value, dim: Dim, tile: u32) -> bool {
    let most = match kernel.dims[dim].size {
        DimSize::Const(n) => Some(n.div_ceil(u64::from(tile)) as i64),
        DimSize::Dynamic { .. } => None,
    };
    if is_counted(kernel, v, dim, tile) {
        return true;
    }
    let below = |v: Value, end: Option<i64>| constant(kernel, v).zip(end).is_some_and(|(c, end)| c <= end);
    match kernel.values[v].def {
        ValueDef::BlockParam(body, 0) => bounds(kernel, body)
            .is_some_and(|(lo, hi)| below(hi, most) && constant(kernel, lo).is_some_and(|lo| lo >= 0)),
        _ => constant(kernel, v).is_some_and(|c| c >= 0) && below(v, most.map(|most| most - 1)),
    }
}

/// The bounds of the loop whose body a block is.
fn bounds(kernel: &Kernel, block: Block) -> Option<(Value, Value)> {
    kernel.insts.values().find_map(|op| match op {
        Op::Loop { lo, hi, body, .. } if *body == block => Some((*lo, *hi)),
        _ => None,
    })
}
