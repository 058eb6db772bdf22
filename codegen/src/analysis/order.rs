//! In which order programs run: by rows of the grid, or by groups of rows that share what they read.
//!
//! # Promise
//! Every program runs once, whatever the order; only what caches still hold follows from it.
//!
//! # Argument
//! Where one tensor is read by each program of a row alike and another by each of a column, programs that run side by side
//! should form a square of the grid, not a row: then both are read from memory fewer times. Along the rows of a group the
//! number of programs is that of its rows, whatever is left of them in the last group.
//!
//! # Breaks it
//! A grid whose rows are no multiple of a group: tests/agreement/pipelines.rs::programs_of_a_grid_in_groups.

use super::sources::sources;
use crate::error::CompileError;
use crate::gpu::IndexMap;
use atlas_dsl::config::Order;
use atlas_dsl::ir::{GridExtent, ParamKind, ValueDef};
use atlas_dsl::{Kernel, Op, Schedule};

/// Rows of a group: with some hundred programs at once, as many as make them about a square.
const ROWS: u32 = 8;

/// The order of a kernel's programs: the schedule's, or the one that suits what they read.
///
/// # Errors
/// A refusal of groups of rows where the grid has no rows.
pub fn order(kernel: &Kernel, schedule: &Schedule) -> Result<IndexMap, CompileError> {
    let mut axes: Vec<_> = kernel.grid.iter().map(|a| a.extent).collect();
    let rank = axes.len();
    if let Some(&GridExtent::UpTo { dim, size }) = axes.last() {
        if let Some(order @ Order::Groups(_)) = schedule.order {
            return Err(CompileError::refusal(format!(
                "order = {order} is of grids of rows, and that of `{}` has pairs; `order=linear` would do",
                kernel.name
            )));
        }
        axes[rank - 1] = GridExtent::Tiles { dim, size };
        return Ok(IndexMap::Triangular(axes));
    }
    Ok(match schedule.order.unwrap_or_else(|| chosen(kernel)) {
        Order::Linear => IndexMap::Linear(axes),
        Order::Groups(width) if rank >= 2 => IndexMap::Grouped { width, axes },
        order => {
            return Err(CompileError::refusal(format!(
                "order = {order} needs a grid of two axes or more, and the grid of `{}` has {rank}; `order=linear` would do",
                kernel.name
            )));
        }
    })
}

/// By groups where the programs of a row share one tensor and those of a column another.
fn chosen(kernel: &Kernel) -> Order {
    let [.., row, column] = &kernel.grid[..] else { return Order::Linear };
    let mut by = [false; 2];
    for op in kernel.insts.values() {
        let Op::Load { param, .. } = op else { continue };
        let ParamKind::Tensor { .. } = kernel.params[*param].kind else { continue };
        let from = sources(kernel, op);
        let (on_row, on_column) = (from.contains(&row.coord), from.contains(&column.coord));
        if from.iter().any(|&v| matches!(kernel.values[v].def, ValueDef::BlockParam(_, n) if n > 0)) {
            // What a loop carries may come from anywhere.
            continue;
        }
        by[0] |= on_row && !on_column;
        by[1] |= on_column && !on_row;
    }
    if by == [true, true] { Order::Groups(ROWS) } else { Order::Linear }
}
