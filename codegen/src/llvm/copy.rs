//! Copies of tiles from global to shared memory. Chunks of rows are distributed over the threads in turn.

use super::coords::Masked;
use super::global::{AxisStride, GlobalView};
use super::{Emitter, R, element};
use crate::error::CompileError;
use crate::gpu::{BufferData, COPIED_AT_ONCE, Cache, CopyAtom, SharedRef, Slice};
use atlas_dsl::{DType, Dim, Param};
use inkwell::IntPredicate;
use inkwell::values::{IntValue, PointerValue};

/// Data that all chunks of a copy share.
struct Copy<'c> {
    atom: CopyAtom,
    /// Bytes of a chunk.
    bytes: u32,
    /// Elements of a chunk.
    per: u32,
    /// Chunks of the tile.
    total: u32,
    buffer: BufferData,
    view: GlobalView<'c>,
    checks: Vec<(u8, Slice, Dim)>,
    to: SharedRef,
}

impl Copy<'_> {
    /// Chunks of a row.
    fn in_row(&self) -> u32 {
        self.buffer.layout.cols / self.per
    }

    /// Rounds of a row, if all threads take a whole number of rounds for it.
    fn row_rounds(&self, threads: u32) -> Option<u32> {
        let in_row = self.in_row();
        (in_row > 0 && in_row.is_multiple_of(threads)).then(|| in_row / threads)
    }

    /// Rounds of a group, at most [`COPIED_AT_ONCE`]. A group is whole rows or an equal part of each row, so that the steps
    /// from a group's first chunk are the same in every group. A row without a large equal part has groups without steps.
    fn group_rounds(&self, threads: u32) -> u32 {
        match self.row_rounds(threads) {
            Some(row) if row <= COPIED_AT_ONCE => COPIED_AT_ONCE / row * row,
            Some(row) => {
                let part = (COPIED_AT_ONCE / 2..=COPIED_AT_ONCE).rev().find(|n| row.is_multiple_of(*n));
                part.unwrap_or(COPIED_AT_ONCE)
            }
            None => COPIED_AT_ONCE,
        }
    }

    /// Rows and columns from a thread's first chunk in a group of this many rounds to the chunk `i` rounds later; `None` if
    /// they are not the same in every group.
    fn step(&self, i: u32, group: u32, threads: u32) -> Option<(u32, u32)> {
        if threads.is_multiple_of(self.in_row()) {
            return Some((i * (threads / self.in_row()), 0));
        }
        let row = self.row_rounds(threads)?;
        let only = self.total.div_ceil(threads) <= group;
        let alike = only || group.is_multiple_of(row) || row.is_multiple_of(group);
        alike.then(|| (i / row, i % row * threads * self.per))
    }
}

/// Chunks of a thread, whose addresses are computed from one another.
struct ChunkRun<'c> {
    /// Row and column of the first.
    row: Masked<'c>,
    col: Masked<'c>,
    /// The row of the last chunk, counted from the first's, and the source of the first chunk's column of it.
    row_starts: (u32, PointerValue<'c>),
    /// Addresses in shared memory, keyed by the part of the distance from the first that the swizzle sees, with the remaining
    /// bytes.
    made: Vec<(u32, u32, PointerValue<'c>)>,
}

/// One chunk of one thread.
struct Chunk<'c> {
    from: PointerValue<'c>,
    to: PointerValue<'c>,
    /// True if it is inside the tensor; `None` if all are.
    real: Option<IntValue<'c>>,
}

