//! Loads, and tiles kept in shared memory.

use super::{Lower, Resident};
use crate::analysis::{Home, places_of};
use crate::error::CompileError;
use crate::gpu::{self, At, Cache, CopyAtom, Mover, Op as GpuOp, Reach, RingData, SharedRef, Type};
use crate::layout::Fragment;
use crate::mutation::{Mutation, is_planted};
use atlas_dsl::ir::{ParamKind, ValueDef};
use atlas_dsl::op::Slice;
use atlas_dsl::reach::{constant, reach};
use atlas_dsl::{DType, Dim, Inst, Op, Param, Value};

impl Lower<'_> {
    /// A Tile IR slice of a dim as a GPU IR slice.
    pub(super) fn slice(&mut self, slice: Slice, dim: Dim) -> Result<gpu::Slice, CompileError> {
        let scalar = self.scalar_layout();
        let reach = reach(self.tile, slice, dim);
        Ok(match slice {
            Slice::At(v) => gpu::Slice::At { coord: self.fragment(v, &scalar)?, in_bounds: reach == Reach::Inside },
            Slice::Tile { index, size } => {
                gpu::Slice::Tile { index: self.fragment(index, &scalar)?, size, offset: 0, len: size, reach }
            }
            Slice::Span { start, len } => match (constant(self.tile, start), reach, len) {
                // A constant part of a constant dim.
                (Some(first), Reach::Inside, _) => gpu::Slice::Whole { offset: first as u32, len },
                (None, Reach::Inside, _) if is_planted(Mutation::CountedIsFirst) => {
                    gpu::Slice::Whole { offset: 0, len }
                }
                // One element is a tile of one.
                (None, Reach::Inside, 1) => {
                    let index = self.fragment(start, &scalar)?;
                    gpu::Slice::Tile { index, size: 1, offset: 0, len: 1, reach }
                }
                _ => gpu::Slice::Span { start: self.fragment(start, &scalar)?, offset: 0, len },
            },
            Slice::Whole => gpu::Slice::Whole { offset: 0, len: self.tile.dims[dim].size.divisor() as u32 },
            Slice::Gather(_) => return Err(CompileError::bug("places where there is no load")),
        })
    }

    /// `places` are those of an axis that has a tile of places.
    pub(super) fn slices(
        &mut self,
        param: Param,
        slices: &[Slice],
        places: Option<gpu::Value>,
    ) -> Result<Vec<gpu::Slice>, CompileError> {
        let ParamKind::Tensor { dims, .. } = &self.tile.params[param].kind else {
            return Err(CompileError::bug("a slice of a scalar"));
        };
        let dims = dims.clone();
        let lowered = slices.iter().zip(dims).map(|(&s, d)| match (s, places) {
            (Slice::Gather(v), Some(places)) => {
                Ok(gpu::Slice::Gather { places, len: self.tile.ty(v).elements() as u32 })
            }
            (s, _) => self.slice(s, d),
        });
        lowered.collect()
    }

    pub(super) fn lower_load(&mut self, inst: Inst) -> Result<(), CompileError> {
        let v = self.tile.results[inst][0];
        if self.uses.get(v).is_empty() {
            return Ok(());
        }
        match self.placement.home(v) {
            // A ring of the enclosing loop may hold it already.
            Home::Copied(_) if self.residents[v].is_none() => {
                let ring = self.new_ring(&[inst])?;
                let zero = self.int(0);
                let read = self.fill(&[inst], ring, zero)?;
                self.read_here.push(read);
                Ok(())
            }
            Home::Copied(_) => Ok(()),
            _ => {
                let layout = self.layout_of(v)?;
                self.fragment(v, &layout)?;
                if *self.placement.home(v) == Home::Stored {
                    self.store_resident(v)?;
                }
                Ok(())
            }
        }
    }

    /// `places` are those of a load that gathers, in their own layout.
    pub(super) fn make_load(
        &mut self,
        inst: Inst,
        layout: &Fragment,
        places: Option<gpu::Value>,
    ) -> Result<gpu::Value, CompileError> {
        let op = self.tile.insts[inst].clone();
        let Op::Load { param, slices } = op.clone() else { return Err(CompileError::bug("not a load")) };
        let gathered = match (places_of(self.tile, &op), places) {
            (Some((v, shape)), Some(places)) => Some(self.gathered(v, places, &shape, layout)?),
            (None, _) => None,
            (Some(_), None) => return Err(CompileError::bug("a load without its places")),
        };
        let slices = self.slices(param, &slices, gathered)?;
        let dtype = self.tile.ty(self.tile.results[inst][0]).dtype;
        Ok(self.push_tile(GpuOp::LoadGlobal { param, slices, cache: Cache::Normal }, dtype, layout))
    }

    /// The place of each element of a tile that has a tile of places, in the tile's layout. Places that are not valid lie outside of every
    /// dim, so that what they give is 0, as it is past an edge.
    pub(super) fn gathered(
        &mut self,
        v: Value,
        places: gpu::Value,
        shape: &[u32],
        layout: &Fragment,
    ) -> Result<gpu::Value, CompileError> {
        let ragged = self.extents.constraints(v).next().is_some() && !is_planted(Mutation::PlacesPastTheEdge);
        let places = if ragged { self.put_neutral(v, places, &[0], -1.0)? } else { places };
        let places = match shape.len() {
            1 => places,
            _ => {
                let from = self.layout_of(v)?.without_unit_padding();
                let to =
                    from.reshape(shape).ok_or_else(|| CompileError::bug(format!("reshape of {from} to {shape:?}")))?;
                let places = self.convert(places, &from);
                self.push_tile(GpuOp::Reshape(places), DType::I32, &to)
            }
        };
        if shape == layout.shape {
            return Ok(self.convert(places, layout));
        }
        let places = self.convert(places, &layout.broadcast_source(shape));
        Ok(self.push_tile(GpuOp::Broadcast(places), DType::I32, layout))
    }

    /// A ring whose buffers hold the tiles of these loads, which are all made by the copy engine or all by threads. The loads then
    /// reside there.
    pub(super) fn new_ring(&mut self, loads: &[Inst]) -> Result<gpu::Ring, CompileError> {
        let mut buffers = Vec::new();
        for &inst in loads {
            let v = self.tile.results[inst][0];
            let Op::Load { param, .. } = &self.tile.insts[inst] else { return Err(CompileError::bug("not a load")) };
            let name = self.tile.params[*param].name.clone();
            let buffer = self.new_buffer(name, v)?;
            self.residents[v] = Some(Resident { buffer, token: None });
            buffers.push(buffer);
        }
        let by_engine = loads.iter().all(|&load| self.paths.by_engine(load));
        let filled_by = if by_engine { Mover::Engine } else { Mover::Threads };
        Ok(self.k.rings.push(RingData { filled_by, ..RingData::of_threads(buffers) }))
    }

    /// Fills the stage of an iteration by the copies of these loads, and waits for them.
    pub(super) fn fill(
        &mut self,
        loads: &[Inst],
        ring: gpu::Ring,
        iteration: gpu::Value,
    ) -> Result<gpu::Value, CompileError> {
        let token = self.push(GpuOp::Acquire(ring, At::Iteration(iteration)), vec![Type::Token(ring)])[0];
        for &inst in loads {
            let v = self.tile.results[inst][0];
            let Op::Load { param, slices } = self.tile.insts[inst].clone() else {
                return Err(CompileError::bug("not a load"));
            };
            let slices = self.slices(param, &slices, None)?;
            let buffer =
                self.residents[v].map(|r| r.buffer).ok_or_else(|| CompileError::bug("a load without a buffer"))?;
            let to = SharedRef { buffer, token: Some(token), origin: (0, 0), transposed: false };
            match self.paths.by_engine(inst) {
                true => self.copy_by_engine(param, &slices, to)?,
                false => self.push_effect(GpuOp::Copy { atom: CopyAtom::Open, param, slices, to }),
            }
        }
        self.push_effect(GpuOp::Commit(ring, Some(token)));
        let ready = self.push(GpuOp::Wait(ring, At::Iteration(iteration)), vec![Type::Token(ring)])[0];
        for &inst in loads {
            if let Some(r) = &mut self.residents[self.tile.results[inst][0]] {
                r.token = Some(ready);
            }
        }
        Ok(ready)
    }

    /// The location of a value in shared memory.
    pub(super) fn resident(&self, v: Value) -> Result<SharedRef, CompileError> {
        let Resident { buffer, token } =
            self.residents[v].ok_or_else(|| CompileError::bug(format!("{v} is not in shared memory")))?;
        Ok(SharedRef { buffer, token, origin: (0, 0), transposed: false })
    }

    /// Stores a computed value, which is in registers, to a new buffer of its own.
    pub(super) fn store_resident(&mut self, v: Value) -> Result<(), CompileError> {
        let buffer = self.resident_buffer(v, v)?;
        let value = self.held_in(v, v)?;
        self.store_shared(value, buffer);
        Ok(())
    }

    /// A buffer for `v`, in which it then resides. It is zeroed if the layout of `like`, which is stored to it first, does not
    /// reach all of it.
    pub(super) fn resident_buffer(&mut self, v: Value, like: Value) -> Result<gpu::Buffer, CompileError> {
        let name = match self.tile.values[v].def {
            ValueDef::BlockParam(..) => "carried",
            _ => "tile",
        };
        let buffer = self.new_buffer(format!("{name}{}", self.k.buffers.len()), v)?;
        let shared = self.k.buffers[buffer].layout;
        let layout = self.layout_of(like)?;
        if layout.cover(0) < shared.rows || layout.cover(1) < shared.cols {
            self.push_effect(GpuOp::ZeroShared(buffer));
        }
        self.residents[v] = Some(Resident { buffer, token: None });
        Ok(buffer)
    }

    /// A value as the buffer of `held` needs it. The tile `held` may be real in fewer places; the value is 0 where `held` is
    /// not real.
    pub(super) fn held_in(&mut self, v: Value, held: Value) -> Result<gpu::Value, CompileError> {
        let layout = self.layout_of(v)?;
        let value = self.fragment(v, &layout)?;
        match self.extents.same_constraints(v, held) {
            true => self.refill(v, value, &[0, 1], 0.0),
            false => self.put_neutral(held, value, &[0, 1], 0.0),
        }
    }

    /// Stores a tile to a buffer of its own.
    pub(super) fn store_shared(&mut self, value: gpu::Value, buffer: gpu::Buffer) {
        let to = SharedRef { buffer, token: None, origin: (0, 0), transposed: false };
        self.push_effect(GpuOp::StoreShared { to, value });
    }
}
