//! Shared memory: loads and stores of fragments.

use super::coords::Masked;
use super::global::vectors;
use super::words::memory_type;
use super::{Emitter, R, Regs, SHARED};
use crate::error::CompileError;
use crate::gpu::{AccessKind, SharedRef, Value};
use crate::layout::Fragment;
use atlas_dsl::DType;
use inkwell::values::{IntValue, PointerValue};
use inkwell::{AddressSpace, IntPredicate};

impl<'c> Emitter<'c, '_> {
    /// Address of a byte of a stage.
    pub(super) fn shared_pointer(&self, at: &SharedRef, offset: IntValue<'c>) -> R<PointerValue<'c>> {
        let buffer = &self.k.buffers[at.buffer];
        let base = buffer.offset.ok_or_else(|| CompileError::bug("a buffer without an offset"))?;
        let mut offset = offset;
        if let Some(stage) = self.stage(at)? {
            offset = self.b.build_int_add(offset, stage, "")?;
        }
        let offset = self.b.build_int_add(offset, self.i32(i64::from(base)), "")?;
        self.shared_address(offset)
    }

    /// Bytes from a buffer's first stage to the one that is meant; `None` if there is one.
    pub(super) fn stage(&self, at: &SharedRef) -> R<Option<IntValue<'c>>> {
        let buffer = &self.k.buffers[at.buffer];
        if buffer.stages <= 1 {
            return Ok(None);
        }
        let token = at.token.ok_or_else(|| CompileError::bug("a stage without a token"))?;
        Ok(Some(self.b.build_int_mul(self.int(token)?, self.i32(i64::from(buffer.layout.bytes())), "")?))
    }

    /// The address of a buffer's first stage, as a number.
    pub(super) fn shared_start(&self, at: &SharedRef) -> R<IntValue<'c>> {
        let base = self.k.buffers[at.buffer].offset.ok_or_else(|| CompileError::bug("a buffer without an offset"))?;
        let shared = self.shared_base.const_to_int(self.i32_type());
        Ok(self.b.build_int_add(shared, self.i32(i64::from(base)), "")?)
    }

    /// An address in shared memory. The offset is the pointer, and the base the index. With hundreds of addresses on one base,
    /// LLVM's strength reduction compares all pairs, which took nine tenths of a compilation.
    pub(super) fn shared_address(&self, offset: IntValue<'c>) -> R<PointerValue<'c>> {
        let space = self.cx.ptr_type(AddressSpace::from(SHARED));
        let at = self.b.build_int_to_ptr(offset, space, "")?;
        let base = self.shared_base.const_to_int(self.i32_type());
        // SAFETY: address arithmetic; offsets stay inside the CTA's shared memory, for layouts give offsets inside
        // their buffers and the allocator places buffers inside the total.
        Ok(unsafe { self.b.build_gep(self.cx.i8_type(), at, &[base], "")? })
    }

    /// Row and column in the buffer of a tile coordinate, with separate thread and register parts. A tile whose rank is not 2
    /// is stored as rows of its last axis.
    fn place(&mut self, at: &SharedRef, layout: &Fragment, reg: u32) -> R<[(Masked<'c>, u32); 2]> {
        let coord = layout.reg_coord(reg);
        let none = Masked { value: self.i32(0), bits: 0 };
        let rank = layout.shape.len();
        if rank == 0 {
            return Ok([(none, 0), (none, 0)]);
        }
        let mut row = (none, 0);
        for (axis, (&extent, &fixed)) in layout.shape.iter().zip(&coord).take(rank - 1).enumerate() {
            let c = self.thread_coord(layout, axis as u8)?;
            row = (self.scale_add(row.0, extent, c)?, row.1 * extent + fixed);
        }
        let col = (self.thread_coord(layout, rank as u8 - 1)?, coord[rank - 1]);
        let (row, col) = if at.transposed { (col, row) } else { (row, col) };
        Ok([(row.0, row.1 + at.origin.0), (col.0, col.1 + at.origin.1)])
    }

    /// True if a register's coordinates are inside the tile; `None` if they always are. Only padded axes cost anything.
    fn inside(&mut self, layout: &Fragment, reg: u32, extents: &[u32]) -> R<Option<IntValue<'c>>> {
        let coord = layout.reg_coord(reg);
        let mut all: Option<IntValue<'c>> = None;
        for (axis, &extent) in extents.iter().enumerate() {
            if layout.max_thread_coord(axis as u8) + coord[axis] < extent {
                continue;
            }
            let c = self.thread_coord(layout, axis as u8)?;
            let at = self.b.build_int_add(c.value, self.i32(i64::from(coord[axis])), "")?;
            let p = self.b.build_int_compare(IntPredicate::ULT, at, self.i32(i64::from(extent)), "")?;
            all = Some(match all {
                None => p,
                Some(q) => self.b.build_and(p, q, "")?,
            });
        }
        Ok(all)
    }

    pub(super) fn load_shared(&mut self, from: &SharedRef, form: &AccessKind, result: Option<Value>) -> R<Regs<'c>> {
        let result = result.ok_or_else(|| CompileError::bug("a load without a result"))?;
        let (dtype, layout) = self.k.tile(result);
        let layout = layout.clone();
        let shared = self.k.buffers[from.buffer].layout;
        if *form == AccessKind::Matrix {
            return self.load_blocks_of(from, dtype, &layout);
        }
        let (run, within) = vectors(form, dtype)?;
        let ty = memory_type(self.cx, dtype, run);
        let mut out = Vec::with_capacity(layout.reg_count() as usize);
        for reg in (0..layout.reg_count()).step_by(run as usize) {
            let [row, col] = self.place(from, &layout, reg)?;
            let offset = self.shared_offset(&shared, dtype.bytes(), row, col)?;
            // Padding reads the rectangle's first element instead of its neighbours, and becomes zero.
            let inside = self.inside(&layout, reg, within)?;
            let first = shared.offset(from.origin.0, from.origin.1, dtype.bytes());
            let offset = match inside {
                None => offset,
                Some(p) => self.b.build_select(p, offset, self.i32(i64::from(first)), "")?.into_int_value(),
            };
            let at = self.shared_pointer(from, offset)?;
            let v = self.load_aligned(ty, at, run * dtype.bytes())?;
            let v = match inside {
                None => v,
                Some(p) => self.b.build_select(p, v, ty.const_zero(), "")?,
            };
            out.extend(self.unpack(v, dtype, run)?);
        }
        Ok(out)
    }

    pub(super) fn store_shared(&mut self, to: &SharedRef, value: Value, form: &AccessKind) -> R<()> {
        let (dtype, layout) = self.k.tile(value);
        let layout = layout.clone();
        let regs = self.regs(value)?.clone();
        let shared = self.k.buffers[to.buffer].layout;
        if *form == AccessKind::Matrix {
            return self.store_blocks_of(to, dtype, &layout, &regs);
        }
        let (run, within) = vectors(form, dtype)?;
        let first = self.is_first_copy(&layout)?;
        for reg in (0..layout.reg_count()).step_by(run as usize) {
            let [row, col] = self.place(to, &layout, reg)?;
            let offset = self.shared_offset(&shared, dtype.bytes(), row, col)?;
            let at = self.shared_pointer(to, offset)?;
            let real = match (self.inside(&layout, reg, within)?, first) {
                (Some(p), Some(q)) => Some(self.b.build_and(p, q, "")?),
                (p, q) => p.or(q),
            };
            self.store_run("shared", at, &regs[reg as usize..(reg + run) as usize], dtype, real)?;
        }
        Ok(())
    }

    /// Address of this lane's row of the four quarters of the block at a register.
    fn block_pointer(&mut self, at: &SharedRef, layout: &Fragment, reg: u32) -> R<PointerValue<'c>> {
        let mut warps = layout.clone();
        warps.threads.splice(..2, [crate::layout::Mode::replicated(32)]);
        let (lane_row, lane_col) = self.lane_place(true)?;
        let (warp_row, warp_col) = (self.thread_coord(&warps, 0)?, self.thread_coord(&warps, 1)?);
        let row = self.scale_add(warp_row, 1, lane_row)?;
        let col = self.scale_add(warp_col, 1, lane_col)?;
        let c = layout.reg_coord(reg);
        let buffer = self.k.buffers[at.buffer].clone();
        let place = ((row, c[0] + at.origin.0), (col, c[1] + at.origin.1));
        let offset = self.shared_offset(&buffer.layout, buffer.dtype.bytes(), place.0, place.1)?;
        self.shared_pointer(at, offset)
    }

    fn load_blocks_of(&mut self, from: &SharedRef, dtype: DType, layout: &Fragment) -> R<Regs<'c>> {
        let pair = memory_type(self.cx, dtype, 2);
        let mut out = Vec::with_capacity(layout.reg_count() as usize);
        for reg in (0..layout.reg_count()).step_by(8) {
            let at = self.block_pointer(from, layout, reg)?;
            for word in self.ldmatrix_x4(at, false)? {
                let v = self.b.build_bit_cast(word, pair, "")?.into_vector_value();
                out.push(self.b.build_extract_element(v, self.i32(0), "")?);
                out.push(self.b.build_extract_element(v, self.i32(1), "")?);
            }
        }
        Ok(out)
    }

    fn store_blocks_of(&mut self, to: &SharedRef, dtype: DType, layout: &Fragment, regs: &Regs<'c>) -> R<()> {
        for reg in (0..layout.reg_count()).step_by(8) {
            let at = self.block_pointer(to, layout, reg)?;
            let words =
                regs[reg as usize..reg as usize + 8].chunks(2).map(|p| self.pair(p, dtype)).collect::<R<Vec<_>>>()?;
            self.stmatrix_x4(at, &words)?;
        }
        Ok(())
    }

    pub(super) fn zero_shared(&mut self, buffer: crate::gpu::Buffer) -> R<()> {
        let data = self.k.buffers[buffer].clone();
        let words = data.bytes() / 16;
        let zero = self.i32_type().vec_type(4).const_zero();
        let base = data.offset.ok_or_else(|| CompileError::bug("a buffer without an offset"))?;
        let threads = self.k.threads;
        for round in 0..words.div_ceil(threads) {
            let word = self.b.build_int_add(self.coords.tid, self.i32(i64::from(round * threads)), "")?;
            let offset = self.b.build_int_mul(word, self.i32(16), "")?;
            let offset = self.b.build_int_add(offset, self.i32(i64::from(base)), "")?;
            // The predicate below keeps it inside the buffer.
            let at = self.shared_address(offset)?;
            if (round + 1) * threads > words {
                let p = self.b.build_int_compare(IntPredicate::ULT, word, self.i32(i64::from(words)), "")?;
                let w = self.i32(0);
                self.store_if(p, "shared", at, (&[w, w, w, w], 16))?;
            } else {
                let s = self.b.build_store(at, zero)?;
                s.set_alignment(16).map_err(|e| CompileError::bug(format!("alignment: {e}")))?;
            }
        }
        Ok(())
    }
}
