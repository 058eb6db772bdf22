//! Global memory: addresses, masks, loads, stores and asynchronous copies.

use super::coords::Masked;
use super::intrinsics::WordAccess;
use super::words::memory_type;
use super::{Emitter, R, Regs, element};
use crate::error::CompileError;
use crate::gpu::{AccessKind, Cache, Reach, Slice, Value, inner_divisor};
use crate::layout::Fragment;
use crate::mutation::{Mutation, is_planted};
use atlas_dsl::ir::{ParamKind, Stride};
use atlas_dsl::op::Update;
use atlas_dsl::{DType, Dim, Param};
use inkwell::IntPredicate;
use inkwell::values::{BasicValue, BasicValueEnum, IntValue, PointerValue};
use std::collections::BTreeMap;

/// Bounds of one tile axis.
struct Bound<'c> {
    axis: u8,
    /// Runtime position of tile index 0, for spans that may start outside.
    start: Option<IntValue<'c>>,
    /// Number of real elements; with `start`, the size of the dim.
    limit: IntValue<'c>,
    /// A constant limit. Registers below it need no check.
    known: Option<u32>,
    thread: Masked<'c>,
    /// A run length: of this many elements from a multiple of it on, either all are real or none is.
    grain: u32,
}

/// Predicates of a tile's elements, computed once per axis and register coordinate.
pub(super) struct Masks<'c> {
    bounds: Vec<Bound<'c>>,
    made: BTreeMap<(u8, u32), IntValue<'c>>,
    /// Holds or fails for the whole tile.
    all: Option<IntValue<'c>>,
}

/// The tensor side of an access.
pub(super) struct GlobalView<'c> {
    pub(super) dtype: DType,
    /// True if the kernel does not write the tensor.
    pub(super) read_only: bool,
    pub(super) base: PointerValue<'c>,
    /// Address of the tile's element 0.
    pub(super) origin: PointerValue<'c>,
    /// Stride of each tile axis; 0 along one that is gathered.
    pub(super) strides: Vec<AxisStride<'c>>,
    /// The axis that is gathered.
    gathered: Option<Gathered<'c>>,
}

/// An axis on which each element has a place of its own.
#[derive(Clone, Copy)]
struct Gathered<'c> {
    places: Value,
    stride: AxisStride<'c>,
    dim: Dim,
}

#[derive(Clone, Copy)]
pub(super) enum AxisStride<'c> {
    Const(i64),
    Dynamic(IntValue<'c>),
}

