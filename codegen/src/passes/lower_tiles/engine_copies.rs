//! Copies by the copy engine: loads to a stage in shared memory, and stores from one, panel by panel.

use super::Lower;
use crate::error::CompileError;
use crate::gpu::{At, BufferData, CopyAtom, Mover, Op as GpuOp, Owner, Ring, RingData, SharedRef, Slice, Type, Value};
use crate::layout::SharedLayout;
use atlas_dsl::config::Programs;
use atlas_dsl::{DType, Param};

impl Lower<'_> {
    /// Has the engine fill a stage, panel by panel.
    pub(super) fn copy_by_engine(&mut self, param: Param, slices: &[Slice], to: SharedRef) -> Result<(), CompileError> {
        let BufferData { dtype, layout, .. } = self.k.buffers[to.buffer];
        let panel = layout.engine_box(dtype.bytes());
        let panel =
            panel.ok_or_else(|| CompileError::bug("a load by the copy engine of a tile that it does not take"))?;
        for col in (0..layout.cols).step_by(panel.cols as usize) {
            let slices = columns(slices, col, panel.cols);
            self.push_effect(GpuOp::Copy { atom: CopyAtom::Open, param, slices, to: to.further(0, col) });
        }
        Ok(())
    }

    /// Puts a tile into shared memory and has the engine store it from there, panel by panel.
    pub(super) fn store_by_engine(&mut self, param: Param, slices: &[Slice], value: Value) -> Result<(), CompileError> {
        let (dtype, fragment) = self.k.tile(value);
        let layout = SharedLayout::for_engine_stores(&fragment.shape, dtype.bytes());
        let boxes = layout.and_then(|layout| Some((layout, layout.engine_box(dtype.bytes())?)));
        let Some((layout, panel)) = boxes else {
            return Err(CompileError::bug("a store by the copy engine of a tile that it does not take"));
        };
        let ring = self.ring_of_stores(param, dtype, layout);
        let buffer = self.k.rings[ring].buffers[0];
        let first = self.int(0);
        let token = self.push(GpuOp::Acquire(ring, At::Iteration(first)), vec![Type::Token(ring)])[0];
        let stage = SharedRef { buffer, token: Some(token), origin: (0, 0), transposed: false };
        self.push_effect(GpuOp::StoreShared { to: stage, value });
        for col in (0..layout.cols).step_by(panel.cols as usize) {
            let slices = columns(slices, col, panel.cols);
            let atom = CopyAtom::TmaStore(self.k.map_of_box(param, &slices, panel.span));
            self.push_effect(GpuOp::Copy { atom, param, slices, to: stage.further(0, col) });
        }
        self.push_effect(GpuOp::Commit(ring, Some(token)));
        Ok(())
    }

    /// Gives back, at the end of the kernel, the stages that the engine filled outside of loops.
    pub(super) fn release_stages(&mut self) {
        for read in std::mem::take(&mut self.read_here) {
            if self.k.ring_of_engine(read).is_some() {
                self.push_effect(GpuOp::Release(read));
            }
        }
    }

    /// Waits at the end of the kernel until all stores of the engine are done.
    pub(super) fn drain_stores(&mut self) {
        let of_stores: Vec<Ring> = self.k.rings.keys().filter(|&r| self.k.rings[r].read_by == Mover::Engine).collect();
        for ring in of_stores {
            self.push_effect(GpuOp::Drain(ring));
        }
    }

    /// The ring whose stage stored tiles of a type pass through. Tiles of one layout share it, one after the other. Persistent
    /// programs store by panels where no loop stands around, so that stores in loops have another ring.
    fn ring_of_stores(&mut self, param: Param, dtype: DType, layout: SharedLayout) -> Ring {
        let is_in_a_loop = self.k.roles.values().all(|role| role.body != self.at);
        let is_apart = is_in_a_loop && self.programs == Programs::Persistent;
        let is_alike = |(ring, data): &(Ring, &RingData)| {
            let buffer = &self.k.buffers[data.buffers[0]];
            let is_of_type = data.read_by == Mover::Engine && (buffer.dtype, buffer.layout) == (dtype, layout);
            is_of_type && self.stored_in_loops.contains(ring) == is_apart
        };
        if let Some((ring, _)) = self.k.rings.iter().find(is_alike) {
            return ring;
        }
        let name = self.k.params[param].name.clone();
        let data = BufferData { name, dtype, stages: 1, layout, owner: Owner::Cta, offset: None };
        let buffer = self.k.buffers.push(data);
        let ring = self.k.rings.push(RingData { read_by: Mover::Engine, ..RingData::of_threads(vec![buffer]) });
        if is_apart {
            self.stored_in_loops.insert(ring);
        }
        ring
    }
}

/// Columns of a tile: a part of its last axis.
fn columns(slices: &[Slice], first: u32, len: u32) -> Vec<Slice> {
    let mut part = slices.to_vec();
    if let Some(last) = part.last_mut() {
        *last = last.part(first, len);
    }
    part
}
