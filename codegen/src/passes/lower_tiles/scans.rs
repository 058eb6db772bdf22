//! Scans along an axis.

use super::Lower;
use crate::analysis::Home;
use crate::error::CompileError;
use crate::gpu::{Direction, Op as GpuOp};
use crate::layout::Fragment;
use atlas_dsl::op::ReduceOp;
use atlas_dsl::{Inst, Op};

impl Lower<'_> {
    /// A scan, in a layout whose rows are each in one warp: the tile's own if it is one, else one made for it.
    pub(super) fn lower_scan(&mut self, inst: Inst) -> Result<(), CompileError> {
        let Op::Scan { op, value, axis, reverse } = self.tile.insts[inst] else {
            return Err(CompileError::bug("not a scan"));
        };
        let v = self.tile.results[inst][0];
        if self.uses.get(v).is_empty() {
            return Ok(());
        }
        let dtype = self.tile.ty(value).dtype;
        let wide = if op == ReduceOp::Sum { dtype.accumulator() } else { dtype };
        let layout = self.layout_for_fold(value)?;
        let rows = match layout.row_digits(axis) {
            Some(_) => layout.clone(),
            None => Fragment::of_scan(&layout.shape, axis, self.k.threads / 32),
        };
        let f = self.fragment(value, &layout)?;
        let f = self.convert(f, &rows);
        let neutral = op.neutral(dtype);
        // What is known of the value's padding says nothing of what a change of layout adds, which is 0.
        let adds_padding = rows.is_padded(axis) && !rows.same_map(&layout);
        let f = match adds_padding && neutral != 0.0 {
            true => self.put_neutral(value, f, &[axis], neutral)?,
            false => self.refill(value, f, &[axis], neutral)?,
        };
        let f = if wide == dtype { f } else { self.push_tile(GpuOp::Cast(f), wide, &rows) };
        let direction = if reverse { Direction::Down } else { Direction::Up };
        let mut result = self.push_tile(GpuOp::Scan { op, direction, value: f, axis }, wide, &rows);
        if wide != dtype {
            result = self.push_tile(GpuOp::Cast(result), dtype, &rows);
        }
        let asked = self.layout_of(v)?;
        result = self.convert(result, &asked);
        self.fragments.insert(v, result);
        if *self.placement.home(v) == Home::Stored {
            self.store_resident(v)?;
        }
        Ok(())
    }
}