impl<'c> Emitter<'c, '_> {
    fn stride(&self, p: Param, axis: usize, s: Stride) -> R<AxisStride<'c>> {
        Ok(match s {
            Stride::Const(n) => AxisStride::Const(n),
            Stride::Dynamic { .. } => AxisStride::Dynamic(
                *self.strides.get(&(p, axis as u8)).ok_or_else(|| CompileError::bug("a stride without a parameter"))?,
            ),
        })
    }

    /// `index * stride` in 64 bits.
    pub(super) fn scaled(&self, index: IntValue<'c>, s: AxisStride<'c>) -> R<IntValue<'c>> {
        let i64t = self.cx.i64_type();
        let wide = self.b.build_int_s_extend(index, i64t, "")?;
        Ok(match s {
            AxisStride::Const(n) => self.b.build_int_mul(wide, i64t.const_int(n as u64, true), "")?,
            AxisStride::Dynamic(n) => self.b.build_int_mul(wide, n, "")?,
        })
    }

    /// First element of a slice in its dim.
    pub(super) fn start(&self, s: Slice) -> R<IntValue<'c>> {
        Ok(match s {
            Slice::At { coord, .. } => self.int(coord)?,
            Slice::Tile { index, size, offset, .. } => {
                let first = self.b.build_int_mul(self.int(index)?, self.i32(i64::from(size)), "")?;
                self.b.build_int_add(first, self.i32(i64::from(offset)), "")?
            }
            Slice::Span { start, offset, .. } => {
                self.b.build_int_add(self.int(start)?, self.i32(i64::from(offset)), "")?
            }
            Slice::Whole { offset, .. } => self.i32(i64::from(offset)),
            // Each element has a place of its own.
            Slice::Gather { .. } => self.i32(0),
        })
    }

    pub(super) fn view(&mut self, param: Param, slices: &[Slice]) -> R<GlobalView<'c>> {
        let kind = self.k.params[param].kind.clone();
        let ParamKind::Tensor { dtype, strides, dims, .. } = &kind else {
            return Err(CompileError::bug("a scalar has no elements"));
        };
        let base = self.pointers[&param];
        let mut gathered = None;
        let mut offset = self.cx.i64_type().const_zero();
        let mut tile_strides = Vec::new();
        for (axis, (slice, stride)) in slices.iter().zip(strides).enumerate() {
            let s = self.stride(param, axis, *stride)?;
            if let Slice::Gather { places, .. } = *slice {
                gathered = Some(Gathered { places, stride: s, dim: dims[axis] });
                tile_strides.push(AxisStride::Const(0));
                continue;
            }
            let first = self.start(*slice)?;
            let term = self.scaled(first, s)?;
            offset = self.b.build_int_add(offset, term, "")?;
            if slice.len().is_some() {
                tile_strides.push(s);
            }
        }
        let origin = self.offset_pointer(*dtype, base, offset)?;
        let read_only = kind.is_read_only();
        Ok(GlobalView { dtype: *dtype, read_only, base, origin, strides: tile_strides, gathered })
    }

    pub(super) fn offset_pointer(
        &self,
        dtype: DType,
        base: PointerValue<'c>,
        elements: IntValue<'c>,
    ) -> R<PointerValue<'c>> {
        // SAFETY: address arithmetic only; accesses outside the tensor are masked.
        Ok(unsafe { self.b.build_gep(element(self.cx, dtype), base, &[elements], "")? })
    }

    /// The checks that a tile's slices need, by tile axis.
    pub(super) fn checks(&self, param: Param, slices: &[Slice]) -> R<Vec<(u8, Slice, Dim)>> {
        let ParamKind::Tensor { dims, .. } = &self.k.params[param].kind else {
            return Err(CompileError::bug("a scalar has no elements"));
        };
        let mut axis = 0;
        let mut out = Vec::new();
        for (s, &d) in slices.iter().zip(dims) {
            out.push((axis, *s, d));
            if s.len().is_some() {
                axis += 1;
            }
        }
        Ok(out)
    }

    /// The masks of a tile in a layout: ragged ends of dims, and padding of the layout.
    pub(super) fn masks(&mut self, layout: &Fragment, checks: &[(u8, Slice, Dim)]) -> R<Masks<'c>> {
        let mut masks = Masks { bounds: Vec::new(), made: BTreeMap::new(), all: None };
        for &(axis, slice, dim) in checks {
            match slice {
                Slice::At { in_bounds: true, .. } => {}
                Slice::At { coord, .. } => {
                    let p = self.b.build_int_compare(IntPredicate::ULT, self.int(coord)?, self.dim_size(dim)?, "")?;
                    masks.all = Some(match masks.all {
                        None => p,
                        Some(q) => self.b.build_and(p, q, "")?,
                    });
                }
                Slice::Whole { len, .. } | Slice::Gather { len, .. } => {
                    self.pad_bound(&mut masks, layout, axis, len)?
                }
                Slice::Tile { len, .. } => match self.tile_limit(slice, dim)? {
                    None => self.pad_bound(&mut masks, layout, axis, len)?,
                    Some(limit) => {
                        let thread = self.thread_coord(layout, axis)?;
                        // What divides the limit and every thread's first element: elements within it are real together.
                        let of_limit = inner_divisor(slice, self.k.dims[dim].size.divisor());
                        let zeros = of_limit.trailing_zeros().min(thread.bits.trailing_zeros()).min(16);
                        let grain = 1 << zeros;
                        masks.bounds.push(Bound { axis, start: None, limit, known: None, thread, grain });
                    }
                },
                Slice::Span { len, .. } => {
                    self.pad_bound(&mut masks, layout, axis, len)?;
                    let start = self.start(slice)?;
                    let limit = self.dim_size(dim)?;
                    let thread = self.thread_coord(layout, axis)?;
                    masks.bounds.push(Bound { axis, start: Some(start), limit, known: None, thread, grain: 1 });
                }
            }
        }
        Ok(masks)
    }

    /// The number of accessed elements of a tile that are in the dim, counted from the first accessed one. It is at most 0 if
    /// none is; `None` if all are.
    pub(super) fn tile_limit(&self, slice: Slice, dim: Dim) -> R<Option<IntValue<'c>>> {
        let Slice::Tile { index, size, offset: _, len, reach } = slice else {
            return Err(CompileError::bug("a limit of what is no tile"));
        };
        if reach == Reach::Inside {
            return Ok(None);
        }
        let left = self.b.build_int_sub(self.dim_size(dim)?, self.start(slice)?, "")?;
        let whole = self.i32(i64::from(len));
        let short = self.b.build_int_compare(IntPredicate::SLT, left, whole, "")?;
        let limit = self.b.build_select(short, left, whole, "")?.into_int_value();
        if reach == Reach::PastEnd {
            return Ok(Some(limit));
        }
        // Of a number that counts no tile of the dim not even the product with the size is what it seems.
        let counts = self.b.build_int_compare(IntPredicate::ULT, self.int(index)?, self.dim_tiles(dim, size)?, "")?;
        Ok(Some(self.b.build_select(counts, limit, self.i32(0), "")?.into_int_value()))
    }

    fn pad_bound(&mut self, masks: &mut Masks<'c>, layout: &Fragment, axis: u8, len: u32) -> R<()> {
        if layout.cover(axis) > len {
            let thread = self.thread_coord(layout, axis)?;
            let limit = self.i32(i64::from(len));
            masks.bounds.push(Bound { axis, start: None, limit, known: Some(len), thread, grain: 1 });
        }
        Ok(())
    }

    /// True if a register's element is real; `None` if it always is.
    pub(super) fn mask(&mut self, masks: &mut Masks<'c>, layout: &Fragment, reg: u32) -> R<Option<IntValue<'c>>> {
        let coord = layout.reg_coord(reg);
        let mut all = masks.all;
        for (n, bound) in masks.bounds.iter().enumerate() {
            let c = coord[usize::from(bound.axis)];
            if bound.known.is_some_and(|k| layout.max_thread_coord(bound.axis) + c < k) {
                continue;
            }
            let c = c / bound.grain * bound.grain;
            let key = (n as u8, c);
            let p = match masks.made.get(&key) {
                Some(p) => *p,
                None => {
                    let at = self.b.build_int_add(bound.thread.value, self.i32(i64::from(c)), "")?;
                    let p = match bound.start {
                        None => self.b.build_int_compare(IntPredicate::SLT, at, bound.limit, "")?,
                        Some(s) => {
                            let at = self.b.build_int_add(at, s, "")?;
                            self.b.build_int_compare(IntPredicate::ULT, at, bound.limit, "")?
                        }
                    };
                    masks.made.insert(key, p);
                    p
                }
            };
            all = Some(match all {
                None => p,
                Some(q) => self.b.build_and(p, q, "")?,
            });
        }
        Ok(all)
    }

    /// Address of a register's element.
    fn element_pointer(
        &mut self,
        view: &GlobalView<'c>,
        layout: &Fragment,
        thread: PointerValue<'c>,
        reg: u32,
    ) -> R<PointerValue<'c>> {
        let (at, fixed) = self.element_address(view, layout, thread, reg)?;
        self.offset_pointer(view.dtype, at, self.cx.i64_type().const_int(fixed as u64, true))
    }

    /// Address of a register's element, without a constant number of elements.
    fn element_address(
        &mut self,
        view: &GlobalView<'c>,
        layout: &Fragment,
        thread: PointerValue<'c>,
        reg: u32,
    ) -> R<(PointerValue<'c>, i64)> {
        let coord = layout.reg_coord(reg);
        let i64t = self.cx.i64_type();
        let mut fixed = 0i64;
        let mut moving: Option<IntValue<'c>> = None;
        for (c, s) in coord.iter().zip(&view.strides) {
            match *s {
                AxisStride::Const(n) => fixed += i64::from(*c) * n,
                AxisStride::Dynamic(_) if *c == 0 => {}
                AxisStride::Dynamic(n) => {
                    let term = self.b.build_int_mul(n, i64t.const_int(u64::from(*c), false), "")?;
                    moving = Some(match moving {
                        None => term,
                        Some(m) => self.b.build_int_add(m, term, "")?,
                    });
                }
            }
        }
        let at = match moving {
            None => thread,
            Some(m) => self.offset_pointer(view.dtype, thread, m)?,
        };
        Ok((at, fixed))
    }

    fn thread_pointer(&mut self, view: &GlobalView<'c>, layout: &Fragment) -> R<PointerValue<'c>> {
        let mut sum = self.cx.i64_type().const_zero();
        for axis in 0..view.strides.len() {
            let c = self.thread_coord(layout, axis as u8)?;
            let term = self.scaled(c.value, view.strides[axis])?;
            sum = self.b.build_int_add(sum, term, "")?;
        }
        self.offset_pointer(view.dtype, view.origin, sum)
    }

    /// A pointer to an element's row of an axis that is gathered, and whether the place is in the dim.
    fn at_place(
        &mut self,
        view: &GlobalView<'c>,
        thread: PointerValue<'c>,
        reg: u32,
        real: Option<IntValue<'c>>,
    ) -> R<(PointerValue<'c>, Option<IntValue<'c>>)> {
        let Some(Gathered { places, stride, dim }) = view.gathered else { return Ok((thread, real)) };
        let place = self.regs(places)?[reg as usize].into_int_value();
        let there = self.b.build_int_compare(IntPredicate::ULT, place, self.dim_size(dim)?, "")?;
        let there = if is_planted(Mutation::PlacesAnywhere) { self.cx.bool_type().const_all_ones() } else { there };
        let offset = self.scaled(place, stride)?;
        let at = self.offset_pointer(view.dtype, thread, offset)?;
        let real = match real {
            None => there,
            Some(p) => self.b.build_and(p, there, "")?,
        };
        Ok((at, Some(real)))
    }

    pub(super) fn load_global(
        &mut self,
        param: Param,
        slices: &[Slice],
        cache: Cache,
        form: &AccessKind,
        result: Option<Value>,
    ) -> R<Regs<'c>> {
        let result = result.ok_or_else(|| CompileError::bug("a load without a result"))?;
        let layout = self.k.tile(result).1.clone();
        let view = self.view(param, slices)?;
        let checks = self.checks(param, slices)?;
        let mut masks = self.masks(&layout, &checks)?;
        let n = layout.reg_count();
        let (run, _) = vectors(form, view.dtype)?;
        let thread = self.thread_pointer(&view, &layout)?;
        let ty = memory_type(self.cx, view.dtype, run);
        let bytes = run * view.dtype.bytes();
        let hinted = cache != Cache::Normal && matches!(bytes, 4 | 8 | 16);
        let mut out = Vec::with_capacity(n as usize);
        for reg in (0..n).step_by(run as usize) {
            let real = self.mask(&mut masks, &layout, reg)?;
            let (row, real) = self.at_place(&view, thread, reg, real)?;
            let (at, offset) = self.element_address(&view, &layout, row, reg)?;
            let value = if let Some(p) = real.filter(|_| is_planted(Mutation::MaskedLoadsFirst)) {
                let at = self.offset_pointer(view.dtype, at, self.cx.i64_type().const_int(offset as u64, true))?;
                let at = self.b.build_select(p, at, view.base, "")?.into_pointer_value();
                let loaded = self.load_aligned(ty, at, bytes)?;
                self.b.build_select(p, loaded, loaded.get_type().const_zero(), "")?
            } else if real.is_some() || hinted {
                // An immediate of an address has 32 bits.
                let bytes_on = offset * i64::from(view.dtype.bytes());
                let (at, offset) = match i32::try_from(bytes_on) {
                    Ok(_) => (at, bytes_on),
                    Err(_) => {
                        let far = self.cx.i64_type().const_int(offset as u64, true);
                        (self.offset_pointer(view.dtype, at, far)?, 0)
                    }
                };
                self.load_masked(ty, at, (offset, bytes), (view.read_only, cache), real)?
            } else {
                let at = self.offset_pointer(view.dtype, at, self.cx.i64_type().const_int(offset as u64, true))?;
                self.load_aligned(ty, at, bytes)?
            };
            out.extend(self.unpack(value, view.dtype, run)?);
        }
        Ok(out)
    }

    /// A load under a predicate, or with an L2 cache hint: `place.1` bytes, at `place.0` bytes past an address.
    pub(super) fn load_masked(
        &mut self,
        ty: inkwell::types::BasicTypeEnum<'c>,
        at: PointerValue<'c>,
        (offset, bytes): (i64, u32),
        (read_only, cache): (bool, Cache),
        real: Option<IntValue<'c>>,
    ) -> R<BasicValueEnum<'c>> {
        // A policy goes with the 4, 8 and 16 bytes that it was measured with.
        let cache = if bytes >= 4 { cache } else { Cache::Normal };
        let words = (bytes / 4).max(1);
        let access = WordAccess { words, bytes: bytes.min(4), offset, read_only, cache };
        let loaded = self.load_words(at, &access, real)?;
        if let [word] = loaded[..] {
            let byte = self.cx.i8_type();
            let word = if bytes == 1 { self.b.build_int_truncate(word, byte, "")? } else { word };
            return Ok(self.b.build_bit_cast(word, ty, "")?);
        }
        let mut packed = self.i32_type().vec_type(words).get_undef();
        for (i, word) in loaded.into_iter().enumerate() {
            packed = self.b.build_insert_element(packed, word, self.i32(i as i64), "")?;
        }
        Ok(self.b.build_bit_cast(packed, ty, "")?)
    }

    pub(super) fn load_aligned(
        &self,
        ty: inkwell::types::BasicTypeEnum<'c>,
        at: PointerValue<'c>,
        align: u32,
    ) -> R<BasicValueEnum<'c>> {
        let v = self.b.build_load(ty, at, "")?;
        if let Some(i) = v.as_instruction_value() {
            i.set_alignment(align).map_err(|e| CompileError::bug(format!("alignment {align}: {e}")))?;
        }
        Ok(v)
    }

    pub(super) fn store_global(
        &mut self,
        update: Update,
        (param, slices): (Param, &[Slice]),
        value: Value,
        form: &AccessKind,
    ) -> R<()> {
        let layout = self.k.tile(value).1.clone();
        let regs = self.regs(value)?.clone();
        let view = self.view(param, slices)?;
        let checks = self.checks(param, slices)?;
        let mut masks = self.masks(&layout, &checks)?;
        let by_every_copy = update.is_atomic() && is_planted(Mutation::AtomicByEveryCopy);
        if let Some(first) = self.is_first_copy(&layout)?.filter(|_| !by_every_copy) {
            masks.all = Some(match masks.all {
                None => first,
                Some(q) => self.b.build_and(first, q, "")?,
            });
        }
        let (run, _) = vectors(form, view.dtype)?;
        let thread = self.thread_pointer(&view, &layout)?;
        for reg in (0..layout.reg_count()).step_by(run as usize) {
            let at = self.element_pointer(&view, &layout, thread, reg)?;
            let real = self.mask(&mut masks, &layout, reg)?;
            let (at, real) = self.at_place(&view, at, reg, real)?;
            let values = &regs[reg as usize..(reg + run) as usize];
            match update.combine() {
                None => self.store_run("global", at, values, view.dtype, real)?,
                Some(op) => self.combine_run(op, at, values, view.dtype, real)?,
            }
        }
        Ok(())
    }

    /// Stores consecutive elements as one vector, where `real` holds.
    pub(super) fn store_run(
        &self,
        space: &str,
        at: PointerValue<'c>,
        values: &[BasicValueEnum<'c>],
        dtype: DType,
        real: Option<IntValue<'c>>,
    ) -> R<()> {
        let bytes = values.len() as u32 * dtype.bytes();
        let packed = self.pack(values, dtype)?;
        match real {
            None => {
                let s = self.b.build_store(at, packed)?;
                s.set_alignment(bytes).map_err(|e| CompileError::bug(format!("alignment {bytes}: {e}")))?;
                Ok(())
            }
            Some(p) => {
                let words = self.words(packed, bytes)?;
                self.store_if(p, space, at, (&words, bytes))
            }
        }
    }
}

/// Elements that an access moves at once, and the extents within which it stays.
pub(super) fn vectors(form: &AccessKind, dtype: DType) -> R<(u32, &[u32])> {
    match form {
        AccessKind::Vector { bytes, within } => Ok((bytes / dtype.bytes(), within.as_deref().unwrap_or_default())),
        AccessKind::Matrix => Err(CompileError::bug("matrix instructions where there are none")),
    }
}
