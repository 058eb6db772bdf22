//! Fragments on demand: a value in the layout that is asked for.

use super::Lower;
use crate::analysis::Home;
use crate::error::CompileError;
use crate::gpu::{self, Op as GpuOp, Type};
use crate::layout::Fragment;
use atlas_dsl::types::dropped_axes;
use atlas_dsl::{Op, Value};

impl Lower<'_> {
    /// A fragment of `v` in `layout`.
    pub(super) fn fragment(&mut self, v: Value, layout: &Fragment) -> Result<gpu::Value, CompileError> {
        if let Some(&made) = self.fragments.get(&v) {
            return Ok(self.convert(made, layout));
        }
        if *self.placement.home(v) == Home::Anywhere {
            return self.made_anywhere(v, layout);
        }
        let made = self.make(v, layout)?;
        self.fragments.insert(v, made);
        Ok(self.convert(made, layout))
    }

    /// A value that lives nowhere: made where it is asked for. What one evaluation asks for again it has, for a chain of
    /// choices that read the last one twice each would else be written out as a tree.
    fn made_anywhere(&mut self, v: Value, layout: &Fragment) -> Result<gpu::Value, CompileError> {
        let is_outermost = self.evaluated.is_none();
        let key = (v, layout.clone());
        if let Some(&made) = self.evaluated.get_or_insert_default().get(&key) {
            return Ok(made);
        }
        let made = self.make(v, layout)?;
        let made = self.convert(made, layout);
        self.evaluated.get_or_insert_default().insert(key, made);
        if is_outermost {
            self.evaluated = None;
        }
        Ok(made)
    }

    /// The same tile in another layout; nothing if the layouts are one map.
    pub(super) fn convert(&mut self, v: gpu::Value, layout: &Fragment) -> gpu::Value {
        let (dtype, from) = self.k.tile(v);
        if from.same_map(layout) {
            return v;
        }
        self.push_tile(GpuOp::Convert(v), dtype, layout)
    }

    fn make(&mut self, v: Value, layout: &Fragment) -> Result<gpu::Value, CompileError> {
        let ty = self.tile.ty(v).clone();
        if matches!(self.placement.home(v), Home::Copied(_) | Home::Carried) {
            let from = self.resident(v)?;
            return Ok(self.push_tile(GpuOp::LoadShared(from), ty.dtype, layout));
        }
        let Some((inst, op)) = self.tile.def_op(v) else {
            return Err(CompileError::bug(format!("{v} is not in scope")));
        };
        let op = op.clone();
        Ok(match op {
            Op::Splat { value, .. } => self.push_tile(GpuOp::Const(value), ty.dtype, layout),
            Op::Iota { axis, .. } => self.push_tile(GpuOp::Iota { axis, offset: 0 }, ty.dtype, layout),
            Op::DimSize(d) => self.push_tile(GpuOp::DimSize(d), ty.dtype, layout),
            Op::DimTiles { dim, size } => self.push_tile(GpuOp::DimTiles(dim, size), ty.dtype, layout),
            Op::ScalarParam(p) => self.push_tile(GpuOp::ScalarParam(p), ty.dtype, layout),
            Op::TableGet { table, indices } => {
                let scalar = self.scalar_layout();
                let mut at = Vec::new();
                for i in indices {
                    at.push(self.fragment(i, &scalar)?);
                }
                self.push_tile(GpuOp::TableGet(table, at), ty.dtype, layout)
            }
            Op::Unary(op, a) => {
                let a = self.fragment(a, layout)?;
                self.push_tile(GpuOp::Unary(op, self.precision.accuracy(inst), a), ty.dtype, layout)
            }
            Op::Binary(op, a, b) => {
                let a = self.fragment(a, layout)?;
                let b = self.fragment(b, layout)?;
                self.push_tile(GpuOp::Binary(op, self.precision.accuracy(inst), a, b), ty.dtype, layout)
            }
            Op::Compare(p, a, b) => {
                let a = self.fragment(a, layout)?;
                let b = self.fragment(b, layout)?;
                self.push_tile(GpuOp::Compare(p, a, b), ty.dtype, layout)
            }
            Op::Select { cond, on_true, on_false } => {
                let c = self.fragment(cond, layout)?;
                let t = self.fragment(on_true, layout)?;
                let f = self.fragment(on_false, layout)?;
                self.push_tile(GpuOp::Select(c, t, f), ty.dtype, layout)
            }
            Op::Cast(dtype, a) => {
                let a = self.fragment(a, layout)?;
                self.push_tile(GpuOp::Cast(a), dtype, layout)
            }
            Op::Other { value, other, ref axes } => {
                let a = self.fragment(value, layout)?;
                let valid = self.valid(value, axes)?;
                if valid.is_empty() || self.extents.is_filled_with(self.tile, value, other) {
                    return Ok(a);
                }
                self.push_tile(GpuOp::Refill { value: a, neutral: other, valid }, ty.dtype, layout)
            }
            Op::Broadcast { value, .. } => {
                let from = layout.broadcast_source(&self.tile.ty(value).shape);
                let a = self.fragment(value, &from)?;
                self.push_tile(GpuOp::Broadcast(a), ty.dtype, layout)
            }
            Op::Reshape { value, ref axes } => {
                let from = self.layout_of(value)?.without_unit_padding();
                let a = self.fragment(value, &from)?;
                // An axis that goes takes along what was known of it.
                let dropped = dropped_axes(self.tile.ty(value).rank(), axes);
                let ragged = self.extents.constraints(value).any(|c| dropped.contains(&c.axis));
                let a = if ragged && !self.extents.is_filled_with(self.tile, value, 0.0) {
                    self.put_neutral(value, a, &dropped, 0.0)?
                } else {
                    a
                };
                let to = from
                    .reshape(&ty.shape)
                    .ok_or_else(|| CompileError::bug(format!("reshape of {from} to {:?}", ty.shape)))?;
                self.push_tile(GpuOp::Reshape(a), ty.dtype, &to)
            }
            Op::Transpose(_) => {
                let (root, transposed) = self.root(v);
                let from = gpu::SharedRef { transposed, ..self.resident(root)? };
                self.push_tile(GpuOp::LoadShared(from), ty.dtype, layout)
            }
            Op::Dot { .. } => self.make_dot(inst)?,
            Op::Load { .. } => self.make_load(inst, layout)?,
            Op::Reduce { .. } | Op::Loop { .. } | Op::Store { .. } | Op::Yield(_) => {
                return Err(CompileError::bug(format!("{v} was not lowered before its use")));
            }
        })
    }

    /// A value seen through transposes.
    pub(super) fn root(&self, v: Value) -> (Value, bool) {
        crate::analysis::placement_root(self.tile, v)
    }

    /// Puts `neutral` where a fragment's elements are not real, unless it is there already.
    pub(super) fn refill(
        &mut self,
        v: Value,
        fragment: gpu::Value,
        axes: &[u8],
        neutral: f64,
    ) -> Result<gpu::Value, CompileError> {
        let layout = self.k.tile(fragment).1;
        let padded = axes.iter().any(|&a| layout.is_padded(a));
        if !self.extents.needs_refill(v, axes, neutral, padded) {
            return Ok(fragment);
        }
        self.put_neutral(v, fragment, axes, neutral)
    }

    /// Puts `neutral` where a fragment's elements are not real as elements of `v`, whatever is there.
    pub(super) fn put_neutral(
        &mut self,
        v: Value,
        fragment: gpu::Value,
        axes: &[u8],
        neutral: f64,
    ) -> Result<gpu::Value, CompileError> {
        let (dtype, layout) = self.k.tile(fragment);
        let layout = layout.clone();
        let valid = self.valid(v, axes)?;
        Ok(self.push(GpuOp::Refill { value: fragment, neutral, valid }, vec![Type::Fragment { dtype, layout }])[0])
    }

    /// Which elements of `v` are real along some axes.
    fn valid(&mut self, v: Value, axes: &[u8]) -> Result<Vec<gpu::Valid>, CompileError> {
        let mut valid = Vec::new();
        for c in self.extents.constraints(v).collect::<Vec<_>>() {
            if axes.contains(&c.axis) {
                let slice = self.slice(c.slice, c.dim)?;
                valid.push(gpu::Valid { axis: c.axis, slice, dim: c.dim });
            }
        }
        Ok(valid)
    }
}
