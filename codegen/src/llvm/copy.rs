//! Copies of tiles from global to shared memory: chunks of rows, dealt to threads in turn.

use super::coords::Masked;
use super::global::View;
use super::{Emitter, R, element};
use crate::error::CompileError;
use crate::gpu::{BufferData, COPIED_AT_ONCE, Cache, CopyAtom, SharedRef, Slice};
use atlas_dsl::{Dim, Param};
use inkwell::IntPredicate;
use inkwell::values::{IntValue, PointerValue};

/// What all chunks of a copy share.
struct Copy<'c> {
    atom: CopyAtom,
    /// Bytes of a chunk.
    bytes: u32,
    /// Elements of a chunk.
    per: u32,
    /// Chunks of the tile.
    total: u32,
    buffer: BufferData,
    view: View<'c>,
    checks: Vec<(u8, Slice, Dim)>,
    to: SharedRef,
}

/// One chunk of one thread.
struct Chunk<'c> {
    from: PointerValue<'c>,
    to: PointerValue<'c>,
    /// It lies in the tensor; `None` if all do.
    real: Option<IntValue<'c>>,
    /// There is such a chunk; `None` if there is one for every thread.
    exists: Option<IntValue<'c>>,
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
        let threads = self.k.threads;
        let rounds = total.div_ceil(threads);
        if bytes == 16 || rounds <= COPIED_AT_ONCE {
            for round in 0..rounds {
                let first = self.b.build_int_add(self.tid, self.i32(i64::from(round * threads)), "")?;
                self.copy_group(&c, first, 1, (round + 1) * threads > total)?;
            }
            return Ok(());
        }
        self.copy_in_groups(&c, rounds.div_ceil(COPIED_AT_ONCE))
    }

    /// A loop over groups of [`COPIED_AT_ONCE`] chunks of each thread.
    fn copy_in_groups(&mut self, c: &Copy<'c>, groups: u32) -> R<()> {
        let step = self.k.threads * COPIED_AT_ONCE;
        self.loops += 1;
        self.repeat("copies", (self.tid, step, groups * step), vec![], |e, chunk, none| {
            e.copy_group(c, chunk, COPIED_AT_ONCE, groups * step > c.total)?;
            Ok(none)
        })?;
        self.loops -= 1;
        Ok(())
    }

    /// So many chunks of each thread from a first one on: what passes through registers is loaded before any is stored.
    fn copy_group(&mut self, c: &Copy<'c>, first: IntValue<'c>, count: u32, partial: bool) -> R<()> {
        let mut loaded = Vec::new();
        for i in 0..count {
            let at = self.b.build_int_add(first, self.i32(i64::from(i * self.k.threads)), "")?;
            let chunk = self.chunk(c, at, partial)?;
            if c.atom != CopyAtom::Direct {
                self.copy_chunk(c, &chunk)?;
                continue;
            }
            let ty = element(self.cx, c.view.dtype);
            let real = self.both(chunk.real, chunk.exists)?;
            let v = match real {
                None => self.load_aligned(ty, chunk.from, c.bytes)?,
                Some(_) => self.load_masked(ty, chunk.from, (0, c.bytes), (c.view.read_only, Cache::Normal), real)?,
            };
            loaded.push((chunk, v));
        }
        for (chunk, v) in loaded {
            self.store_run("shared", chunk.to, &[v], c.view.dtype, chunk.exists)?;
        }
        Ok(())
    }

    /// Starts the asynchronous copy of a chunk, if it exists.
    fn copy_chunk(&mut self, c: &Copy<'c>, chunk: &Chunk<'c>) -> R<()> {
        let join = match chunk.exists {
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

    /// Where a chunk comes from and goes to. With `partial` there may be none of its number.
    fn chunk(&mut self, c: &Copy<'c>, chunk: IntValue<'c>, partial: bool) -> R<Chunk<'c>> {
        let layout = &c.buffer.layout;
        let in_row = self.i32(i64::from(layout.cols / c.per));
        let row = self.b.build_int_unsigned_div(chunk, in_row, "")?;
        let rest = self.b.build_int_unsigned_rem(chunk, in_row, "")?;
        let col = self.b.build_int_mul(rest, self.i32(i64::from(c.per)), "")?;
        let coords = if c.view.strides.len() == 2 {
            vec![(row, layout.rows), (col, layout.cols)]
        } else {
            vec![(col, layout.cols)]
        };
        let real = self.chunk_is_real(c, &coords)?;
        let mut offset = self.cx.i64_type().const_zero();
        for ((at, _), stride) in coords.iter().zip(&c.view.strides) {
            let term = self.scaled(*at, *stride)?;
            offset = self.b.build_int_add(offset, term, "")?;
        }
        let from = self.offset_pointer(c.view.dtype, c.view.origin, offset)?;
        let [row, col] = [row, col].map(|value| (Masked { value, bits: u32::MAX }, 0));
        let at = self.shared_offset(layout, c.buffer.dtype.bytes(), row, col)?;
        let to = self.shared_pointer(&c.to, at)?;
        let exists = match partial {
            false => None,
            true => Some(self.b.build_int_compare(IntPredicate::ULT, chunk, self.i32(i64::from(c.total)), "")?),
        };
        Ok(Chunk { from, to, real, exists })
    }

    /// Whether a chunk lies inside the tile and inside the tensor; a chunk never straddles an end.
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

    /// Both of two conditions, of which either may always hold.
    fn both(&self, p: Option<IntValue<'c>>, q: Option<IntValue<'c>>) -> R<Option<IntValue<'c>>> {
        Ok(match (p, q) {
            (Some(p), Some(q)) => Some(self.b.build_and(p, q, "")?),
            (p, q) => p.or(q),
        })
    }
}
