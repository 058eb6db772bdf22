//! Rewrites a maker of whole rows to a maker of tiles of rows, where each element depends only on elements at the same
//! position.
//!
//! A value that is stored whole along an axis is computed for one tile of the axis instead. The walk goes backwards from the
//! store and restricts each operation to the wanted part, down to loads, which then read tiles. A value of the whole axis, such
//! as a row's norm, stays as it is, beside the tiles. If a loop of the reader moves over the tiles, that value is computed
//! once, before the loop. If programs do, each of them would compute it again, so the maker is left as it is.

use super::maker::axis_dim;
use crate::entity::{Dim, Inst, Value};
use crate::infer::infer;
use crate::ir::{GridExtent, Kernel};
use crate::op::{BinaryOp, Op, Slice};
use crate::types::DType;
use crate::validity::{Constraint, Validity};
use std::collections::{BTreeMap, BTreeSet};

/// A kernel that stores tiles of `size` along an axis of a tensor that it stored whole, or why that is not possible. With
/// `beside`, values of the whole axis may be computed beside the tiles.
pub(super) fn narrow(kernel: &Kernel, store: Inst, axis: usize, size: u32, beside: bool) -> Result<Kernel, String> {
    let Op::Store { param, slices, value, update } = kernel.insts[store].clone() else {
        return Err("it is not stored".into());
    };
    let dim = axis_dim(kernel, param, axis).ok_or("it is not stored")?;
    let mut out = kernel.clone();
    out.blocks[out.body].insts.retain(|&i| i != store);
    let coord = out.push_grid_axis(GridExtent::Tiles { dim, size });
    let validity = Validity::by_source(kernel);
    let mut cut = Cut { kernel: out, validity, dim, coord, size, beside, known: BTreeMap::new() };
    let kept = slices[..axis].iter().filter(|s| !matches!(s, Slice::At(_))).count();
    let value = cut.value(value, kept)?;
    let mut slices = slices;
    slices[axis] = Slice::Tile { index: coord, size };
    let mut out = cut.kernel;
    out.insts[store] = Op::Store { param, slices, value, update };
    let body = out.body;
    out.blocks[body].insts.push(store);
    Ok(out)
}

/// The walk backwards from a store.
struct Cut {
    kernel: Kernel,
    /// The kernel that stored the axis whole.
    validity: Validity,
    dim: Dim,
    /// The wanted tile, and its size.
    coord: Value,
    size: u32,
    beside: bool,
    /// Values that were restricted along an axis.
    known: BTreeMap<(Value, usize), Value>,
}

impl Cut {
    /// The wanted part of a tile along an axis.
    fn value(&mut self, v: Value, axis: usize) -> Result<Value, String> {
        if let Some(&known) = self.known.get(&(v, axis)) {
            return Ok(known);
        }
        let Some((_, op)) = self.kernel.def_op(v) else { return Err("it is carried by a loop".into()) };
        let op = match op.clone() {
            Op::Reduce { axes, .. } if axes.contains(&(axis as u8)) => self.repeated(v, axis)?,
            // An axis of one element that cannot be cut is one number for each element of a tile.
            op if self.kernel.ty(v).shape[axis] == 1 => match self.operation(v, op, axis) {
                Ok(cut) => cut,
                Err(why) => self.repeated(v, axis).map_err(|_| why)?,
            },
            op => self.operation(v, op, axis)?,
        };
        let made = self.one(op)?;
        let made = match self.kernel.def_op(v) {
            Some((_, Op::Iota { axis: counted, .. })) if usize::from(*counted) == axis => self.counted(made)?,
            _ => made,
        };
        self.known.insert((v, axis), made);
        Ok(made)
    }

