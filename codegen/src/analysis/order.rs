//! The order in which programs run: by rows of the grid, or by groups of rows that share what they read.
//!
//! # Promise
//! Every program runs once, whatever the order. Only the content of caches depends on it.
//!
//! # Argument
//! If all programs of a row read the same part of one tensor, and all programs of a column the same part of another, then
//! programs that run at the same time should form a square of the grid and not a row. Both tensors are then read from memory
//! fewer times. A group counts as many programs as its rows have, also in the last group, which may have fewer rows.
//!
//! # Breaks it
//! A grid whose number of rows is not a multiple of a group: tests/agreement/pipelines.rs::programs_of_a_grid_in_groups.

use super::sources::sources;
use crate::arch::Machine;
use crate::error::CompileError;
use crate::gpu::{Domain, IndexMap};
use atlas_dsl::config::Order;
use atlas_dsl::ir::{GridExtent, ParamKind, ValueDef};
use atlas_dsl::{Kernel, Op, Schedule};

/// Rows of a group: with a few hundred programs at once, this makes them about a square.
const ROWS: u32 = 8;

/// The order of a kernel's programs: the one in the schedule, or one that suits what they read.
///
/// # Errors
/// Refuses groups of rows if the grid has no rows.
pub fn order(kernel: &Kernel, schedule: &Schedule) -> Result<IndexMap, CompileError> {
    let mut axes: Vec<_> = kernel.grid.iter().map(|a| a.extent).collect();
    let rank = axes.len();
    if let Some(&GridExtent::UpTo { dim, size }) = axes.last() {
        let group = match schedule.order {
            Some(Order::Groups(rows)) => Some(rows),
            Some(Order::Linear) | None => None,
        };
        axes[rank - 1] = GridExtent::Tiles { dim, size };
        return Ok(IndexMap { domain: Domain::Triangle, group, ..IndexMap::linear(axes) });
    }
    // The programs of a cluster are neighbours.
    let chosen = || if kernel.cluster { Order::Linear } else { chosen(kernel) };
    Ok(match schedule.order.unwrap_or_else(chosen) {
        Order::Linear => IndexMap::linear(axes),
        Order::Groups(width) if rank >= 2 => IndexMap { group: Some(width), ..IndexMap::linear(axes) },
        order => {
            return Err(CompileError::refusal(format!(
                "order = {order} needs a grid of two axes or more, and the grid of `{}` has {rank}; `order=linear` would do",
                kernel.name
            )));
        }
    })
}

/// Rows of a group of persistent programs: the programs that are resident at once make about a square of elements.
pub(super) fn rows_of_resident(order: &IndexMap, machine: &Machine) -> u32 {
    let size = |axis: Option<&GridExtent>| f64::from(axis.and_then(|a| a.tile()).unwrap_or(1));
    let [.., rows, columns] = &order.axes[..] else { return ROWS };
    let side = (f64::from(machine.sms) * size(Some(columns)) / size(Some(rows))).sqrt();
    // A power of two, from which the groups of most grids are whole.
    1 << (side.log2().round().clamp(0.0, 6.0) as u32)
}

/// Uses groups if the programs of a row share one tensor and those of a column share another.
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
