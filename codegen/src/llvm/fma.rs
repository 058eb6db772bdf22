//! Matrix products by fused multiply-adds: operands from shared memory, four k at a time in a loop.

use super::coords::Masked;
use super::words::memory_type;
use super::{Emitter, R, Regs, element};
use crate::gpu::SharedRef;
use crate::layout::Fragment;
use atlas_dsl::DType;
use inkwell::values::{BasicValueEnum, FloatValue};

impl<'c> Emitter<'c, '_> {
    /// `run` consecutive elements of a row of a buffer.
    pub(super) fn shared_element(
        &mut self,
        from: &SharedRef,
        row: (Masked<'c>, u32),
        col: (Masked<'c>, u32),
        run: u32,
    ) -> R<Vec<BasicValueEnum<'c>>> {
        let buffer = self.k.buffers[from.buffer].clone();
        let bytes = buffer.dtype.bytes();
        let row = (row.0, row.1 + from.origin.0);
        let col = (col.0, col.1 + from.origin.1);
        let offset = self.shared_offset(&buffer.layout, bytes, row, col)?;
        let at = self.shared_pointer(from, offset)?;
        let v = self.load_aligned(memory_type(self.cx, buffer.dtype, run), at, run * bytes)?;
        self.unpack(v, buffer.dtype, run)
    }

    /// f32 and f64: fused multiply-adds, four k at a time in a loop. k ascends for every element.
    pub(super) fn fma(
        &mut self,
        a: &SharedRef,
        b: &SharedRef,
        acc: Regs<'c>,
        shape: (u32, u32, u32),
        layout: &Fragment,
        dtype: DType,
    ) -> R<Regs<'c>> {
        const STEP: u32 = 4;
        let (row, col) = (self.thread_coord(layout, 0)?, self.thread_coord(layout, 1)?);
        let coords: Vec<Vec<u32>> = (0..layout.reg_count()).map(|r| layout.reg_coord(r)).collect();
        let mut rows: Vec<u32> = coords.iter().map(|c| c[0]).collect();
        rows.sort_unstable();
        rows.dedup();
        let mut cols: Vec<u32> = coords.iter().map(|c| c[1]).collect();
        cols.sort_unstable();
        cols.dedup();
        let run = layout.run(1, 16 / dtype.bytes());
        let ty = element(self.cx, dtype);
        let name = if dtype == DType::F64 { "llvm.fma.f64" } else { "llvm.fma.f32" };
        self.repeat("k", (self.i32(0), STEP, shape.2), acc, |e, k, sums| {
            let k = Masked { value: k, bits: !(STEP - 1) };
            let mut sums: Vec<FloatValue<'c>> = sums.into_iter().map(BasicValueEnum::into_float_value).collect();
            // left[row][dk], right[col][dk].
            let mut left = std::collections::BTreeMap::new();
            for &m in &rows {
                let at = e.inside_operand(a, !a.transposed, (row, m), layout.max_thread_coord(0), 1)?;
                left.insert(m, e.operand_quad(a, !a.transposed, at, k, STEP, 1)?[0].clone());
            }
            let mut right = std::collections::BTreeMap::new();
            for n in cols.iter().copied().step_by(run as usize) {
                let at = e.inside_operand(b, b.transposed, (col, n), layout.max_thread_coord(1), run)?;
                for (i, quad) in e.operand_quad(b, b.transposed, at, k, STEP, run)?.into_iter().enumerate() {
                    right.insert(n + i as u32, quad);
                }
            }
            for dk in 0..STEP as usize {
                for (s, c) in sums.iter_mut().zip(&coords) {
                    let (x, y) = (left[&c[0]][dk], right[&c[1]][dk]);
                    *s = e.call(name, ty, &[x, y, (*s).into()])?.into_float_value();
                }
            }
            Ok(sums.into_iter().map(Into::into).collect())
        })
    }

    /// A position of `run` neighbours along M or N, clamped to the buffer, because layouts may be padded beyond it.
    fn inside_operand(
        &self,
        r: &SharedRef,
        outer_in_rows: bool,
        at: (Masked<'c>, u32),
        most: u32,
        run: u32,
    ) -> R<(Masked<'c>, u32)> {
        let l = &self.k.buffers[r.buffer].layout;
        let (extent, first) = if outer_in_rows { (l.rows, r.origin.0) } else { (l.cols, r.origin.1) };
        let extent = extent - first;
        if most + at.1 + run <= extent {
            return Ok(at);
        }
        let moved = self.b.build_int_add(at.0.value, self.i32(i64::from(at.1)), "")?;
        // Whole vectors, so that they stay aligned.
        let top = self.i32(i64::from(extent.saturating_sub(run) / run * run));
        let less = self.b.build_int_compare(inkwell::IntPredicate::ULT, moved, top, "")?;
        let value = self.b.build_select(less, moved, top, "")?.into_int_value();
        Ok((Masked { value, bits: u32::MAX }, 0))
    }

    /// For `run` neighbours along the outer axis, their `step` elements along k.
    fn operand_quad(
        &mut self,
        r: &SharedRef,
        outer_in_rows: bool,
        outer: (Masked<'c>, u32),
        k: Masked<'c>,
        step: u32,
        run: u32,
    ) -> R<Vec<Vec<BasicValueEnum<'c>>>> {
        let bytes = self.k.buffers[r.buffer].dtype.bytes();
        let wide = 16 / bytes;
        if outer_in_rows {
            let mut out = Vec::new();
            for i in 0..run {
                let mut quad = Vec::new();
                for dk in (0..step).step_by(wide as usize) {
                    quad.extend(self.shared_element(r, (outer.0, outer.1 + i), (k, dk), wide.min(step))?);
                }
                out.push(quad);
            }
            return Ok(out);
        }
        let mut out = vec![Vec::new(); run as usize];
        for dk in 0..step {
            let values = self.shared_element(r, (k, dk), outer, run)?;
            for (quad, v) in out.iter_mut().zip(values) {
                quad.push(v);
            }
        }
        Ok(out)
    }
}
