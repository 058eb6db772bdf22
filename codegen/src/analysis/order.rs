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

use crate::gpu::IndexMap;
use atlas_dsl::ir::{ParamKind, ValueDef};
use atlas_dsl::{Kernel, Op, Value};

/// Rows of a group: with some hundred programs at once, as many as make them about a square.
const ROWS: u32 = 8;

/// The order of a kernel's programs.
pub fn order(kernel: &Kernel) -> IndexMap {
    let axes: Vec<_> = kernel.grid.iter().map(|a| a.extent).collect();
    let [.., row, column] = &kernel.grid[..] else { return IndexMap::Linear(axes) };
    let mut by = [false; 2];
    for op in kernel.insts.values() {
        let Op::Load { param, .. } = op else { continue };
        let ParamKind::Tensor { .. } = kernel.params[*param].kind else { continue };
        let (mut on_row, mut on_column) = (false, false);
        op.visit_operands(|v| {
            on_row |= depends_on(kernel, v, row.coord);
            on_column |= depends_on(kernel, v, column.coord);
        });
        by[0] |= on_row && !on_column;
        by[1] |= on_column && !on_row;
    }
    if by == [true, true] { IndexMap::Grouped { width: ROWS, axes } } else { IndexMap::Linear(axes) }
}

/// True if a scalar is computed from a coordinate. What a loop carries may be.
fn depends_on(kernel: &Kernel, v: Value, coord: Value) -> bool {
    match kernel.values[v].def {
        _ if v == coord => true,
        ValueDef::Grid(_) => false,
        ValueDef::BlockParam(_, n) => n > 0,
        ValueDef::Result(inst, _) => {
            let mut found = false;
            kernel.insts[inst].visit_operands(|o| found |= depends_on(kernel, o, coord));
            found
        }
    }
}