    fn operation(&mut self, v: Value, op: Op, axis: usize) -> Result<Op, String> {
        let extent = self.kernel.ty(v).shape[axis];
        let narrowed = |mut shape: Vec<u32>, size: u32| {
            shape[axis] = size;
            shape
        };
        Ok(match op {
            Op::Splat { value, dtype, shape } => Op::Splat { value, dtype, shape: narrowed(shape, self.size) },
            Op::Iota { shape, axis: counted } => Op::Iota { shape: narrowed(shape, self.size), axis: counted },
            // Along an axis that had no edge when it was whole nothing is filled.
            Op::Other { value, other, mut axes } => {
                let along = |c: &Constraint| usize::from(c.axis) == axis;
                if !self.validity.constraints(value).iter().any(along) {
                    axes.retain(|&a| usize::from(a) != axis);
                }
                Op::Other { value: self.value(value, axis)?, other, axes }
            }
            Op::Unary(..) | Op::Binary(..) | Op::Compare(..) | Op::Select { .. } | Op::Fma(..) | Op::Cast(..) => {
                let mut failed = None;
                let op = op.map_operands(|v| {
                    self.value(v, axis).unwrap_or_else(|e| {
                        failed = Some(e);
                        v
                    })
                });
                match failed {
                    Some(e) => return Err(e),
                    None => op,
                }
            }
            Op::Broadcast { value, shape } => {
                let from = &self.kernel.ty(value).shape;
                let at = (axis + from.len()).checked_sub(shape.len());
                let value = match at {
                    Some(at) if from[at] == extent => self.value(value, at)?,
                    _ => self.uncut(value)?,
                };
                Op::Broadcast { value, shape: narrowed(shape, self.size) }
            }
            Op::Reshape { value, axes } => {
                let at = axes[axis].ok_or("its extents change")?;
                Op::Reshape { value: self.value(value, usize::from(at))?, axes }
            }
            Op::Transpose(value) => Op::Transpose(self.value(value, 1 - axis)?),
            Op::Reduce { op, value, axes } if !axes.contains(&(axis as u8)) => {
                Op::Reduce { op, value: self.value(value, axis)?, axes }
            }
            // Each element of the axis depends on all before it.
            Op::Scan { axis: along, .. } if usize::from(along) == axis => return Err(self.needs_all()),
            Op::Scan { op, value, axis: along, reverse } => {
                Op::Scan { op, value: self.value(value, axis)?, axis: along, reverse }
            }
            Op::Dot { a, b, acc, precision } => {
                let (a, b) = match axis {
                    0 => (self.value(a, 0)?, self.uncut(b)?),
                    _ => (self.uncut(a)?, self.value(b, 1)?),
                };
                Op::Dot { a, b, acc: acc.map(|acc| self.value(acc, axis)).transpose()?, precision }
            }
            Op::Load { param, mut slices } => {
                let kept: Vec<usize> = (0..slices.len()).filter(|&k| !matches!(slices[k], Slice::At(_))).collect();
                let at = kept[axis];
                if slices[at] != Slice::Whole || axis_dim(&self.kernel, param, at) != Some(self.dim) {
                    return Err(format!("it reads another part of `{}`", self.kernel.params[param].name));
                }
                slices[at] = Slice::Tile { index: self.coord, size: self.size };
                Op::Load { param, slices }
            }
            Op::Loop { .. } => return Err("it is made in a loop".into()),
            _ => return Err("it is a number".into()),
        })
    }

    /// A value that is constant along the axis, for each element of a tile. An axis of extent 1 does not say which of both it
    /// is.
    fn repeated(&self, v: Value, axis: usize) -> Result<Op, String> {
        let mut shape = self.kernel.ty(v).shape.clone();
        shape[axis] = self.size;
        Ok(Op::Broadcast { value: self.uncut(v)?, shape })
    }

    /// A value that is the same for each tile of the axis. It may depend on the whole axis only if that is allowed beside the
    /// tiles.
    fn uncut(&self, v: Value) -> Result<Value, String> {
        if self.beside {
            return Ok(v);
        }
        let (mut left, mut seen) = (vec![v], BTreeSet::new());
        while let Some(v) = left.pop() {
            if !seen.insert(v) {
                continue;
            }
            let Some((_, op)) = self.kernel.def_op(v) else { continue };
            match op {
                Op::Load { param, slices } => {
                    let is_it =
                        |k: usize| slices[k] == Slice::Whole && axis_dim(&self.kernel, *param, k) == Some(self.dim);
                    if (0..slices.len()).any(is_it) {
                        return Err(self.needs_all());
                    }
                }
                Op::Loop { .. } => return Err("it is made in a loop".into()),
                op => op.visit_operands(|v| left.push(v)),
            }
        }
        Ok(v)
    }

    fn needs_all(&self) -> String {
        format!("each element is made of all of `{}`", self.kernel.dims[self.dim].name)
    }

    /// A value that counts along the axis starts at the tile's first element.
    fn counted(&mut self, counted: Value) -> Result<Value, String> {
        let shape = self.kernel.ty(counted).shape.clone();
        let splat = Op::Splat { value: self.size.into(), dtype: DType::I32, shape: Vec::new() };
        let size = self.one(splat)?;
        let first = self.one(Op::Binary(BinaryOp::Mul, self.coord, size))?;
        let first = self.one(Op::Broadcast { value: first, shape })?;
        self.one(Op::Binary(BinaryOp::Add, first, counted))
    }

    fn one(&mut self, op: Op) -> Result<Value, String> {
        self.push(op)?.ok_or_else(|| "it is not stored".into())
    }

    fn push(&mut self, op: Op) -> Result<Option<Value>, String> {
        let loc = crate::ir::Loc::default();
        let types = infer(&self.kernel, &op, loc).map_err(|e| e.to_string())?;
        let inst = self.kernel.push_inst(self.kernel.body, op, &types, loc);
        Ok(self.kernel.results[inst].first().copied())
    }
}
