//! Products and reductions.

use super::Lower;
use crate::analysis::Home;
use crate::error::CompileError;
use crate::gpu::{self, Op as GpuOp, Operand, SharedRef, Type};
use crate::layout::{Fragment, Mode};
use atlas_dsl::op::ReduceOp;
use atlas_dsl::{Inst, Op, Value};

impl Lower<'_> {
    /// `acc + a · b`.
    pub(super) fn make_dot(&mut self, inst: Inst) -> Result<gpu::Value, CompileError> {
        let Op::Dot { a, b, acc, .. } = self.tile.insts[inst] else {
            return Err(CompileError::bug("not a product"));
        };
        let v = self.tile.results[inst][0];
        let asked = self.layout_of(v)?;
        let dtype = self.tile.ty(v).dtype;
        let atom = self.placement.product(inst).ok_or_else(|| CompileError::bug("a product without an atom"))?;
        let layout = match self.placement.atom(v) == Some(atom) {
            true => asked.clone(),
            false => self.placement.accumulator(v, atom, [asked.shape[0], asked.shape[1]]),
        };
        let left = if self.placement.left_from_registers(self.tile, inst) {
            let from = self.layout_of(a)?;
            let f = self.fragment(a, &from)?;
            Operand::Fragment(self.refill(a, f, &[1], 0.0)?)
        } else {
            let (root, transposed) = self.root(a);
            Operand::Shared(SharedRef { transposed, ..self.resident(root)? })
        };
        let (root, transposed) = self.root(b);
        let right = Operand::Shared(SharedRef { transposed, ..self.resident(root)? });
        let acc = match acc {
            Some(c) => Some(self.fragment(c, &layout)?),
            None => None,
        };
        let (m, k) = (self.tile.ty(a).shape[0], self.tile.ty(a).shape[1]);
        let n = layout.shape[1];
        let op = GpuOp::Mma { a: left, b: right, acc, atom, shape: (m, n, k), accumulate: None };
        let flying = self.push(op, vec![Type::in_flight(dtype, layout.clone())])[0];
        let sum = self.push_tile(GpuOp::WaitMma(flying, 0), dtype, &layout);
        Ok(self.convert(sum, &asked))
    }

    /// A reduction: within each warp, then across warps through shared memory if several warps share the axes.
    pub(super) fn lower_reduce(&mut self, inst: Inst) -> Result<(), CompileError> {
        let Op::Reduce { op, value, ref axes } = self.tile.insts[inst] else {
            return Err(CompileError::bug("not a reduction"));
        };
        let axes = axes.clone();
        let v = self.tile.results[inst][0];
        if self.uses.get(v).is_empty() {
            return Ok(());
        }
        let dtype = self.tile.ty(value).dtype;
        let wide = if op == ReduceOp::Sum { dtype.accumulator() } else { dtype };
        let layout = self.layout_for_fold(value)?;
        let f = self.fragment(value, &layout)?;
        let f = self.refill(value, f, &axes, op.neutral(dtype))?;
        let f = if wide == dtype { f } else { self.push_tile(GpuOp::Cast(f), wide, &layout) };
        let (partial, across) = fold_in_warps(&layout, &axes);
        let mut result = self.push_tile(GpuOp::Reduce { op, value: f, axes: axes.clone() }, wide, &partial);
        if let Some(gathered) = across {
            let trailing = gathered.shape.len() as u8 - 1;
            let all = self.push_tile(GpuOp::ConvertLayout(result), wide, &gathered);
            let one = gathered.reduce(&[trailing]);
            let sum = self.push_tile(GpuOp::Reduce { op, value: all, axes: vec![trailing] }, wide, &one);
            let one = one.without_unit_padding();
            let sum = self.convert(sum, &one);
            let shape = one.shape[..one.shape.len() - 1].to_vec();
            let flat = one.reshape(&shape).ok_or_else(|| CompileError::bug("a reduction's trailing axis"))?;
            result = self.push_tile(GpuOp::Reshape(sum), wide, &flat);
        }
        if wide != dtype {
            let layout = self.k.tile(result).1.clone();
            result = self.push_tile(GpuOp::Cast(result), dtype, &layout);
        }
        self.fragments.insert(v, result);
        if *self.placement.home(v) == Home::Stored {
            self.store_resident(v)?
        }
        Ok(())
    }

    pub(super) fn layout_for_fold(&self, value: Value) -> Result<Fragment, CompileError> {
        if self.placement.layout(value).is_none() {
            // A constant tile is reduced in any layout.
            return Ok(self.placement.blocked(&self.tile.ty(value).shape, 4));
        }
        self.layout_of(value)
    }
}

/// The layout after reducing axes within each warp. If warps share the axes, also the layout that gathers their partial results
/// in registers. Partial results are numbered along a trailing axis.
fn fold_in_warps(layout: &Fragment, axes: &[u8]) -> (Fragment, Option<Fragment>) {
    let on = |m: &Mode| m.axis.is_some_and(|a| axes.contains(&a));
    let trailing = layout.shape.len() as u8;
    let mut lanes = 1;
    let mut parts = 1;
    let mut threads = Vec::new();
    for m in &layout.threads {
        if lanes < 32 || !on(m) {
            threads.push(if on(m) { Mode::replicated(m.extent) } else { *m });
        } else {
            threads.push(Mode::new(m.extent, parts, trailing));
            parts *= m.extent;
        }
        lanes *= m.extent;
    }
    if parts == 1 {
        return (layout.reduce(axes), None);
    }
    let mut partial = layout.reduce(axes);
    partial.shape.push(parts);
    partial.threads = threads;
    let mut gathered = partial.reduce(&[trailing]);
    gathered.shape[usize::from(trailing)] = parts;
    gather(&mut gathered, parts, trailing);
    (partial, Some(gathered))
}

/// Gives each thread four of the parts, and the rest to lanes that would otherwise hold copies.
fn gather(gathered: &mut Fragment, parts: u32, trailing: u8) {
    let held = if parts.is_multiple_of(4) { 4 } else { parts };
    gathered.regs.push(Mode::new(held, 1, trailing));
    let (mut left, mut stride, mut lanes) = (parts / held, held, 1);
    let mut threads = Vec::new();
    for m in std::mem::take(&mut gathered.threads) {
        let taken = match m.axis {
            None if lanes < 32 => (1..=left).rev().find(|&n| left.is_multiple_of(n) && m.extent.is_multiple_of(n)),
            _ => None,
        };
        lanes *= m.extent;
        match taken {
            Some(n) if n > 1 => {
                threads.push(Mode::new(n, stride, trailing));
                if m.extent > n {
                    threads.push(Mode::replicated(m.extent / n));
                }
                (left, stride) = (left / n, stride * n);
            }
            _ => threads.push(m),
        }
    }
    gathered.threads = threads;
    if left > 1 {
        gathered.regs.push(Mode::new(left, stride, trailing));
    }
}
