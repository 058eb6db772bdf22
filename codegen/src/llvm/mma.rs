//! Matrix products: fragments from shared memory or registers, k step by k step.

use super::coords::Masked;
use super::global::VectorOf;
use super::{Emitter, R, Regs, element, struct_of};
use crate::error::CompileError;
use crate::gpu::atom::MmaAtom;
use crate::gpu::{Buffer, Operand, SharedRef, Value, WarpGrid};
use crate::layout::{Fragment, Mode};
use atlas_dsl::DType;
use inkwell::values::{BasicValueEnum, FloatValue, IntValue, PointerValue};

/// How an accumulator's 16x8 blocks lie over warps, read off its layout.
struct Blocks {
    warps_m: u32,
    warps_n: u32,
    rep_m: u32,
    rep_n: u32,
}

/// Steps of 16 along K that are written out one after the other, and so many instructions above which a product of more
/// steps becomes a loop over groups of them: more in line is compiled slowly, and no faster.
const STEPS_AT_ONCE: u32 = 4;
const MOST_IN_LINE: u32 = 512;

/// A product on 16-bit operands.
struct Steps<'o> {
    a: &'o Operand,
    right: &'o SharedRef,
    atom: MmaAtom,
    /// Extent of K.
    depth: u32,
    blocks: Blocks,
}

