//! Fragments on demand: a value in the requested layout.

use super::Lower;
use crate::analysis::{Home, places_of};
use crate::error::CompileError;
use crate::gpu::{self, Op as GpuOp, Type};
use crate::layout::Fragment;
use atlas_dsl::types::dropped_axes;
use atlas_dsl::{Op, Value};
use std::collections::BTreeMap;

/// A value that is being computed.
struct Frame {
    v: Value,
    layout: Fragment,
    /// The operands that it needs, with their layouts.
    wanted: Vec<(Value, Fragment)>,
    /// The operands that are computed.
    got: Vec<gpu::Value>,
    /// True for the first value in the evaluation of values without a home.
    is_outermost: bool,
}

impl Lower<'_> {
    /// A fragment of `v` in `layout`.
    ///
    /// Operands are computed first, each just before the next one is looked at. Values that wait for their operands are kept in
    /// a list, because chains may be as long as a kernel, and a thread's stack is limited.
    pub(super) fn fragment(&mut self, v: Value, layout: &Fragment) -> Result<gpu::Value, CompileError> {
        if let Some(there) = self.there(v, layout) {
            return Ok(there);
        }
        let mut frames = vec![self.frame(v, layout.clone())?];
        while let Some(mut frame) = frames.pop() {
            if let Some((v, layout)) = frame.wanted.get(frame.got.len()).cloned() {
                if let Some(there) = self.there(v, &layout) {
                    frame.got.push(there);
                    frames.push(frame);
                } else {
                    let operand = self.frame(v, layout)?;
                    frames.extend([frame, operand]);
                }
                continue;
            }
            let made = self.make(frame.v, &frame.layout, &frame.got)?;
            let made = self.keep(frame, made);
            match frames.last_mut() {
                Some(user) => user.got.push(made),
                None => return Ok(made),
            }
        }
        Err(CompileError::bug(format!("{v} is not made")))
    }

    /// A value that was made before, in `layout`.
    ///
    /// A value without a home is computed where it is requested. Within one evaluation, a repeated request gives the same
    /// result. Otherwise, a chain of choices that each read the last one twice would become a tree.
    fn there(&mut self, v: Value, layout: &Fragment) -> Option<gpu::Value> {
        if let Some(&made) = self.fragments.get(&v) {
            return Some(self.convert(made, layout));
        }
        if *self.placement.home(v) == Home::Anywhere {
            return self.evaluated.as_ref()?.get(&(v, layout.clone())).copied();
        }
        None
    }

    /// Begins to compute a value.
    fn frame(&mut self, v: Value, layout: Fragment) -> Result<Frame, CompileError> {
        let wanted = self.wanted(v, &layout)?;
        let is_outermost = *self.placement.home(v) == Home::Anywhere && self.evaluated.is_none();
        if is_outermost {
            self.evaluated = Some(BTreeMap::new());
        }
        Ok(Frame { v, layout, wanted, got: Vec::new(), is_outermost })
    }

    /// Records a computed value. Returns it in the requested layout.
    fn keep(&mut self, frame: Frame, made: gpu::Value) -> gpu::Value {
        let Frame { v, layout, is_outermost, .. } = frame;
        if *self.placement.home(v) != Home::Anywhere {
            self.fragments.insert(v, made);
            return self.convert(made, &layout);
        }
        let made = self.convert(made, &layout);
        if is_outermost {
            self.evaluated = None;
        } else if let Some(evaluated) = &mut self.evaluated {
            evaluated.insert((v, layout), made);
        }
        made
    }

    /// The operands of a value in `layout`, and their layouts.
    fn wanted(&self, v: Value, layout: &Fragment) -> Result<Vec<(Value, Fragment)>, CompileError> {
        if matches!(self.placement.home(v), Home::Copied(_) | Home::Carried) {
            return Ok(Vec::new());
        }
        let Some((_, op)) = self.tile.def_op(v) else { return Ok(Vec::new()) };
        let mut wanted = Vec::new();
        match op {
            Op::TableGet { .. } => op.visit_operands(|i| wanted.push((i, self.scalar_layout()))),
            Op::Unary(..)
            | Op::Binary(..)
            | Op::Compare(..)
            | Op::Select { .. }
            | Op::Fma(..)
            | Op::Cast(..)
            | Op::Other { .. } => {
                op.visit_operands(|o| wanted.push((o, layout.clone())));
            }
            Op::Broadcast { value, .. } => {
                wanted.push((*value, layout.broadcast_source(&self.tile.ty(*value).shape)));
            }
            Op::Reshape { value, .. } => wanted.push((*value, self.layout_of(*value)?.without_unit_padding())),
            op @ Op::Load { .. } => {
                if let Some((places, _)) = places_of(self.tile, op) {
                    wanted.push((places, self.layout_of(places)?));
                }
            }
            _ => {}
        }
        Ok(wanted)
    }

    /// The same tile in another layout. No operation is needed if the layouts are the same map.
    pub(super) fn convert(&mut self, v: gpu::Value, layout: &Fragment) -> gpu::Value {
        let (dtype, from) = self.k.tile(v);
        if from.same_map(layout) {
            return v;
        }
        self.push_tile(GpuOp::ConvertLayout(v), dtype, layout)
    }

    /// Computes a value from its operands. Its layout is the requested one, or its own.
    fn make(&mut self, v: Value, layout: &Fragment, got: &[gpu::Value]) -> Result<gpu::Value, CompileError> {
        let ty = self.tile.ty(v).clone();
        if matches!(self.placement.home(v), Home::Copied(_) | Home::Carried) {
            let from = self.resident(v)?;
            return Ok(self.push_tile(GpuOp::LoadShared(from), ty.dtype, layout));
        }
        let Some((inst, op)) = self.tile.def_op(v) else {
            return Err(CompileError::bug(format!("{v} is not in scope")));
        };
        let op = op.clone();
        Ok(match (op, got) {
            (Op::Splat { value, .. }, _) => self.push_tile(GpuOp::Const(value), ty.dtype, layout),
            (Op::Iota { axis, .. }, _) => self.push_tile(GpuOp::Iota { axis, offset: 0 }, ty.dtype, layout),
            (Op::DimSize(d), _) => self.push_tile(GpuOp::DimSize(d), ty.dtype, layout),
            (Op::DimTiles { dim, size }, _) => self.push_tile(GpuOp::DimTiles(dim, size), ty.dtype, layout),
            (Op::ScalarParam(p), _) => self.push_tile(GpuOp::ScalarParam(p), ty.dtype, layout),
            (Op::TableGet { table, .. }, at) => self.push_tile(GpuOp::TableGet(table, at.to_vec()), ty.dtype, layout),
            (Op::Unary(op, _), &[a]) => {
                self.push_tile(GpuOp::Unary(op, self.approximations.accuracy(inst), a), ty.dtype, layout)
            }
            (Op::Binary(op, ..), &[a, b]) => {
                self.push_tile(GpuOp::Binary(op, self.approximations.accuracy(inst), a, b), ty.dtype, layout)
            }
            (Op::Compare(p, ..), &[a, b]) => self.push_tile(GpuOp::Compare(p, a, b), ty.dtype, layout),
            (Op::Select { .. }, &[c, t, f]) => self.push_tile(GpuOp::Select(c, t, f), ty.dtype, layout),
            (Op::Fma(..), &[a, b, c]) => self.push_tile(GpuOp::Fma(a, b, c), ty.dtype, layout),
            (Op::Cast(dtype, _), &[a]) => self.push_tile(GpuOp::Cast(a), dtype, layout),
            (Op::Other { value, other, ref axes }, &[a]) => {
                let valid = self.valid(value, axes)?;
                if valid.is_empty() || self.extents.is_filled_with(self.tile, value, other) {
                    return Ok(a);
                }
                self.push_tile(GpuOp::MaskInvalid { value: a, neutral: other, valid }, ty.dtype, layout)
            }
            (Op::Broadcast { .. }, &[a]) => self.push_tile(GpuOp::Broadcast(a), ty.dtype, layout),
            (Op::Reshape { value, ref axes }, &[a]) => {
                let from = self.layout_of(value)?.without_unit_padding();
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
            (Op::Transpose(_), _) => {
                let (root, transposed) = self.root(v);
                let from = gpu::SharedRef { transposed, ..self.resident(root)? };
                self.push_tile(GpuOp::LoadShared(from), ty.dtype, layout)
            }
            (Op::Dot { .. }, _) => self.make_dot(inst)?,
            (Op::Load { .. }, got) => self.make_load(inst, layout, got.first().copied())?,
            (
                Op::Reduce { .. }
                | Op::Scan { .. }
                | Op::ClusterSum(_)
                | Op::Loop { .. }
                | Op::Store { .. }
                | Op::Yield(_),
                _,
            ) => {
                return Err(CompileError::bug(format!("{v} was not lowered before its use")));
            }
            (op, got) => return Err(CompileError::bug(format!("{op:?} of {} operands", got.len()))),
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
        Ok(self.push(GpuOp::MaskInvalid { value: fragment, neutral, valid }, vec![Type::fragment(dtype, layout)])[0])
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
