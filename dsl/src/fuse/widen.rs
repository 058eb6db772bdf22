//! Rewrites a maker of single rows to a maker of tiles of rows.
//!
//! A value that is stored for one element of an axis is computed for a tile of elements at once. The walk goes backwards from
//! the store: every value that depends on the element gets a leading axis, down to loads, which then read tiles. This is
//! possible if the element's number is only used to pick elements, and if no operation, such as a product, uses two axes
//! already.

use super::maker::{axis_dim, read_by};
use crate::entity::{Dim, Inst, Value};
use crate::infer::infer;
use crate::ir::{GridExtent, Kernel, Loc, ValueDef};
use crate::op::{Op, Slice};
use std::collections::BTreeMap;

/// Elements of the largest tile to which single rows are widened: what one program makes of a tile of 64 rows of 1024.
pub(super) const MOST_ELEMENTS: u64 = 1 << 16;

/// A kernel that stores tiles of `size` along an axis of a tensor of which it stored one element, or why that is not possible.
pub(super) fn widen(kernel: &Kernel, store: Inst, axis: usize, size: u32) -> Result<Kernel, String> {
    let Op::Store { param, slices, value, update } = kernel.insts[store].clone() else {
        return Err("it is not stored".into());
    };
    let dim = axis_dim(kernel, param, axis).ok_or("it is not stored")?;
    let Slice::At(point) = slices[axis] else { return Err("it is a tile".into()) };
    let ValueDef::Grid(_) = kernel.values[point].def else { return Err("it is stored at a computed place".into()) };
    if slices[..axis].iter().any(|s| !matches!(s, Slice::At(_))) {
        return Err("an axis of its tile is before it".into());
    }
    let mut out = kernel.clone();
    out.blocks[out.body].insts.retain(|&i| i != store);
    let coord = out.push_grid_axis(GridExtent::Tiles { dim, size });
    let mut wide = Wide { kernel: out, dim, point, coord, size, known: BTreeMap::new() };
    let made = match wide.value(value)? {
        Some(made) => made,
        None => wide.repeated(value)?,
    };
    let mut slices = slices;
    slices[axis] = Slice::Tile { index: coord, size };
    let mut out = wide.kernel;
    out.insts[store] = Op::Store { param, slices, value: made, update };
    let body = out.body;
    out.blocks[body].insts.push(store);
    Ok(out)
}

/// The walk backwards from a store.
struct Wide {
    kernel: Kernel,
    dim: Dim,
    /// The element's coordinate, and that of the tile which replaces it.
    point: Value,
    coord: Value,
    size: u32,
    /// Values with a leading axis; `None` for one that does not depend on the element.
    known: BTreeMap<Value, Option<Value>>,
}

impl Wide {
    /// A value for each element of the tile; `None` if it is the same for all.
    fn value(&mut self, v: Value) -> Result<Option<Value>, String> {
        if let Some(&known) = self.known.get(&v) {
            return Ok(known);
        }
        if v == self.point {
            return Err("its number is computed with".into());
        }
        let made = match self.kernel.def_op(v).map(|d| d.1.clone()) {
            Some(op) => self.operation(v, op)?,
            None => None,
        };
        self.known.insert(v, made);
        Ok(made)
    }