impl<'c> Emitter<'c, '_> {
    /// Starts the copy of a tile into a stage. Chunks outside the tensor, and the buffer's padding, are filled with zeros.
    pub(super) fn copy(&mut self, atom: CopyAtom, param: Param, slices: &[Slice], to: &SharedRef) -> R<()> {
        let buffer = self.k.buffers[to.buffer].clone();
        let Some(bytes) = atom.chunk_bytes(buffer.dtype) else {
            return Err(CompileError::bug("a copy by the tensor copy engine"));
        };
        let view = self.view(param, slices)?;
        let checks = self.checks(param, slices)?;
        if view.strides.len() > 2 {
            return Err(CompileError::bug("a copy of a tile of rank above 2"));
        }
        let per = bytes / buffer.dtype.bytes();
        let total = buffer.layout.rows * (buffer.layout.cols / per);
        let c = Copy { atom, bytes, per, total, buffer, view, checks, to: *to };
        let rounds = total.div_ceil(self.k.threads);
        if bytes == 16 || rounds <= COPIED_AT_ONCE {
            return self.copy_group(&c, (self.coords.tid, 0), rounds);
        }
        let group = c.group_rounds(self.k.threads);
        self.copy_in_groups(&c, group, rounds.div_ceil(group))
    }

    /// A loop over groups of this many chunks of each thread.
    fn copy_in_groups(&mut self, c: &Copy<'c>, group: u32, groups: u32) -> R<()> {
        let step = self.k.threads * group;
        self.loops += 1;
        self.repeat("copies", (self.coords.tid, step, groups * step), vec![], |e, chunk, none| {
            e.copy_group(c, (chunk, groups - 1), group)?;
            Ok(none)
        })?;
        self.loops -= 1;
        Ok(())
    }

    /// This many chunks of each thread, from a first one on. The first one is among the first chunks, or a number of groups
    /// later. Chunks that pass through registers are all loaded before any of them is stored.
    fn copy_group(&mut self, c: &Copy<'c>, (first, later): (IntValue<'c>, u32), count: u32) -> R<()> {
        let threads = self.k.threads;
        let last = later * count * threads + threads - 1;
        let mut run = self.run(c, first, last)?;
        let mut loaded = Vec::new();
        for i in 0..count {
            let chunk = match c.step(i, count, threads) {
                Some(step) => self.chunk(c, &mut run, step)?,
                None => {
                    let at = self.b.build_int_add(first, self.i32(i64::from(i * threads)), "")?;
                    let mut run = self.run(c, at, last + i * threads)?;
                    self.chunk(c, &mut run, (0, 0))?
                }
            };
            let exists = if last + i * threads < c.total {
                None
            } else {
                let left = self.i32(i64::from(c.total.saturating_sub(i * threads)));
                Some(self.b.build_int_compare(IntPredicate::ULT, first, left, "")?)
            };
            if c.atom != CopyAtom::Direct {
                self.copy_chunk(c, &chunk, exists)?;
                continue;
            }
            let ty = element(self.cx, c.view.dtype);
            let real = self.both(chunk.real, exists)?;
            let v = match real {
                None => self.load_aligned(ty, chunk.from, c.bytes)?,
                Some(_) => self.load_masked(ty, chunk.from, (0, c.bytes), (c.view.read_only, Cache::Normal), real)?,
            };
            loaded.push((chunk.to, exists, v));
        }
        for (to, exists, v) in loaded {
            self.store_run("shared", to, &[v], c.view.dtype, exists)?;
        }
        Ok(())
    }

    /// Starts the asynchronous copy of a chunk, if it exists.
    fn copy_chunk(&mut self, c: &Copy<'c>, chunk: &Chunk<'c>, exists: Option<IntValue<'c>>) -> R<()> {
        let join = match exists {
            None => None,
            Some(p) => {
                let inside = self.cx.append_basic_block(self.function, "copy");
                let after = self.cx.append_basic_block(self.function, "copied");
                self.b.build_conditional_branch(p, inside, after)?;
                self.b.position_at_end(inside);
                Some(after)
            }
        };
        // Of no bytes none is read, but the address has to be one.
        let (from, real) = match chunk.real {
            None => (chunk.from, None),
            Some(p) => {
                let n = self.b.build_select(p, self.i32(i64::from(c.bytes)), self.i32(0), "")?;
                let from = self.b.build_select(p, chunk.from, c.view.base, "")?;
                (from.into_pointer_value(), Some(n.into_int_value()))
            }
        };
        self.cp_async(c.bytes, chunk.to, from, real)?;
        if let Some(after) = join {
            self.b.build_unconditional_branch(after)?;
            self.b.position_at_end(after);
        }
        Ok(())
    }

    /// The sources of the chunks from one on. Its number is at most `last`.
    fn run(&self, c: &Copy<'c>, first: IntValue<'c>, last: u32) -> R<ChunkRun<'c>> {
        let in_row = c.in_row();
        let row = self.b.build_int_unsigned_div(first, self.i32(i64::from(in_row)), "")?;
        let rest = self.b.build_int_unsigned_rem(first, self.i32(i64::from(in_row)), "")?;
        let col = self.b.build_int_mul(rest, self.i32(i64::from(c.per)), "")?;
        // The bits that a number below another may set.
        let below = |end: u32| end.checked_next_power_of_two().map_or(u32::MAX, |n| n - 1);
        let run = ChunkRun {
            row: Masked { value: row, bits: below(last / in_row + 1) },
            col: Masked { value: col, bits: below(in_row * c.per) & !(c.per - 1) },
            row_starts: (0, self.row_start(c, row, col)?),
            made: Vec::new(),
        };
        Ok(run)
    }

    /// Address of an element of the tensor.
    fn row_start(&self, c: &Copy<'c>, row: IntValue<'c>, col: IntValue<'c>) -> R<PointerValue<'c>> {
        let coords = if c.view.strides.len() == 2 { vec![row, col] } else { vec![col] };
        let mut offset = self.cx.i64_type().const_zero();
        for (at, stride) in coords.into_iter().zip(&c.view.strides) {
            let term = self.scaled(at, *stride)?;
            offset = self.b.build_int_add(offset, term, "")?;
        }
        self.offset_pointer(c.view.dtype, c.view.origin, offset)
    }

    /// The chunk that is this many rows and columns after the first of a run.
    fn chunk(&mut self, c: &Copy<'c>, run: &mut ChunkRun<'c>, (rows, cols): (u32, u32)) -> R<Chunk<'c>> {
        let layout = &c.buffer.layout;
        let moved = |e: &Self, at: Masked<'c>, by: u32| -> R<IntValue<'c>> {
            Ok(if by == 0 { at.value } else { e.b.build_int_add(at.value, e.i32(i64::from(by)), "")? })
        };
        let (row, col) = (moved(self, run.row, rows)?, moved(self, run.col, cols)?);
        let two = c.view.strides.len() == 2;
        let coords = if two { vec![(row, layout.rows), (col, layout.cols)] } else { vec![(col, layout.cols)] };
        let real = self.chunk_is_real(c, &coords)?;
        if let [stride, _] = c.view.strides[..] {
            // From row to row: one sum each, where each row's own distance from the first would be kept in registers.
            let (at, pointer) = run.row_starts;
            run.row_starts = (rows, self.further(c.view.dtype, pointer, stride, rows - at)?);
        }
        let from = match c.view.strides.last() {
            Some(&stride) => self.further(c.view.dtype, run.row_starts.1, stride, cols)?,
            None => run.row_starts.1,
        };
        let element_bytes = c.buffer.dtype.bytes();
        let parts = layout.constant_part((rows, cols), run.col.bits, element_bytes);
        let known = parts.and_then(|(seen, rest)| Some((rest, run.made.iter().find(|(key, ..)| *key == seen)?)));
        let to = match known {
            Some((rest, &(_, before, to))) => {
                let offset = self.i32(i64::from(rest) - i64::from(before));
                // SAFETY: address arithmetic within one buffer.
                unsafe { self.b.build_gep(self.cx.i8_type(), to, &[offset], "")? }
            }
            None => {
                let at = self.shared_offset(layout, element_bytes, (run.row, rows), (run.col, cols))?;
                let to = self.shared_pointer(&c.to, at)?;
                run.made.extend(parts.map(|(seen, rest)| (seen, rest, to)));
                to
            }
        };
        Ok(Chunk { from, to, real })
    }

    /// An address this many positions further along an axis.
    fn further(&self, dtype: DType, at: PointerValue<'c>, stride: AxisStride<'c>, by: u32) -> R<PointerValue<'c>> {
        if by == 0 {
            return Ok(at);
        }
        let elements = match stride {
            AxisStride::Const(n) => self.cx.i64_type().const_int((n * i64::from(by)) as u64, true),
            AxisStride::Dynamic(n) => {
                self.b.build_int_mul(n, self.cx.i64_type().const_int(u64::from(by), false), "")?
            }
        };
        self.offset_pointer(dtype, at, elements)
    }

    /// True if a chunk is inside the tile and inside the tensor. A chunk never crosses an end.
    fn chunk_is_real(&mut self, c: &Copy<'c>, coords: &[(IntValue<'c>, u32)]) -> R<Option<IntValue<'c>>> {
        let mut real: Option<IntValue<'c>> = None;
        let mut coords = coords.iter();
        for &(_, slice, dim) in &c.checks {
            let Some(len) = slice.len() else {
                if let Slice::At { coord, in_bounds: false } = slice {
                    let (at, size) = (self.int(coord)?, self.dim_size(dim)?);
                    let p = self.b.build_int_compare(IntPredicate::ULT, at, size, "")?;
                    real = self.both(real, Some(p))?;
                }
                continue;
            };
            let Some(&(at, extent)) = coords.next() else { return Err(CompileError::bug("a slice without an axis")) };
            let limit = match slice {
                Slice::Tile { .. } => self.tile_limit(slice, dim)?,
                _ => None,
            };
            let p = match limit {
                Some(limit) => Some(self.b.build_int_compare(IntPredicate::SLT, at, limit, "")?),
                None if extent > len => {
                    Some(self.b.build_int_compare(IntPredicate::ULT, at, self.i32(i64::from(len)), "")?)
                }
                None => None,
            };
            real = self.both(real, p)?;
            if let Slice::Span { .. } = slice {
                let at = self.b.build_int_add(at, self.start(slice)?, "")?;
                let p = self.b.build_int_compare(IntPredicate::ULT, at, self.dim_size(dim)?, "")?;
                real = self.both(real, Some(p))?;
            }
        }
        Ok(real)
    }

    /// Both of two conditions, each of which may always hold.
    fn both(&self, p: Option<IntValue<'c>>, q: Option<IntValue<'c>>) -> R<Option<IntValue<'c>>> {
        Ok(match (p, q) {
            (Some(p), Some(q)) => Some(self.b.build_and(p, q, "")?),
            (p, q) => p.or(q),
        })
    }
}
