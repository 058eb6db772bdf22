//! Reductions and scans along axes, over valid elements only.

use crate::error::InterpError;
use crate::eval::Program;
use crate::ring::Word;
use crate::rounding::round_all;
use crate::tile::{Data, Tile, mismatch};
use crate::walk::dense_strides;
use atlas_dsl::op::ReduceOp;
use atlas_dsl::{TileType, Value};

impl Program<'_> {
    pub(crate) fn reduce(&self, op: ReduceOp, value: Value, axes: &[u8]) -> Result<Tile, InterpError> {
        let tile = self.tile(value)?;
        let reduction = Reduction::new(&tile, axes);
        let neutral = op.neutral(tile.ty.dtype);
        let data = match (&tile.data, op) {
            (Data::F32(x), ReduceOp::Sum) => {
                let sums = reduction.run(x, 0.0, |s: f64, x| s + f64::from(x));
                let mut sums: Vec<f32> = sums.into_iter().map(|s| s as f32).collect();
                round_all(tile.ty.dtype, &mut sums);
                Data::F32(sums)
            }
            (Data::F64(x), ReduceOp::Sum) => Data::F64(reduction.run(x, 0.0, |s: f64, x| s + x)),
            (Data::Ring(x), ReduceOp::Sum) => Data::Ring(reduction.run(x, Word(0), Word::add)),
            (Data::I32(x), ReduceOp::Sum) => Data::I32(reduction.run(x, 0, i32::wrapping_add)),
            (Data::I64(x), ReduceOp::Sum) => Data::I64(reduction.run(x, 0, i64::wrapping_add)),
            (Data::F32(x), ReduceOp::Max) => Data::F32(reduction.run(x, neutral as f32, max_f32)),
            (Data::F64(x), ReduceOp::Max) => Data::F64(reduction.run(x, neutral, max_f64)),
            (Data::I32(x), ReduceOp::Max) => Data::I32(reduction.run(x, neutral as i32, Ord::max)),
            (Data::I64(x), ReduceOp::Max) => Data::I64(reduction.run(x, neutral as i64, Ord::max)),
            (Data::F32(x), ReduceOp::Min) => Data::F32(reduction.run(x, neutral as f32, min_f32)),
            (Data::F64(x), ReduceOp::Min) => Data::F64(reduction.run(x, neutral, min_f64)),
            (Data::I32(x), ReduceOp::Min) => Data::I32(reduction.run(x, neutral as i32, Ord::min)),
            (Data::I64(x), ReduceOp::Min) => Data::I64(reduction.run(x, neutral as i64, Ord::min)),
            (Data::Bool(_) | Data::Ring(_), _) => return Err(mismatch(op.name())),
        };
        let reduced = |axis: usize| axes.iter().any(|&a| usize::from(a) == axis);
        let valid = tile.valid.iter().enumerate().map(|(i, v)| if reduced(i) { 0..1 } else { v.clone() }).collect();
        Ok(Tile { ty: TileType::new(tile.ty.dtype, reduction.shape), valid, data })
    }
}

macro_rules! nan_max_min {
    ($max:ident, $min:ident, $t:ty) => {
        /// The larger; NaN if either is NaN; +0 is above -0.
        pub(crate) fn $max(a: $t, b: $t) -> $t {
            if a > b || a.is_nan() || (a == b && a.is_sign_positive()) { a } else { b }
        }
        /// The smaller; NaN if either is NaN; -0 is below +0.
        pub(crate) fn $min(a: $t, b: $t) -> $t {
            if a < b || a.is_nan() || (a == b && a.is_sign_negative()) { a } else { b }
        }
    };
}
nan_max_min!(max_f32, min_f32, f32);
nan_max_min!(max_f64, min_f64, f64);

/// One axis of a reduction.
struct Axis {
    /// The coordinates that are visited.
    first: usize,
    end: usize,
    step: usize,
    /// Step in the result; 0 if reduced.
    to_step: usize,
}

/// Which elements are combined to which element of the result.
struct Reduction {
    axes: Vec<Axis>,
    /// Extents of the result.
    shape: Vec<u32>,
}

impl Reduction {
    fn new(tile: &Tile, reduced: &[u8]) -> Reduction {
        let is_reduced = |axis: usize| reduced.iter().any(|&a| usize::from(a) == axis);
        let extents = &tile.ty.shape;
        let shape: Vec<u32> = extents.iter().enumerate().map(|(i, &e)| if is_reduced(i) { 1 } else { e }).collect();
        let steps = dense_strides(extents.iter().map(|&e| u64::from(e)));
        let to_steps = dense_strides(shape.iter().map(|&e| u64::from(e)));
        let axes = (0..extents.len())
            .map(|i| {
                // What is not valid along an axis that stays is carried.
                let range = if is_reduced(i) { tile.valid[i].clone() } else { 0..extents[i] };
                Axis {
                    first: range.start as usize,
                    end: range.end as usize,
                    step: steps[i] as usize,
                    to_step: if is_reduced(i) { 0 } else { to_steps[i] as usize },
                }
            })
            .collect();
        Reduction { axes, shape }
    }

    /// Reduces `x` into a result that begins as `neutral`.
    fn run<T: Copy, A: Copy>(&self, x: &[T], neutral: A, f: impl Fn(A, T) -> A) -> Vec<A> {
        let mut to = vec![neutral; self.shape.iter().map(|&e| e as usize).product()];
        if x.is_empty() {
            return to;
        }
        match self.axes.split_last() {
            Some((row, outer)) => fold_axes(outer, row, (x, 0), (&mut to, 0), &f),
            None => to[0] = f(neutral, x[0]),
        }
        to
    }
}

fn fold_axes<T: Copy, A: Copy>(
    outer: &[Axis],
    row: &Axis,
    (x, at): (&[T], usize),
    (to, to_at): (&mut [A], usize),
    f: &impl Fn(A, T) -> A,
) {
    if let Some((axis, outer)) = outer.split_first() {
        for i in axis.first..axis.end {
            fold_axes(outer, row, (x, at + i * axis.step), (to, to_at + i * axis.to_step), f);
        }
        return;
    }
    let x = &x[at + row.first..at + row.end.max(row.first)];
    if row.to_step == 0 {
        to[to_at] = x.iter().fold(to[to_at], |a, &x| f(a, x));
    } else {
        to[to_at + row.first..].iter_mut().zip(x).for_each(|(a, &x)| *a = f(*a, x));
    }
}

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
