//! Stores to global memory, and the values that are computed in a layout that suits them.

use super::Lower;
use crate::analysis::{Home, StorePath, contiguous_run, places_of};
use crate::error::CompileError;
use crate::gpu::{self, Op as GpuOp, access_elements};
use atlas_dsl::ir::{ParamKind, Stride};
use atlas_dsl::op::{Slice, UnaryOp};
use atlas_dsl::{Block, Dim, Inst, Op, Param, Value};
use std::collections::BTreeSet;

impl Lower<'_> {
    pub(super) fn lower_store(&mut self, inst: Inst) -> Result<(), CompileError> {
        let op = self.tile.insts[inst].clone();
        let Op::Store { param, slices, value, update } = op.clone() else {
            return Err(CompileError::bug("not a store"));
        };
        let at = match places_of(self.tile, &op) {
            Some((v, shape)) => {
                let layout = self.layout_of(v)?;
                Some((v, shape, self.fragment(v, &layout)?))
            }
            None => None,
        };
        let mut slices = self.slices(param, &slices, at.as_ref().map(|at| at.2))?;
        let ty = self.tile.ty(value).clone();
        // Neighbouring lanes combine neighbours: an instruction of a warp then touches whole sectors.
        let at_once = update.combine().map(|op| self.k.target.combined_at_once(op, ty.dtype).unwrap_or(1));
        let of_a_lane = self.elements_of_a_lane(param, &slices, ty.dtype.bytes());
        let blocked = self.placement.blocked(&ty.shape, at_once.map_or(of_a_lane, |n| n.min(of_a_lane)));
        let has_no_layout = matches!(self.placement.home(value), Home::Carried | Home::Copied(_) | Home::Anywhere);
        let own = if has_no_layout || self.of_stores[value] { blocked.clone() } else { self.layout_of(value)? };
        let fragment = self.fragment(value, &own)?;
        if self.paths.of_store(inst) == Some(StorePath::Engine) {
            let value = self.zero_for_store(inst, fragment)?;
            return self.store_by_engine(param, &slices, value);
        }
        let scattered = ty.rank() == 2 && ty.elements() >= 1024 && contiguous_run(&own) * ty.dtype.bytes() < 32;
        let has_places_inside = matches!(slices.last(), Some(gpu::Slice::Gather { .. }));
        let run = ty.rank().checked_sub(1).map_or(1, |last| own.run(last as u8, 16));
        let too_wide = at_once.is_some_and(|n| run > n) && ty.elements() >= 1024 && !has_places_inside;
        let fragment = if scattered || too_wide { self.convert(fragment, &blocked) } else { fragment };
        let value = self.zero_for_store(inst, fragment)?;
        if let Some((v, shape, places)) = at {
            let layout = self.k.tile(value).1.clone();
            let own = self.gathered(v, places, &shape, &layout)?;
            slices.iter_mut().for_each(|slice| {
                if let gpu::Slice::Gather { places, .. } = slice {
                    *places = own;
                }
            });
        }
        let store = GpuOp::StoreGlobal { param, slices, value, update };
        if self.is_store_of_cluster(inst) {
            return self.push_effect_of_first(store);
        }
        self.push_effect(store);
        Ok(())
    }

    /// Consecutive elements of the lane that stores them, that is, of a vector. If rows may begin anywhere, a lane stores one
    /// element at a time, and neighbouring lanes have neighbouring elements.
    fn elements_of_a_lane(&self, param: Param, slices: &[gpu::Slice], bytes: u32) -> u32 {
        match &self.k.params[param].kind {
            ParamKind::Tensor { strides, .. } if strides.last() == Some(&Stride::Const(1)) => {
                access_elements(&self.k, param, slices)
            }
            _ => 16 / bytes,
        }
    }

    /// Puts what changes nothing, or 0, where a stored tile is not real, except where the store itself drops elements.
    fn zero_for_store(&mut self, inst: Inst, fragment: gpu::Value) -> Result<gpu::Value, CompileError> {
        let Op::Store { param, ref slices, value, update } = self.tile.insts[inst] else { return Ok(fragment) };
        let ParamKind::Tensor { dims, .. } = &self.tile.params[param].kind else { return Ok(fragment) };
        let kept = slices.iter().zip(dims).filter(|(s, _)| !matches!(s, Slice::At(_))).enumerate();
        let dropped: Vec<(u8, Slice, Dim)> = kept.map(|(axis, (&s, &d))| (axis as u8, s, d)).collect();
        let is_dropped = |axis: u8, slice: Slice, dim: Dim| {
            dropped.iter().any(|&(at, s, d)| match s {
                // What has no valid place is dropped.
                Slice::Gather(v) => {
                    at == axis && self.extents.constraints(v).any(|own| (own.slice, own.dim) == (slice, dim))
                }
                s => (at, s, d) == (axis, slice, dim),
            })
        };
        let axes: Vec<u8> =
            self.extents.constraints(value).filter(|c| !is_dropped(c.axis, c.slice, c.dim)).map(|c| c.axis).collect();
        if axes.is_empty() {
            return Ok(fragment);
        }
        self.refill(value, fragment, &axes, update.neutral(self.tile.ty(value).dtype))
    }

    /// Marks values of a block that only stores use and that can be computed in any layout. Each is computed where it is
    /// stored, in the layout that suits global memory.
    pub(super) fn find_trees_of_stores(&mut self, block: Block) {
        for &inst in self.tile.blocks[block].insts.iter().rev() {
            let Op::Store { value, .. } = self.tile.insts[inst] else { continue };
            let tree = self.tree(value, block);
            let free = |v: Value| {
                tree.contains(&v)
                    || self.of_stores[v]
                    || self.tile.ty(v).shape.last().is_none_or(|&e| e == 1)
                    || matches!(self.placement.home(v), Home::Anywhere | Home::Copied(_) | Home::Carried)
            };
            let mut all = true;
            for op in tree.iter().filter_map(|&v| self.tile.def_op(v)) {
                op.1.visit_operands(|o| all &= free(o));
            }
            if all {
                tree.into_iter().for_each(|v| self.of_stores[v] = true);
            }
        }
    }

    /// The element-wise operations that compute a value and that nothing else uses.
    fn tree(&self, v: Value, block: Block) -> BTreeSet<Value> {
        let (mut tree, mut open) = (BTreeSet::new(), vec![v]);
        while let Some(v) = open.pop() {
            let Some((inst, op)) = self.tile.def_op(v) else { continue };
            if tree.contains(&v)
                || self.uses.block_of(inst) != Some(block)
                || (self.uses.get(v).len() > 1 && !self.is_cheap(v, block))
                || *self.placement.home(v) != Home::Registers
                || self.of_stores[v]
            {
                continue;
            }
            if op.is_elementwise() {
                tree.insert(v);
                op.visit_operands(|o| open.push(o));
            } else if matches!(op, Op::Broadcast { .. }) {
                tree.insert(v);
            }
        }
        tree
    }

    /// True if a value can be computed again cheaply: by a few element-wise operations on tiles in shared memory.
    fn is_cheap(&self, v: Value, block: Block) -> bool {
        let mut v = v;
        loop {
            match self.placement.home(v) {
                Home::Anywhere | Home::Copied(_) | Home::Carried => return true,
                Home::Stored => return false,
                Home::Registers => {}
            }
            let is_here = self.uses.get(v).iter().all(|u| u.block == block);
            match self.tile.def_op(v) {
                Some((_, Op::Cast(_, a) | Op::Unary(UnaryOp::Neg | UnaryOp::Abs, a))) if is_here => v = *a,
                _ => return false,
            }
        }
    }
}
