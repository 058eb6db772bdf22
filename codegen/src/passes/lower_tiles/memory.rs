//! Loads, stores, and tiles kept in shared memory.

use super::{Columns, Lower, Resident, narrow};
use crate::analysis::{Home, StagingReason, contiguous_run};
use crate::error::CompileError;
use crate::gpu::{self, At, Cache, CopyAtom, Op as GpuOp, Reach, RingData, Scope, SharedRef, Type, access_elements};
use crate::layout::Fragment;
use crate::mutation::{Mutation, is_planted};
use atlas_dsl::ir::{ParamKind, ValueDef};
use atlas_dsl::op::Slice;
use atlas_dsl::reach::{constant, reach};
use atlas_dsl::{Dim, Inst, Op, Param, Value};

impl Lower<'_> {
    /// A Tile IR slice of a dim as a GPU IR slice.
    pub(super) fn slice(&mut self, slice: Slice, dim: Dim) -> Result<gpu::Slice, CompileError> {
        let scalar = self.scalar_layout();
        let reach = reach(self.tile, slice, dim);
        Ok(match slice {
            Slice::At(v) => {
                gpu::Slice::At { coord: self.fragment(v, None, &scalar)?, in_bounds: reach == Reach::Inside }
            }
            Slice::Tile { index, size } => {
                gpu::Slice::Tile { index: self.fragment(index, None, &scalar)?, size, offset: 0, len: size, reach }
            }
            Slice::Span { start, len } => match (constant(self.tile, start), reach, len) {
                // A constant part of a constant dim.
                (Some(first), Reach::Inside, _) => gpu::Slice::Whole { offset: first as u32, len },
                (None, Reach::Inside, _) if is_planted(Mutation::CountedIsFirst) => {
                    gpu::Slice::Whole { offset: 0, len }
                }
                // One element is a tile of one.
                (None, Reach::Inside, 1) => {
                    let index = self.fragment(start, None, &scalar)?;
                    gpu::Slice::Tile { index, size: 1, offset: 0, len: 1, reach }
                }
                _ => gpu::Slice::Span { start: self.fragment(start, None, &scalar)?, offset: 0, len },
            },
            Slice::Whole => gpu::Slice::Whole { offset: 0, len: self.tile.dims[dim].size.divisor() as u32 },
        })
    }

    pub(super) fn slices(&mut self, param: Param, slices: &[Slice]) -> Result<Vec<gpu::Slice>, CompileError> {
        let ParamKind::Tensor { dims, .. } = &self.tile.params[param].kind else {
            return Err(CompileError::bug("a slice of a scalar"));
        };
        let dims = dims.clone();
        slices.iter().zip(dims).map(|(&s, d)| self.slice(s, d)).collect()
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
                self.fill(&[inst], ring, zero)?;
                Ok(())
            }
            Home::Copied(_) => Ok(()),
            _ => {
                let layout = self.layout_of(v)?;
                self.fragment(v, None, &layout)?;
                if *self.placement.home(v) == Home::Stored {
                    self.store_resident(v)?;
                }
                Ok(())
            }
        }
    }

    pub(super) fn make_load(
        &mut self,
        inst: Inst,
        columns: Columns,
        layout: &Fragment,
    ) -> Result<gpu::Value, CompileError> {
        let Op::Load { param, slices } = self.tile.insts[inst].clone() else {
            return Err(CompileError::bug("not a load"));
        };
        let mut slices = self.slices(param, &slices)?;
        if let Some(last) = slices.iter_mut().rev().find(|s| s.len().is_some()) {
            *last = narrow(*last, columns);
        }
        let dtype = self.tile.ty(self.tile.results[inst][0]).dtype;
        Ok(self.push_tile(GpuOp::LoadGlobal { param, slices, cache: Cache::Normal }, dtype, layout))
    }

    /// A ring whose buffers hold the tiles of these loads; makes them resident there.
    pub(super) fn new_ring(&mut self, loads: &[Inst]) -> Result<gpu::Ring, CompileError> {
        let mut buffers = Vec::new();
        for &inst in loads {
            let v = self.tile.results[inst][0];
            let Op::Load { param, .. } = &self.tile.insts[inst] else { return Err(CompileError::bug("not a load")) };
            let ty = self.tile.ty(v).clone();
            let operand = *self.placement.home(v) == Home::Copied(StagingReason::Operand);
            let name = self.tile.params[*param].name.clone();
            let buffer = self.new_buffer(name, ty.dtype, &ty.shape, operand)?;
            self.residents[v] = Some(Resident { buffer, token: None });
            buffers.push(buffer);
        }
        Ok(self.k.rings.push(RingData { stages: 1, buffers, tx_bytes: 0, producer: Scope::Cta, consumer: Scope::Cta }))
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
            let slices = self.slices(param, &slices)?;
            let buffer =
                self.residents[v].map(|r| r.buffer).ok_or_else(|| CompileError::bug("a load without a buffer"))?;
            let atom = self.copy_atom(param, &slices);
            let to = SharedRef { buffer, token: Some(token), origin: (0, 0), transposed: false };
            self.push_effect(GpuOp::Copy { atom, param, slices, to });
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

    fn copy_atom(&self, param: Param, slices: &[gpu::Slice]) -> CopyAtom {
        let ParamKind::Tensor { dtype, .. } = self.k.params[param].kind else { return CopyAtom::Direct };
        match access_elements(&self.k, param, slices) * dtype.bytes() {
            bytes @ (4 | 8 | 16) => CopyAtom::CpAsync(bytes),
            _ => CopyAtom::Direct,
        }
    }

    /// Where a value is in shared memory.
    pub(super) fn resident(&self, v: Value) -> Result<SharedRef, CompileError> {
        let Resident { buffer, token } =
            self.residents[v].ok_or_else(|| CompileError::bug(format!("{v} is not in shared memory")))?;
        Ok(SharedRef { buffer, token, origin: (0, 0), transposed: false })
    }

    /// Stores a computed value, now in registers, to a new buffer of its own.
    pub(super) fn store_resident(&mut self, v: Value) -> Result<(), CompileError> {
        let buffer = self.resident_buffer(v, v, &[None])?;
        self.store_columns(v, v, buffer, None)
    }

    /// Evaluates a value that lives in shared memory alone, range by range.
    pub(super) fn store_resident_in_ranges(&mut self, v: Value, inst: Inst) -> Result<(), CompileError> {
        let ranges = self.ranges_of(inst, v);
        let buffer = self.resident_buffer(v, v, &ranges)?;
        for columns in ranges {
            self.store_columns(v, v, buffer, columns)?;
        }
        Ok(())
    }

    /// A buffer for the tile of `like`, stored in these ranges, in which `v` then lives; zeroed where no store reaches.
    pub(super) fn resident_buffer(
        &mut self,
        v: Value,
        like: Value,
        ranges: &[Columns],
    ) -> Result<gpu::Buffer, CompileError> {
        let ty = self.tile.ty(like).clone();
        let name = match self.tile.values[v].def {
            ValueDef::BlockParam(..) => "carried",
            _ => "tile",
        };
        let buffer = self.new_buffer(format!("{name}{}", self.k.buffers.len()), ty.dtype, &ty.shape, true)?;
        let shared = self.k.buffers[buffer].layout;
        for &columns in ranges {
            // A range has a layout of its own, which may reach fewer rows than that of the whole tile.
            let layout = self.layout_of_range(like, columns)?;
            let cols = columns.map_or(shared.cols, |(_, len)| len);
            if layout.cover(0) < shared.rows || layout.cover(1) < cols {
                self.push_effect(GpuOp::ZeroShared(buffer));
                break;
            }
        }
        self.residents[v] = Some(Resident { buffer, token: None });
        Ok(buffer)
    }

    /// Stores columns of a value to the buffer that holds a tile, which may be real in fewer places: zeros where it is not.
    pub(super) fn store_columns(
        &mut self,
        v: Value,
        held: Value,
        buffer: gpu::Buffer,
        columns: Columns,
    ) -> Result<(), CompileError> {
        let layout = self.layout_of_range(v, columns)?;
        let value = self.fragment(v, columns, &layout)?;
        let value = match self.extents.same_constraints(v, held) {
            true => self.refill(v, value, columns, &[0, 1], 0.0)?,
            false => self.put_neutral(held, value, columns, &[0, 1], 0.0)?,
        };
        let to = SharedRef { buffer, token: None, origin: (0, columns.map_or(0, |c| c.0)), transposed: false };
        self.push_effect(GpuOp::StoreShared { to, value });
        Ok(())
    }

    pub(super) fn lower_store(&mut self, inst: Inst) -> Result<(), CompileError> {
        let Op::Store { param, slices, value } = self.tile.insts[inst].clone() else {
            return Err(CompileError::bug("not a store"));
        };
        let slices = self.slices(param, &slices)?;
        for columns in self.ranges_of(inst, value) {
            let mut slices = slices.clone();
            if let Some(last) = slices.iter_mut().rev().find(|s| s.len().is_some()) {
                *last = narrow(*last, columns);
            }
            let ty = self.tile.ty(value).clone();
            let mut shape = ty.shape.clone();
            if let (Some(last), Some((_, len))) = (shape.last_mut(), columns) {
                *last = len;
            }
            let blocked = self.placement.blocked(&shape, ty.dtype.bytes());
            let in_shared = matches!(self.placement.home(value), Home::Carried | Home::Copied(_));
            let own = if in_shared || self.any_layout[inst] || *self.placement.home(value) == Home::Anywhere {
                blocked.clone()
            } else {
                self.layout_of_range(value, columns)?
            };
            let fragment = self.fragment(value, columns, &own)?;
            let scattered = shape.len() == 2 && ty.elements() >= 1024 && contiguous_run(&own) * ty.dtype.bytes() < 32;
            let fragment = if scattered { self.convert(fragment, &blocked) } else { fragment };
            let fragment = self.zero_for_store(inst, fragment, columns)?;
            self.push_effect(GpuOp::StoreGlobal { param, slices, value: fragment });
        }
        Ok(())
    }
}

impl Lower<'_> {
    /// Puts 0 where a stored tile is not real, but for what the store drops by itself.
    fn zero_for_store(
        &mut self,
        inst: Inst,
        fragment: gpu::Value,
        columns: Columns,
    ) -> Result<gpu::Value, CompileError> {
        let Op::Store { param, ref slices, value } = self.tile.insts[inst] else { return Ok(fragment) };
        let ParamKind::Tensor { dims, .. } = &self.tile.params[param].kind else { return Ok(fragment) };
        let kept = slices.iter().zip(dims).filter(|(s, _)| !matches!(s, Slice::At(_))).enumerate();
        let dropped: Vec<(u8, Slice, Dim)> = kept.map(|(axis, (&s, &d))| (axis as u8, s, d)).collect();
        let axes: Vec<u8> = self
            .extents
            .constraints(value)
            .filter(|c| !dropped.contains(&(c.axis, c.slice, c.dim)))
            .map(|c| c.axis)
            .collect();
        if axes.is_empty() {
            return Ok(fragment);
        }
        self.refill(value, fragment, columns, &axes, 0.0)
    }
}