/// Addresses made in a k step, by buffer, runtime position and what the swizzle sees of the constant position; with
/// each the rest of its constant position, in bytes.
type Addresses<'c> = Vec<((Buffer, IntValue<'c>, bool, u32), (u32, PointerValue<'c>))>;

impl<'c> Emitter<'c, '_> {
    pub(super) fn mma(
        &mut self,
        a: &Operand,
        b: &Operand,
        acc: Option<Value>,
        atom: MmaAtom,
        shape: (u32, u32, u32),
        result: Option<Value>,
    ) -> R<Regs<'c>> {
        let result = result.ok_or_else(|| CompileError::bug("a product without a result"))?;
        let (dtype, layout) = self.k.tile(result);
        let layout = layout.clone();
        let start = match acc {
            Some(v) => self.regs(v)?.clone(),
            None => vec![self.zero(dtype); layout.reg_count() as usize],
        };
        match atom {
            MmaAtom::M16N8K16Bf16 | MmaAtom::M16N8K16F16 => self.mma_16bit(a, b, start, atom, shape, &layout),
            MmaAtom::M16N8K8Tf32 => self.mma_tf32(a, b, start, shape, &layout),
            MmaAtom::FmaF32 | MmaAtom::FmaF64 => self.fma(a, b, start, shape, &layout, dtype),
            MmaAtom::WgmmaBf16 => Err(CompileError::bug("a product by wgmma")),
        }
    }

    fn blocks(layout: &Fragment, shape: (u32, u32, u32)) -> Blocks {
        let grid = WarpGrid::of(layout);
        let rep_m = shape.0.div_ceil(16 * grid.rows);
        Blocks { warps_m: grid.rows, warps_n: grid.cols, rep_m, rep_n: layout.reg_count() / 4 / rep_m }
    }

    /// The warp's number along rows and along columns.
    fn warp_place(&mut self, blocks: &Blocks) -> R<(Masked<'c>, Masked<'c>)> {
        let probe = |m: Mode| Fragment {
            shape: vec![1, 1],
            threads: vec![
                Mode::replicated(32),
                if m.axis == Some(0) { m } else { Mode::replicated(blocks.warps_m) },
                if m.axis == Some(1) { m } else { Mode::replicated(blocks.warps_n) },
                Mode::replicated(self.k.threads / 32 / (blocks.warps_m * blocks.warps_n)),
            ],
            regs: vec![],
        };
        let rows = probe(Mode::new(blocks.warps_m, 16, 0));
        let cols = probe(Mode::new(blocks.warps_n, 8 * blocks.rep_n, 1));
        Ok((self.thread_coord(&rows, 0)?, self.thread_coord(&cols, 1)?))
    }

    /// Row and column that this lane addresses within the four 8x8 blocks of an `ldmatrix.x4`. `by_rows`:
    /// blocks 0 and 1 differ in the row, else in the column.
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

    /// Keeps a runtime block position inside the buffer: warps beyond the last block repeat it.
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

    /// Four 8x8 blocks at a 16x16 position of an operand `[outer, k]`, where `outer` is M or N.
    ///
    /// The operand's rows lie along memory rows (`k` contiguous) or along memory columns; in the latter
    /// case the blocks are read transposed.
    #[allow(clippy::too_many_arguments, reason = "a position has two runtime and two constant parts")]
    fn load_blocks(
        &mut self,
        made: &mut Addresses<'c>,
        from: &SharedRef,
        k_contiguous: bool,
        outer_first: bool,
        outer: (Masked<'c>, u32),
        (k, ahead): (u32, Option<IntValue<'c>>),
    ) -> R<Vec<IntValue<'c>>> {
        let buffer = self.k.buffers[from.buffer].clone();
        let (row_at, col_at) = if k_contiguous { (outer.1, k) } else { (k, outer.1) };
        let (row_at, col_at) = (row_at + from.origin.0, col_at + from.origin.1);
        let (low, high) = buffer.layout.split(row_at * buffer.layout.pitch + col_at * buffer.dtype.bytes());
        let key = (from.buffer, outer.0.value, outer_first, low);
        if let Some(&(_, (from_high, at))) = made.iter().find(|(k, _)| *k == key) {
            let offset = self.i32(i64::from(high) - i64::from(from_high));
            // SAFETY: address arithmetic within one buffer.
            let at = unsafe { self.b.build_gep(self.cx.i8_type(), at, &[offset], "")? };
            return self.ldmatrix_x4(at, !k_contiguous);
        }
        // Block order wanted: A is (outer, k), (outer+8, k), (outer, k+8), (outer+8, k+8); B swaps the middle two.
        let (lane_row, lane_col) = self.lane_place(k_contiguous == outer_first)?;
        let zero = Masked { value: self.i32(0), bits: 0 };
        let (row, col) = if k_contiguous {
            (self.sum(outer.0, lane_row)?, self.sum(zero, lane_col)?)
        } else {
            (self.sum(zero, lane_row)?, self.sum(outer.0, lane_col)?)
        };
        let offset = self.shared_offset(&buffer.layout, buffer.dtype.bytes(), (row, row_at), (col, col_at))?;
        let offset = match ahead {
            Some(bytes) => self.b.build_int_add(offset, bytes, "")?,
            None => offset,
        };
        let at = self.shared_pointer(from, offset)?;
        // A clamped position is a runtime value that holds its constant part: it shares with nothing.
        made.push((key, (high, at)));
        self.ldmatrix_x4(at, !k_contiguous)
    }

    fn mma_16bit(
        &mut self,
        a: &Operand,
        b: &Operand,
        acc: Regs<'c>,
        atom: MmaAtom,
        shape: (u32, u32, u32),
        layout: &Fragment,
    ) -> R<Regs<'c>> {
        let blocks = Self::blocks(layout, shape);
        let Operand::Shared(right) = b else {
            return Err(CompileError::bug("the right operand of mma.sync lies in shared memory"));
        };
        let steps = shape.2.div_ceil(16);
        let product = Steps { a, right, atom, depth: shape.2, blocks };
        let groups = steps / STEPS_AT_ONCE;
        let Operand::Shared(left) = a else { return self.mma_steps(&product, acc, 0..steps, None) };
        if groups < 2 || steps * product.blocks.rep_m * product.blocks.rep_n < MOST_IN_LINE {
            return self.mma_steps(&product, acc, 0..steps, None);
        }
        // Along K an operand goes on in a straight line from group to group: the swizzle sees no more of K than a group.
        let stride = |e: &Self, r: &SharedRef, k_contiguous: bool| {
            let buffer = &e.k.buffers[r.buffer];
            16 * STEPS_AT_ONCE * if k_contiguous { buffer.dtype.bytes() } else { buffer.layout.pitch }
        };
        let strides = (stride(self, left, !left.transposed), stride(self, right, right.transposed));
        self.loops += 1;
        let acc = self.repeat("k", (self.i32(0), 1, groups), acc, |e, group, acc| {
            let far = |e: &Self, stride: u32| e.b.build_int_mul(group, e.i32(i64::from(stride)), "");
            let ahead = (far(e, strides.0)?, far(e, strides.1)?);
            e.mma_steps(&product, acc, 0..STEPS_AT_ONCE, Some(ahead))
        })?;
        self.loops -= 1;
        self.mma_steps(&product, acc, groups * STEPS_AT_ONCE..steps, None)
    }

    /// Steps of a product; `ahead` is how far, in bytes, the operands lie behind what the steps' numbers say.
    fn mma_steps(
        &mut self,
        product: &Steps<'_>,
        mut acc: Regs<'c>,
        steps: std::ops::Range<u32>,
        ahead: Option<(IntValue<'c>, IntValue<'c>)>,
    ) -> R<Regs<'c>> {
        let Steps { a, right, atom, depth, ref blocks } = *product;
        let (warp_row, warp_col) = self.warp_place(blocks)?;
        let operand = atom.info().operand;
        let extent = |e: &Self, r: &SharedRef, outer_rows: bool| {
            let l = &e.k.buffers[r.buffer].layout;
            if outer_rows { l.rows } else { l.cols }
        };
        for k in steps.map(|step| 16 * step) {
            // Left fragments of this k step, one per 16 rows.
            let mut left: Vec<Vec<IntValue<'c>>> = Vec::new();
            // Within a k step, addresses that differ by a constant are made from one another.
            let mut made = Addresses::new();
            for m in 0..blocks.rep_m {
                let fixed = m * 16 * blocks.warps_m;
                left.push(match a {
                    Operand::Shared(from) => {
                        let size = extent(self, from, !from.transposed);
                        let place = self.clamp(warp_row, fixed, (blocks.warps_m - 1) * 16, size)?;
                        self.load_blocks(&mut made, from, !from.transposed, true, place, (k, ahead.map(|a| a.0)))?
                    }
                    Operand::Fragment(v) => {
                        // Registers of an accumulator: (r, c), (r, c+1), (r+8, c), (r+8, c+1) per 8 columns.
                        let regs = self.regs(*v)?.clone();
                        let steps = depth.div_ceil(16) * 2;
                        let base = ((m * steps + k / 8) * 4) as usize;
                        (0..4).map(|i| self.pair(&regs[base + 2 * i..base + 2 * i + 2], operand)).collect::<R<_>>()?
                    }
                });
            }
            for n2 in 0..blocks.rep_n / 2 {
                let k_contiguous = right.transposed;
                let size = extent(self, right, k_contiguous);
                let first = if k_contiguous { right.origin.0 } else { right.origin.1 };
                let most = (blocks.warps_n - 1) * 8 * blocks.rep_n;
                let place = self.clamp(warp_col, n2 * 16, most, size - first)?;
                let r = self.load_blocks(&mut made, right, k_contiguous, false, place, (k, ahead.map(|a| a.1)))?;
                for (half, pair) in [(0, [r[0], r[1]]), (1, [r[2], r[3]])] {
                    for (m, l) in left.iter().enumerate() {
                        let at = ((m as u32 * blocks.rep_n + 2 * n2 + half) * 4) as usize;
                        let out = self.mma_step(atom, l, &pair, &acc[at..at + 4])?;
                        acc[at..at + 4].copy_from_slice(&out);
                    }
                }
            }
        }
        Ok(acc)
    }

    /// Two 16-bit registers as one 32-bit register.
    pub(super) fn pair(&self, values: &[BasicValueEnum<'c>], dtype: DType) -> R<IntValue<'c>> {
        let v = self.pack(values, dtype)?;
        Ok(self.b.build_bit_cast(v, self.i32_type(), "")?.into_int_value())
    }

    fn mma_step(
        &self,
        atom: MmaAtom,
        a: &[IntValue<'c>],
        b: &[IntValue<'c>],
        c: &[BasicValueEnum<'c>],
    ) -> R<Vec<BasicValueEnum<'c>>> {
        let f32t = self.cx.f32_type();
        let out = struct_of(self.cx, f32t, 4);
        let mut args: Vec<BasicValueEnum<'c>> = Vec::new();
        let name = match atom {
            MmaAtom::M16N8K16Bf16 => "llvm.nvvm.mma.m16n8k16.row.col.bf16",
            MmaAtom::M16N8K16F16 => "llvm.nvvm.mma.m16n8k16.row.col.f32.f32",
            MmaAtom::M16N8K8Tf32 => "llvm.nvvm.mma.m16n8k8.row.col.tf32",
            _ => return Err(CompileError::bug("not a tensor-core atom")),
        };
        for &r in a.iter().chain(b) {
            args.push(if atom == MmaAtom::M16N8K16F16 {
                self.b.build_bit_cast(r, self.cx.f16_type().vec_type(2), "")?
            } else {
                r.into()
            });
        }
        args.extend_from_slice(c);
        let r = self.call(name, out.into(), &args)?;
        self.fields(r, 4)
    }

    /// tf32: operands are read from shared memory element by element and rounded.
    fn mma_tf32(
        &mut self,
        a: &Operand,
        b: &Operand,
        mut acc: Regs<'c>,
        shape: (u32, u32, u32),
        layout: &Fragment,
    ) -> R<Regs<'c>> {
        let blocks = Self::blocks(layout, shape);
        let (warp_row, warp_col) = self.warp_place(&blocks)?;
        let (Operand::Shared(a), Operand::Shared(b)) = (a, b) else {
            return Err(CompileError::bug("tf32 operands lie in shared memory"));
        };
        let rest = Mode::replicated(self.k.threads / 32);
        let lane =
            Fragment { shape: vec![1, 1], threads: vec![Mode::new(4, 1, 1), Mode::new(8, 1, 0), rest], regs: vec![] };
        let (group, quad) = (self.thread_coord(&lane, 0)?, self.thread_coord(&lane, 1)?);
        for k in (0..shape.2).step_by(8) {
            let mut left = Vec::new();
            for m in 0..blocks.rep_m {
                let layout = &self.k.buffers[a.buffer].layout;
                let size = if a.transposed { layout.cols - a.origin.1 } else { layout.rows - a.origin.0 };
                let (row, fixed) = self.clamp(warp_row, m * 16 * blocks.warps_m, (blocks.warps_m - 1) * 16, size)?;
                let row = self.sum(row, group)?;
                let mut regs = Vec::new();
                for (dm, dk) in [(0, 0), (8, 0), (0, 4), (8, 4)] {
                    regs.push(self.tf32_element(a, (row, fixed + dm), (quad, k + dk), a.transposed)?);
                }
                left.push(regs);
            }
            for n in 0..blocks.rep_n {
                let layout = &self.k.buffers[b.buffer].layout;
                let size = if b.transposed { layout.rows - b.origin.0 } else { layout.cols - b.origin.1 };
                let most = (blocks.warps_n - 1) * 8 * blocks.rep_n;
                let (col, fixed) = self.clamp(warp_col, n / 2 * 16, most, size)?;
                let col = self.sum(col, group)?;
                let mut right = Vec::new();
                for dk in [0, 4] {
                    right.push(self.tf32_element(b, (col, fixed + n % 2 * 8), (quad, k + dk), !b.transposed)?);
                }
                for (m, l) in left.iter().enumerate() {
                    let at = ((m as u32 * blocks.rep_n + n) * 4) as usize;
                    let out = self.mma_step(MmaAtom::M16N8K8Tf32, l, &right, &acc[at..at + 4])?;
                    acc[at..at + 4].copy_from_slice(&out);
                }
            }
        }
        Ok(acc)
    }

    /// An element of an operand at (outer, k), rounded to tf32. `outer_in_columns`: the outer axis lies
    /// along memory columns.
    fn tf32_element(
        &mut self,
        from: &SharedRef,
        outer: (Masked<'c>, u32),
        k: (Masked<'c>, u32),
        outer_in_columns: bool,
    ) -> R<IntValue<'c>> {
        let (row, col) = if outer_in_columns { (k, outer) } else { (outer, k) };
        let v = self.shared_element(from, row, col, 1)?[0];
        Ok(self.call("llvm.nvvm.f2tf32.rna", self.i32_type().into(), &[v])?.into_int_value())
    }

    /// `run` consecutive elements of a row of a buffer.
    fn shared_element(
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
        let scalar = element(self.cx, buffer.dtype);
        if run == 1 {
            return Ok(vec![self.load_aligned(scalar, at, bytes)?]);
        }
        let v = self.load_aligned(scalar.into_float_or_int_vector(run), at, run * bytes)?.into_vector_value();
        (0..run).map(|i| Ok(self.b.build_extract_element(v, self.i32(i64::from(i)), "")?)).collect()
    }

    /// f32 and f64: fused multiply-adds, four k at a time in a loop. k runs upward for every element.
    fn fma(
        &mut self,
        a: &Operand,
        b: &Operand,
        acc: Regs<'c>,
        shape: (u32, u32, u32),
        layout: &Fragment,
        dtype: DType,
    ) -> R<Regs<'c>> {
        let (Operand::Shared(a), Operand::Shared(b)) = (a, b) else {
            return Err(CompileError::bug("operands of fused multiply-adds lie in shared memory"));
        };
        const STEP: u32 = 4;
        let (row, col) = (self.thread_coord(layout, 0)?, self.thread_coord(layout, 1)?);
        let coords: Vec<Vec<u32>> = (0..layout.reg_count()).map(|r| layout.reg_coord(r)).collect();
        let mut rows: Vec<u32> = coords.iter().map(|c| c[0]).collect();
        rows.sort_unstable();
        rows.dedup();
        let mut cols: Vec<u32> = coords.iter().map(|c| c[1]).collect();
        cols.sort_unstable();
        cols.dedup();
        let run = Self::register_run(layout, 1, 16 / dtype.bytes());
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

    /// A position of `run` neighbours along M or N kept inside the buffer; layouts may be padded beyond it.
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
