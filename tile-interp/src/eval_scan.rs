//! Scans along an axis, over valid elements only.

use crate::error::InterpError;
use crate::eval::Program;
use crate::eval_reduce::{max_f32, max_f64, min_f32, min_f64};
use crate::ring::Word;
use crate::rounding::round_all;
use crate::tile::{Data, Tile, mismatch};
use crate::walk::dense_strides;
use atlas_dsl::Value;
use atlas_dsl::op::ReduceOp;

impl Program<'_> {
    pub(crate) fn scan(&self, op: ReduceOp, value: Value, axis: u8, reverse: bool) -> Result<Tile, InterpError> {
        let tile = self.tile(value)?;
        let rows = Rows::new(&tile, usize::from(axis), reverse);
        let data = match (&tile.data, op) {
            (Data::F32(x), ReduceOp::Sum) => {
                let sums = rows.run(x, 0.0, |s: f64, x| s + f64::from(x));
                let mut sums: Vec<f32> = sums.into_iter().map(|s| s as f32).collect();
                round_all(tile.ty.dtype, &mut sums);
                Data::F32(sums)
            }
            (Data::F64(x), ReduceOp::Sum) => Data::F64(rows.run(x, 0.0, |s, x| s + x)),
            (Data::Ring(x), ReduceOp::Sum) => Data::Ring(rows.run(x, Word(0), Word::add)),
            (Data::I32(x), ReduceOp::Sum) => Data::I32(rows.run(x, 0, i32::wrapping_add)),
            (Data::I64(x), ReduceOp::Sum) => Data::I64(rows.run(x, 0, i64::wrapping_add)),
            (Data::F32(x), ReduceOp::Max) => Data::F32(rows.run(x, f32::NEG_INFINITY, max_f32)),
            (Data::F64(x), ReduceOp::Max) => Data::F64(rows.run(x, f64::NEG_INFINITY, max_f64)),
            (Data::I32(x), ReduceOp::Max) => Data::I32(rows.run(x, i32::MIN, Ord::max)),
            (Data::I64(x), ReduceOp::Max) => Data::I64(rows.run(x, i64::MIN, Ord::max)),
            (Data::F32(x), ReduceOp::Min) => Data::F32(rows.run(x, f32::INFINITY, min_f32)),
            (Data::F64(x), ReduceOp::Min) => Data::F64(rows.run(x, f64::INFINITY, min_f64)),
            (Data::I32(x), ReduceOp::Min) => Data::I32(rows.run(x, i32::MAX, Ord::min)),
            (Data::I64(x), ReduceOp::Min) => Data::I64(rows.run(x, i64::MAX, Ord::min)),
            (Data::Bool(_) | Data::Ring(_), _) => return Err(mismatch(op.scan_name())),
        };
        Ok(Tile { ty: tile.ty.clone(), valid: tile.valid.clone(), data })
    }
}

/// The rows of a tile along an axis.
struct Rows {
    /// The elements of a row, and the distance between two of them.
    extent: usize,
    step: usize,
    /// Which of them are valid.
    valid: std::ops::Range<usize>,
    reverse: bool,
}

impl Rows {
    fn new(tile: &Tile, axis: usize, reverse: bool) -> Rows {
        let extents = tile.ty.shape.iter().map(|&e| u64::from(e));
        let (extent, step) = (tile.ty.shape[axis] as usize, dense_strides(extents)[axis] as usize);
        let valid = tile.valid[axis].start as usize..tile.valid[axis].end as usize;
        Rows { extent, step, valid, reverse }
    }

    /// What has been met of a row at each of its elements, which begins as `neutral`.
    fn run<T: Copy, A: Copy>(&self, x: &[T], neutral: A, f: impl Fn(A, T) -> A) -> Vec<A> {
        let mut to = vec![neutral; x.len()];
        let row = self.extent * self.step;
        for first in (0..x.len()).filter(|i| i % row.max(1) < self.step) {
            let mut met = neutral;
            for i in 0..self.extent {
                let i = if self.reverse { self.extent - 1 - i } else { i };
                let at = first + i * self.step;
                if self.valid.contains(&i) {
                    met = f(met, x[at]);
                }
                to[at] = met;
            }
        }
        to
    }
}
