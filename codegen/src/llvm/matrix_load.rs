//! Operands of tensor cores from shared memory: `ldmatrix` for 16-bit elements, single elements for others.

use super::coords::Masked;
use super::{Emitter, R, Regs};
use crate::error::CompileError;
use crate::gpu::{AccessKind, SharedRef, Side, Value};
use crate::layout::{Fragment, Mode};
use inkwell::values::{BasicValueEnum, IntValue, PointerValue};

/// Addresses computed for a load, keyed by the runtime position and the part of the constant position that the swizzle sees.
/// Each has the rest of its constant position, in bytes.
type Addresses<'c> = Vec<((IntValue<'c>, u32), (u32, PointerValue<'c>))>;

/// The position of an operand `[outer, k]` in shared memory, where `outer` is M or N.
struct OperandSource<'r, 'c> {
    from: &'r SharedRef,
    side: Side,
    /// An offset in bytes.
    further: Option<IntValue<'c>>,
}

impl OperandSource<'_, '_> {
    /// True if K is the axis of the buffer's rows.
    fn is_k_contiguous(&self) -> bool {
        (self.side == Side::Left) != self.from.transposed
    }

    /// The rectangle's first position along M or N, and along K.
    fn origin(&self) -> (u32, u32) {
        let (row, col) = self.from.origin;
        if self.is_k_contiguous() { (row, col) } else { (col, row) }
    }
}

impl<'c> Emitter<'c, '_> {
    pub(super) fn load_matrix(
        &mut self,
        side: Side,
        from: &SharedRef,
        further: Option<(Value, u32)>,
        form: &AccessKind,
        result: Option<Value>,
    ) -> R<Regs<'c>> {
        let result = result.ok_or_else(|| CompileError::bug("a load without a result"))?;
        let (dtype, layout) = self.k.tile(result);
        let layout = layout.clone();
        let mut source = OperandSource { from, side, further: None };
        if let Some((by, elements)) = further {
            let buffer = &self.k.buffers[from.buffer];
            let (row, col) = if source.is_k_contiguous() { (0, elements) } else { (elements, 0) };
            let bytes = buffer.layout.linear_offset(row, col, dtype.bytes());
            source.further = Some(self.b.build_int_mul(self.int(by)?, self.i32(i64::from(bytes)), "")?);
        }
        match form {
            AccessKind::Matrix => self.load_by_blocks(&source, &layout),
            AccessKind::Vector { .. } => self.load_by_elements(&source, &layout),
        }
    }

    /// A warp's position along M or N, and the last position of any warp.
    fn warp_place(&mut self, layout: &Fragment, outer: u8) -> R<(Masked<'c>, u32)> {
        let mut warps = layout.clone();
        warps.threads.splice(..2, [Mode::replicated(32)]);
        Ok((self.thread_coord(&warps, outer)?, warps.max_thread_coord(outer)))
    }

    /// The number of positions along M or N in the buffer, from the rectangle's first on.
    fn extent(&self, source: &OperandSource<'_, 'c>) -> u32 {
        let l = &self.k.buffers[source.from.buffer].layout;
        if source.is_k_contiguous() { l.rows - source.from.origin.0 } else { l.cols - source.from.origin.1 }
    }

    /// Words of two elements, four for each 16 positions along M or N.
    fn load_by_blocks(&mut self, source: &OperandSource<'_, 'c>, layout: &Fragment) -> R<Regs<'c>> {
        let outer = source.side.outer();
        let (warp, most) = self.warp_place(layout, outer)?;
        let extent = self.extent(source);
        // Addresses that differ by a constant are made from one another.
        let mut made = Addresses::new();
        let mut words = Vec::with_capacity(layout.reg_count() as usize / 2);
        for reg in (0..layout.reg_count()).step_by(8) {
            let fixed = layout.reg_coord(reg)[usize::from(outer)];
            let place = self.clamp(warp, fixed, most, extent)?;
            words.extend(self.load_blocks(&mut made, source, place)?.into_iter().map(BasicValueEnum::from));
        }
        Ok(words)
    }

    /// Elements, each read on its own.
    fn load_by_elements(&mut self, source: &OperandSource<'_, 'c>, layout: &Fragment) -> R<Regs<'c>> {
        let outer = source.side.outer();
        let (warp, most) = self.warp_place(layout, outer)?;
        let extent = self.extent(source);
        let rest = Mode::replicated(layout.thread_count() / 32);
        let lanes = layout.threads[..2].iter().copied().chain([rest]).collect();
        let lane = Fragment { shape: vec![1, 1], threads: lanes, regs: vec![] };
        let (group, quad) = (self.thread_coord(&lane, outer)?, self.thread_coord(&lane, 1 - outer)?);
        let mut out = Vec::with_capacity(layout.reg_count() as usize);
        for reg in 0..layout.reg_count() {
            let at = layout.reg_coord(reg);
            let (fixed, k) = (at[usize::from(outer)], at[usize::from(1 - outer)]);
            let (place, first) = self.clamp(warp, fixed / 16 * 16, most, extent)?;
            let place = (self.sum(place, group)?, first + fixed % 16);
            let (row, col) = if source.is_k_contiguous() { (place, (quad, k)) } else { ((quad, k), place) };
            out.push(self.shared_element(source.from, row, col, 1)?[0]);
        }
        Ok(out)
    }

    /// Row and column that this lane addresses within the four 8x8 blocks of an `ldmatrix.x4`. Blocks 0 and 1 differ in the row
    /// if `by_rows` is set, and otherwise in the column.
    pub(super) fn lane_place(&mut self, by_rows: bool) -> R<(Masked<'c>, Masked<'c>)> {
        let rest = Mode::replicated(self.k.threads / 32);
        let (first, second) = if by_rows { (0, 1) } else { (1, 0) };
        let lane = Fragment {
            shape: vec![1, 1],
            threads: vec![Mode::new(8, 1, 0), Mode::new(2, 8, first), Mode::new(2, 8, second), rest],
            regs: vec![],
        };
        Ok((self.thread_coord(&lane, 0)?, self.thread_coord(&lane, 1)?))
    }

    fn sum(&self, a: Masked<'c>, b: Masked<'c>) -> R<Masked<'c>> {
        self.scale_add(a, 1, b)
    }

    /// Clamps a runtime block position to the buffer: warps beyond the last block repeat it.
    fn clamp(&self, at: Masked<'c>, fixed: u32, most: u32, extent: u32) -> R<(Masked<'c>, u32)> {
        if most + fixed + 16 <= extent.next_multiple_of(16) {
            return Ok((at, fixed));
        }
        let moved = self.b.build_int_add(at.value, self.i32(i64::from(fixed)), "")?;
        let top = self.i32(i64::from(extent.next_multiple_of(16) - 16));
        let less = self.b.build_int_compare(inkwell::IntPredicate::ULT, moved, top, "")?;
        let value = self.b.build_select(less, moved, top, "")?.into_int_value();
        Ok((Masked { value, bits: !15 }, 0))
    }

    /// Four 8x8 blocks at a 16x16 position of an operand. They are read transposed unless K runs along the buffer's rows.
    fn load_blocks(
        &mut self,
        made: &mut Addresses<'c>,
        source: &OperandSource<'_, 'c>,
        outer: (Masked<'c>, u32),
    ) -> R<Vec<IntValue<'c>>> {
        let (k_contiguous, buffer) = (source.is_k_contiguous(), self.k.buffers[source.from.buffer].clone());
        let (first, k) = source.origin();
        let (row_at, col_at) = if k_contiguous { (outer.1 + first, k) } else { (k, outer.1 + first) };
        let moving_col = if k_contiguous { 8 } else { outer.0.bits | 8 };
        let parts = buffer.layout.constant_part((row_at, col_at), moving_col, buffer.dtype.bytes());
        let key = parts.map(|(low, _)| (outer.0.value, low));
        let known = key.and_then(|key| made.iter().find(|(k, _)| *k == key));
        if let (Some(&(_, (from_high, at))), Some((_, high))) = (known, parts) {
            let offset = self.i32(i64::from(high) - i64::from(from_high));
            // SAFETY: address arithmetic within one buffer.
            let at = unsafe { self.b.build_gep(self.cx.i8_type(), at, &[offset], "")? };
            return self.ldmatrix_x4(at, !k_contiguous);
        }
        // Block order wanted: A is (outer, k), (outer+8, k), (outer, k+8), (outer+8, k+8); B swaps the middle two.
        let (lane_row, lane_col) = self.lane_place(k_contiguous == (source.side == Side::Left))?;
        let zero = Masked { value: self.i32(0), bits: 0 };
        let (row, col) = if k_contiguous {
            (self.sum(outer.0, lane_row)?, self.sum(zero, lane_col)?)
        } else {
            (self.sum(zero, lane_row)?, self.sum(outer.0, lane_col)?)
        };
        let offset = self.shared_offset(&buffer.layout, buffer.dtype.bytes(), (row, row_at), (col, col_at))?;
        let offset = match source.further {
            Some(bytes) => self.b.build_int_add(offset, bytes, "")?,
            None => offset,
        };
        let at = self.shared_pointer(source.from, offset)?;
        // A clamped position is a runtime value that holds its constant part: it shares with nothing.
        if let (Some(key), Some((_, high))) = (key, parts) {
            made.push((key, (high, at)));
        }
        self.ldmatrix_x4(at, !k_contiguous)
    }
}