    fn operation(&mut self, v: Value, op: Op) -> Result<Option<Value>, String> {
        if let Op::Load { param, mut slices } = op {
            let at = slices.iter().position(|s| *s == Slice::At(self.point));
            // Other coordinates are the same for all elements: they are not made of this one.
            for (_, slice) in slices.iter().enumerate().filter(|(k, _)| Some(*k) != at) {
                if let Some(v) = slice.operand()
                    && self.value(v)?.is_some()
                {
                    return Err("its number is computed with".into());
                }
            }
            let Some(at) = at else { return Ok(None) };
            let before = slices[..at].iter().all(|s| matches!(s, Slice::At(_)));
            if !before || axis_dim(&self.kernel, param, at) != Some(self.dim) {
                return Err("an axis of what it reads is before it".into());
            }
            slices[at] = Slice::Tile { index: self.coord, size: self.size };
            return self.push(Op::Load { param, slices }).map(Some);
        }
        if let Op::Loop { body, .. } = op {
            for v in read_by(&self.kernel, body) {
                if v == self.point || self.value(v)?.is_some() {
                    return Err("it is made in a loop".into());
                }
            }
        }
        let mut sources = Vec::new();
        op.visit_operands(|v| sources.push(v));
        let mut wide = Vec::new();
        for &source in &sources {
            wide.push(self.value(source)?);
        }
        if wide.iter().all(Option::is_none) {
            return Ok(None);
        }
        let in_front =
            |shape: &[u32]| -> Vec<u32> { std::iter::once(self.size).chain(shape.iter().copied()).collect() };
        let op = match op {
            // What stands past the edges of the element's own axes; the new one keeps its edge.
            Op::Other { other, axes, .. } => {
                Op::Other { value: wide[0].unwrap_or(v), other, axes: axes.into_iter().map(|a| a + 1).collect() }
            }
            Op::Unary(..) | Op::Binary(..) | Op::Compare(..) | Op::Select { .. } | Op::Fma(..) | Op::Cast(..) => {
                let mut operands = Vec::new();
                for (&source, wide) in sources.iter().zip(&wide) {
                    operands.push(match wide {
                        Some(wide) => *wide,
                        None => self.repeated(source)?,
                    });
                }
                let mut operands = operands.into_iter();
                op.map_operands(|v| operands.next().unwrap_or(v))
            }
            Op::Reshape { axes, .. } => {
                let axes = axes.into_iter().map(|axis| axis.map(|a| a + 1));
                Op::Reshape { value: wide[0].unwrap_or(v), axes: std::iter::once(Some(0)).chain(axes).collect() }
            }
            Op::Broadcast { value, shape } => {
                let from = &self.kernel.ty(value).shape;
                let shape = in_front(&shape);
                // Axes that the repetition adds stand behind the new one.
                let mut axes = vec![None; shape.len()];
                axes[0] = Some(0);
                let first = shape.len() - from.len();
                axes[first..].iter_mut().zip(1..).for_each(|(to, axis)| *to = Some(axis));
                let value = self.push(Op::Reshape { value: wide[0].unwrap_or(v), axes })?;
                Op::Broadcast { value, shape }
            }
            Op::Reduce { op, axes, .. } => {
                Op::Reduce { op, value: wide[0].unwrap_or(v), axes: axes.into_iter().map(|a| a + 1).collect() }
            }
            Op::Scan { op, axis, reverse, .. } => Op::Scan { op, value: wide[0].unwrap_or(v), axis: axis + 1, reverse },
            Op::Loop { .. } => return Err("it is made in a loop".into()),
            Op::Dot { .. } | Op::Transpose(_) => return Err("it is made of two axes".into()),
            _ => return Err("its number is computed with".into()),
        };
        self.push(op).map(Some)
    }

    /// A value that is the same for all elements, repeated for each.
    fn repeated(&mut self, v: Value) -> Result<Value, String> {
        let shape = std::iter::once(self.size).chain(self.kernel.ty(v).shape.iter().copied()).collect();
        self.push(Op::Broadcast { value: v, shape })
    }

    fn push(&mut self, op: Op) -> Result<Value, String> {
        let types = infer(&self.kernel, &op, Loc::default()).map_err(|e| e.to_string())?;
        if let Some(made) = types.iter().find(|t| t.elements() > MOST_ELEMENTS) {
            return Err(format!("a tile of {} elements would be made at once", made.elements()));
        }
        let inst = self.kernel.push_inst(self.kernel.body, op, &types, Loc::default());
        self.kernel.results[inst].first().copied().ok_or_else(|| "it is not stored".into())
    }
}
