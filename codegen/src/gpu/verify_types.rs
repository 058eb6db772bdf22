//! The typing rules of GPU IR operations: 420, 442 to 444, 450 and 451.

use super::atom::{MmaAtom, WGMMA_COLUMNS};
use super::extract_slice::slice_layout;
use super::vectors::access_elements;
use super::verify::Verifier;
use super::warp_grid_of;
use super::{Accuracy, CopyAtom, Inst, Op, Operand, Owner, SUM_VECTOR_BYTES, SharedRef, Side, Slice, Type, Value};
use crate::arch::{Capability, Target};
use crate::gpu_ops;
use crate::layout::{Fragment, Mode};
use crate::math::{divides_approximately, has_approximate};
use atlas_dsl::ir::{DimSize, GridExtent, Loc, ParamKind};
use atlas_dsl::types::broadcast_shapes;
use atlas_dsl::{DType, Param};
use std::fmt::Display;

/// True if two layouts hold the same elements in the same places. Every thread holds a scalar, whoever asks.
fn same_layout(a: &Fragment, b: &Fragment) -> bool {
    (a.shape.is_empty() && b.shape.is_empty()) || a.same_map(b)
}

/// The first value operand of this kind.
fn first_operand(op: &Op, is_wanted: impl Fn(Value) -> bool) -> Option<Value> {
    let mut first = None;
    op.visit_operands(|v| first = first.or_else(|| is_wanted(v).then_some(v)));
    first
}

/// An `mma` without its operands.
struct MmaText<'k> {
    atom: MmaAtom,
    shape: (u32, u32, u32),
    result: Option<(DType, &'k Fragment)>,
}

impl<'k> Verifier<'k> {
    /// True if both are fragments, both in flight or both tokens, of the same kind.
    pub(super) fn same_type(&self, a: Value, b: Value) -> bool {
        match (&self.kernel.values[a].ty, &self.kernel.values[b].ty) {
            (Type::Token(x), Type::Token(y)) => x == y,
            (Type::Fragment { dtype: d, layout: x }, Type::Fragment { dtype: e, layout: y })
            | (Type::InFlight { dtype: d, layout: x }, Type::InFlight { dtype: e, layout: y }) => {
                d == e && same_layout(x, y)
            }
            _ => false,
        }
    }

    /// Element type and layout, if the value is a fragment and not in flight.
    pub(super) fn fragment(&self, v: Value) -> Option<(DType, &'k Fragment)> {
        match &self.kernel.values[v].ty {
            Type::Fragment { dtype, layout } => Some((*dtype, layout)),
            _ => None,
        }
    }

    fn is_scalar(&self, v: Value, dtype: DType) -> bool {
        self.fragment(v).is_some_and(|(d, l)| d == dtype && l.shape.is_empty())
    }

    /// True for a scalar i32.
    pub(super) fn is_int(&self, v: Value) -> bool {
        self.is_scalar(v, DType::I32)
    }

    /// The rules of one operation.
    pub(super) fn op(&mut self, inst: Inst, op: &'k Op, loc: Loc) {
        let k = self.kernel;
        let results = &k.results[inst];
        let wanted = op.result_count();
        if results.len() != wanted {
            return self.error(
                420,
                loc,
                format!("the operation has {wanted} results, but {} are named", results.len()),
            );
        }
        self.effects(inst, op, loc);
        if let (Some(message), false) =
            (self.pure(op, results.first().copied()), matches!(op, Op::Loop { .. } | Op::If(..)))
        {
            self.error(420, loc, message);
        }
    }

    /// 420 for operations on fragments alone: what is wrong with the types.
    fn pure(&self, op: &Op, result: Option<Value>) -> Option<String> {
        let k = self.kernel;
        let result = result?;
        if matches!(op, Op::Mma { .. } | Op::Acquire(..) | Op::Wait(..)) {
            return None; // `effects` has these.
        }
        let Some((dtype, layout)) = self.fragment(result) else {
            return Some(format!("the operation gives a fragment, but {} is written", self.ty(result)));
        };
        let is_scalar = |wanted: DType| match dtype == wanted && layout.shape.is_empty() {
            true => None,
            false => Some(format!("the operation gives a scalar {wanted}, but {} is written", self.ty(result))),
        };
        // In flight values have rules of their own.
        if !matches!(op, Op::WaitMma(..))
            && let Some(v) = first_operand(op, |v| self.fragment(v).is_none() && !self.is_token(v))
        {
            return Some(format!("the operation takes fragments, found {}", self.ty(v)));
        }
        let unlike = |wanted: DType, from: &Fragment| match dtype == wanted && same_layout(layout, from) {
            true => None,
            false => Some(format!("the operation gives {wanted}{from}, but {} is written", self.ty(result))),
        };
        let alike = |values: &[Value]| {
            let tile = |&v: &Value| self.fragment(v);
            let first = values.first().and_then(tile);
            let like = |(d, l): (DType, &Fragment)| {
                values[1..].iter().all(|v| tile(v).is_some_and(|(e, m)| d == e && same_layout(l, m)))
            };
            first.filter(|&first| like(first)).ok_or_else(|| {
                let found: Vec<String> = values.iter().map(|&v| self.ty(v)).collect();
                format!("the operation takes operands of one type, found {}", found.join(" and "))
            })
        };
        let with = |values: &[Value], f: &dyn Fn(DType, &Fragment) -> Option<String>| match alike(values) {
            Ok((d, l)) => f(d, l),
            Err(message) => Some(message),
        };
        match op {
            Op::Const(_) => None,
            Op::Iota { axis, .. } if usize::from(*axis) >= layout.shape.len() => {
                Some(format!("iota counts axis {axis} of {}", self.ty(result)))
            }
            Op::Iota { .. } if dtype != DType::I32 => {
                Some(format!("iota gives i32, but {} is written", self.ty(result)))
            }
            Op::Iota { .. } => None,
            Op::DimTiles(d, 0) => Some(format!("tiles of 0 elements of `{}`", k.dims[*d].name)),
            Op::DimSize(_) | Op::DimTiles(..) | Op::CtaNumber | Op::CtaCount | Op::SplitNumber | Op::SplitCount => {
                is_scalar(DType::I32)
            }
            Op::Coordinate(_, GridExtent::Tiles { dim, size: 0 }) => {
                Some(format!("tiles of 0 elements of `{}`", k.dims[*dim].name))
            }
            Op::Unsigned(..) | Op::Coordinate(..) => match first_operand(op, |v| !self.is_int(v)) {
                Some(v) => Some(format!("the operation takes scalars i32, found {}", self.ty(v))),
                None => is_scalar(DType::I32),
            },
            Op::ScalarParam(p) => match &k.params[*p].kind {
                ParamKind::Scalar { dtype } => is_scalar(*dtype),
                ParamKind::Tensor { .. } => Some(format!("`{}` is a tensor", k.params[*p].name)),
            },
            Op::TableGet(t, indices) => {
                if indices.len() != k.tables[*t].shape.len() || !indices.iter().all(|&v| self.is_int(v)) {
                    return Some(format!("table `{}` is indexed by a scalar i32 per axis", k.tables[*t].name));
                }
                is_scalar(DType::F32)
            }
            Op::Unary(op, by, v) => with(&[*v], &|d, l| {
                if !op.row().takes.holds(d) {
                    Some(format!("`{}` does not apply to {d}", op.name()))
                } else if *by == Accuracy::Approximate && !has_approximate(*op, d) {
                    Some(format!("`{}` of {d} has no approximate form", op.name()))
                } else {
                    unlike(d, l)
                }
            }),
            Op::Binary(op, by, a, b) => with(&[*a, *b], &|d, l| {
                if !op.row().takes.holds(d) {
                    Some(format!("`{}` does not apply to {d}", op.name()))
                } else if *by == Accuracy::Approximate && !divides_approximately(*op, d) {
                    Some(format!("`{}` of {d} has no approximate form", op.name()))
                } else {
                    unlike(d, l)
                }
            }),
            Op::Compare(_, a, b) => with(&[*a, *b], &|_, l| unlike(DType::Bool, l)),
            Op::Select(c, a, b) => with(&[*a, *b], &|d, l| match self.fragment(*c) {
                Some((DType::Bool, m)) if same_layout(m, l) => unlike(d, l),
                _ => Some(format!("`select` takes a condition bool{l}, found {}", self.ty(*c))),
            }),
            Op::Fma(a, b, c) => with(&[*a, *b, *c], &|d, l| match d.is_float() {
                false => Some(format!("`fma` does not apply to {d}")),
                true => unlike(d, l),
            }),
            Op::Rematerialize(v) => with(&[*v], &|d, l| unlike(d, l)),
            Op::Cast(v) => with(&[*v], &|d, l| match DType::no_conversion(d, dtype) {
                _ if dtype == DType::Bool && d != DType::Bool => Some(format!("cannot cast {d} to bool")),
                Some(why) => Some(format!("cannot cast {d} to {dtype}: {why}")),
                None => unlike(dtype, l),
            }),
            Op::MaskInvalid { value, valid, .. } => with(&[*value], &|d, l| {
                let mut axes = valid.iter().map(|v| v.axis);
                if let Some(axis) = axes.find(|&a| usize::from(a) >= l.shape.len()) {
                    return Some(format!("refill along axis {axis} of {}", self.ty(*value)));
                }
                match valid.iter().find_map(|v| self.slice_index(&v.slice)) {
                    Some(message) => Some(message),
                    None => unlike(d, l),
                }
            }),
            Op::Broadcast(v) => with(&[*v], &|d, l| {
                let aligned = broadcast_shapes(&l.shape, &layout.shape);
                if d != dtype || l.shape.len() > layout.shape.len() || aligned.as_ref() != Some(&layout.shape) {
                    return Some(format!("{} does not broadcast to {}", self.ty(*v), self.ty(result)));
                }
                let source = layout.broadcast_source(&l.shape);
                match same_layout(&source, l) {
                    true => None,
                    false => Some(format!("a broadcast takes {d}{source}, found {}", self.ty(*v))),
                }
            }),
            Op::Reshape(v) => with(&[*v], &|d, l| match l.reshape(&layout.shape) {
                Some(_) if l.has_unit_padding() => {
                    Some(format!("reshape of {}, of which threads hold no element", self.ty(*v)))
                }
                Some(to) => unlike(d, &to),
                None => Some(format!(
                    "reshape of {} to {:?} may only add or drop axes of extent 1",
                    self.ty(*v),
                    layout.shape
                )),
            }),
            Op::Transpose(v) => with(&[*v], &|d, l| match l.shape.len() {
                2 => unlike(d, &l.transpose()),
                _ => Some(format!("transpose takes a tile of rank 2, found {}", self.ty(*v))),
            }),
            Op::Reduce { value, axes, .. } => with(&[*value], &|d, l| {
                let rank = l.shape.len();
                let sorted = axes.windows(2).all(|w| w[0] < w[1]) && !axes.is_empty();
                if !sorted || axes.iter().any(|&a| usize::from(a) >= rank) || d == DType::Bool {
                    return Some(format!("a reduction along axes {axes:?} of {}", self.ty(*value)));
                }
                // A trailing axis numbers what the warps have still to reduce.
                let reduced = l.reduce(axes).shape;
                let fits = layout.shape.starts_with(&reduced) && layout.shape.len() <= rank + 1 && d == dtype;
                if fits {
                    None
                } else {
                    Some(format!("the reduction gives {d}{reduced:?}, but {} is written", self.ty(result)))
                }
            }),
            Op::Scan { value, axis, .. } => with(&[*value], &|d, l| {
                if d == DType::Bool || l.row_digits(*axis).is_none() {
                    return Some(format!(
                        "a scan along axis {axis} of {}, whose rows are not each in one warp",
                        self.ty(*value)
                    ));
                }
                unlike(d, l)
            }),
            Op::ConvertLayout(v) => with(&[*v], &|d, l| match d == dtype && l.shape == layout.shape {
                true => None,
                false => Some(format!(
                    "convert keeps element type and extents, found {} and {}",
                    self.ty(*v),
                    self.ty(result)
                )),
            }),
            Op::ExtractSlice { value, axis, offset } => with(&[*value], &|d, l| {
                let wanted =
                    slice_layout(l, *axis, *offset, layout.shape.get(usize::from(*axis)).copied().unwrap_or(0));
                match wanted {
                    Some(wanted) => unlike(d, &wanted),
                    None => Some(format!(
                        "this part of {} does not lie in the same registers of every thread",
                        self.ty(*value)
                    )),
                }
            }),
            Op::WaitMma(v, _) => match &k.values[*v].ty {
                Type::InFlight { dtype, layout } => unlike(*dtype, layout),
                _ => Some(format!("`wait.mma` takes a value in flight, found {}", self.ty(*v))),
            },
            Op::SumCluster(v, buffer) => with(&[*v], &|d, l| {
                let (x, y) = k.cluster;
                let room = &k.buffers[*buffer];
                // A thread passes on whole vectors.
                let vectors = (u64::from(l.reg_count()) * u64::from(d.bytes())).div_ceil(SUM_VECTOR_BYTES.into());
                let wanted = vectors * u64::from(SUM_VECTOR_BYTES) * u64::from(k.threads);
                if x * y < 2 {
                    return Some("`sum.cluster` in a kernel without clusters".to_owned());
                }
                if d != DType::F32 && d != DType::F64 {
                    return Some(format!("`sum.cluster` takes f32 or f64, found {}", self.ty(*v)));
                }
                if u64::from(room.bytes()) < wanted || room.stages != 1 {
                    return Some(format!(
                        "the threads pass on {wanted} bytes, and `{}` has {}",
                        room.name,
                        room.bytes()
                    ));
                }
                unlike(d, l)
            }),
            // Their extents, their tokens and their bodies have rules of their own, in `effects` and `block`.
            Op::Mma { .. } | gpu_ops!(global shared rings orders control) => None,
        }
    }

    /// What is wrong with the coordinate of a slice, or with its extents.
    fn slice_index(&self, slice: &Slice) -> Option<String> {
        let (v, outside) = match *slice {
            Slice::At { coord, .. } => (coord, false),
            Slice::Tile { index, size, offset, len, reach: _ } => {
                (index, u64::from(offset) + u64::from(len) > size.into())
            }
            Slice::Span { start, .. } => (start, false),
            // The places are a tile, which the load checks.
            Slice::Whole { .. } | Slice::Gather { .. } => {
                return (slice.len() == Some(0)).then(|| "a slice of 0 elements".to_owned());
            }
        };
        if !self.is_int(v) {
            return Some(format!("a coordinate is a scalar i32, found {}", self.ty(v)));
        }
        if outside {
            return Some("a slice reaches past the end of its tile".to_owned());
        }
        (slice.len() == Some(0)).then(|| "a slice of 0 elements".to_owned())
    }

    /// 450: the element type and the extents of the tile that slices cut out of a tensor.
    pub(super) fn access(&mut self, param: Param, slices: &[Slice], loc: Loc) -> Option<(DType, Vec<u32>)> {
        let data = &self.kernel.params[param];
        let ParamKind::Tensor { dtype, dims, .. } = &data.kind else {
            self.error(450, loc, format!("`{}` is a scalar; it has no tiles", data.name));
            return None;
        };
        if dims.len() != slices.len() {
            self.error(
                450,
                loc,
                format!("`{}` has rank {}, but the number of its slices is {}", data.name, dims.len(), slices.len()),
            );
            return None;
        }
        for (slice, &dim) in slices.iter().zip(dims) {
            if let Some(message) = self.slice_index(slice) {
                self.error(450, loc, message);
            }
            if let Slice::Whole { offset, len } = *slice {
                let dim = &self.kernel.dims[dim];
                let end = u64::from(offset) + u64::from(len);
                if !matches!(dim.size, DimSize::Const(n) if end <= n) {
                    self.error(
                        450,
                        loc,
                        format!("{end} elements of dim `{}`, which is not a constant as large", dim.name),
                    );
                }
            }
        }
        Some((*dtype, slices.iter().filter_map(Slice::len).collect()))
    }

    /// 450: a fragment has the extents of a global tile.
    pub(super) fn tile_is(&mut self, v: Value, tile: Option<(DType, Vec<u32>)>, loc: Loc) {
        let Some((dtype, shape)) = tile else { return };
        if !self.fragment(v).is_some_and(|(d, l)| d == dtype && l.shape == shape) {
            self.error(450, loc, format!("the slices make a tile {dtype}{shape:?}, found {}", self.ty(v)));
        }
    }

    /// 450: the places of a load are i32, one for each element and with it.
    pub(super) fn are_places(&mut self, places: Value, of: Value, loc: Loc) {
        let layout = self.fragment(of).map(|(_, layout)| layout.clone());
        let fits = matches!((self.fragment(places), layout), (Some((DType::I32, p)), Some(l)) if p.shape == l.shape && p.same_map(&l));
        if !fits {
            let message = format!(
                "places are an i32 tile in the layout of what is there, {}, found {}",
                self.ty(of),
                self.ty(places)
            );
            self.error(450, loc, message);
        }
    }

    /// 450: only loads and atomic stores may name places.
    pub(super) fn not_gathered(&mut self, slices: &[Slice], loc: Loc) {
        if slices.iter().any(|s| s.gathered().is_some()) {
            self.error(450, loc, "a copy or a store at the places of a tile".to_owned());
        }
    }

    /// 451.
    pub(super) fn is_out(&mut self, param: Param, loc: Loc) {
        let data = &self.kernel.params[param];
        if data.kind.is_read_only() {
            self.error(451, loc, format!("`{}` is stored to, but is not `out`", data.name));
        }
    }

    /// 444: every chunk of a copy begins at a multiple of its size, inside one row.
    pub(super) fn chunks_fit(&mut self, atom: CopyAtom, param: Param, slices: &[Slice], loc: Loc) {
        let data = &self.kernel.params[param];
        let (CopyAtom::CpAsync(bytes), ParamKind::Tensor { dtype, .. }) = (atom, &data.kind) else { return };
        let most = access_elements(self.kernel, param, slices) * dtype.bytes();
        if matches!(bytes, 4 | 8 | 16) && bytes > most {
            self.error(444, loc, format!("chunks of {bytes} bytes do not fit this part of `{}`: {most} do", data.name));
        }
    }

    /// 443: the kernel's target has what an instruction needs.
    fn needs(&mut self, capability: Option<Capability>, instruction: &dyn Display, loc: Loc) {
        let target = self.kernel.target;
        let Some(lacking) = capability.filter(|&c| !target.has(c)) else { return };
        let having = Target::first_with(lacking).map_or(String::new(), |t| format!("; {t} has"));
        self.error(443, loc, format!("{target} has no {instruction}{having}"));
    }

    /// 443 and 444.
    pub(super) fn copy_atom(&mut self, atom: CopyAtom, to: &SharedRef, loc: Loc) {
        let k = self.kernel;
        let buffer = &k.buffers[to.buffer];
        // The engine moves panel by panel.
        let is_by_engine = atom.map().is_some() || (atom == CopyAtom::Open && self.is_filled_by_engine(to));
        if to.origin != (0, 0) && !is_by_engine {
            let message = format!("a copy fills a buffer from its beginning, not from {:?} on", to.origin);
            self.error(444, loc, message);
        }
        let needs = match atom {
            CopyAtom::Open | CopyAtom::Direct => None,
            CopyAtom::CpAsync(_) => Some(Capability::CpAsync),
            CopyAtom::Tma(..) | CopyAtom::TmaMulticast(_) | CopyAtom::TmaStore(_) => Some(Capability::Tma),
        };
        self.needs(needs, &atom, loc);
        if let CopyAtom::CpAsync(bytes) = atom {
            let (element, row) = (buffer.dtype.bytes(), buffer.layout.cols * buffer.dtype.bytes());
            if !matches!(bytes, 4 | 8 | 16) {
                self.error(444, loc, format!("cp.async copies 4, 8 or 16 bytes, not {bytes}"));
            } else if bytes < element || !row.is_multiple_of(bytes) {
                let message = format!(
                    "chunks of {bytes} bytes do not make up rows of `{}`: {} elements of {element} bytes",
                    buffer.name, buffer.layout.cols
                );
                self.error(444, loc, message);
            }
        }
        let shared_by_all = buffer.owner == Owner::Cluster && k.cluster != (1, 1);
        if matches!(atom, CopyAtom::TmaMulticast(_)) && !shared_by_all {
            let message = format!("multicast to `{}`, which no cluster of several CTAs owns", buffer.name);
            self.error(444, loc, message);
        }
    }

    /// 442 and 443.
    pub(super) fn mma(&mut self, inst: Inst, op: &'k Op, loc: Loc) {
        let k = self.kernel;
        let Op::Mma { a, b, acc, atom, shape, accumulate } = op else { return };
        let info = atom.row();
        self.needs(info.needs, &info.name, loc);
        let (m, n, depth) = *shape;
        let is_wgmma = info.asynchronous;
        // The columns that one warpgroup makes.
        let columns = match &k.values[k.results[inst][0]].ty {
            Type::InFlight { layout, .. } => n / warp_grid_of(layout).cols.max(1),
            Type::Fragment { .. } | Type::Token(_) => n,
        };
        let fits = !is_wgmma
            || (m.is_multiple_of(64)
                && n.is_multiple_of(8)
                && columns <= WGMMA_COLUMNS
                && depth.is_multiple_of(info.shape.2));
        if m == 0 || n == 0 || depth == 0 || !fits {
            self.error(442, loc, format!("{} does not multiply [{m}, {depth}] by [{depth}, {n}]", info.name));
        }
        if is_wgmma && !matches!(b, Operand::Shared(_)) {
            self.error(442, loc, format!("{} reads its right operand from shared memory", info.name));
        }
        for (operand, is_along_k) in [(a, false), (b, true)] {
            if let Operand::Shared(from) = operand
                && atom.reads_along_k_alone()
                && from.transposed != is_along_k
            {
                let name = &k.buffers[from.buffer].name;
                self.error(442, loc, format!("{} reads operands along K, but `{name}` runs across it", info.name));
            }
        }
        let result = k.results[inst][0];
        let tile = match &k.values[result].ty {
            Type::InFlight { dtype, layout } => Some((*dtype, &**layout)),
            _ => None,
        };
        let text = MmaText { atom: *atom, shape: *shape, result: tile };
        self.accumulator(&text, result, loc);
        self.mma_operand(&text, a, [m, depth], loc);
        self.mma_operand(&text, b, [depth, n], loc);
        self.operand_layout(&text, Side::Left, a, [m, depth], loc);
        self.operand_layout(&text, Side::Right, b, [depth, n], loc);
        if let Some(acc) = acc
            && !self.fragment(*acc).is_some_and(|(d, l)| text.result.is_some_and(|(e, m)| d == e && same_layout(l, m)))
        {
            self.error(442, loc, format!("accumulates {} to {}", self.ty(result), self.ty(*acc)));
        }
        if let Some(v) = accumulate
            && (acc.is_none() || !self.is_scalar(*v, DType::Bool))
        {
            self.error(442, loc, format!("`accumulate` takes a scalar bool and an accumulator, found {}", self.ty(*v)));
        }
    }

    /// An operand in registers lies as the instruction takes it: of wgmma block by block, of others over the same warps as
    /// the accumulator.
    fn operand_layout(&mut self, mma: &MmaText<'_>, side: Side, operand: &Operand, shape: [u32; 2], loc: Loc) {
        let (Operand::Fragment(v), Some((_, accumulator))) = (operand, mma.result) else { return };
        let Some((_, layout)) = self.fragment(*v) else { return };
        let fits = match mma.atom {
            // Registers of other elements than 16-bit ones lie in another layout, which nothing makes yet.
            atom if atom.row().asynchronous => atom.row().operand.is_half() && is_atom_layout(layout),
            atom if !atom.is_tensor_core() => false,
            atom => same_layout(layout, &atom.operand(side, shape, accumulator)),
        };
        if !fits {
            let (side, name) = (side.name(), mma.atom.row().name);
            self.error(442, loc, format!("the {side} operand {layout} is not in the layout of {name}"));
        }
    }

    fn accumulator(&mut self, mma: &MmaText<'_>, result: Value, loc: Loc) {
        let info = mma.atom.row();
        let (m, n, _) = mma.shape;
        let fits = mma.result.is_some_and(|(d, l)| d == info.accumulator && l.shape == [m, n]);
        if !fits {
            let found = self.ty(result);
            self.error(
                442,
                loc,
                format!("{} gives inflight {}[{m}, {n}], but {found} is written", info.name, info.accumulator),
            );
        }
        if let Some((_, layout)) = mma.result
            && mma.atom.is_tensor_core()
            && !is_atom_layout(layout)
        {
            self.error(442, loc, format!("the accumulator {layout} is not in the layout of {}", info.name));
        }
    }

    fn mma_operand(&mut self, mma: &MmaText<'_>, operand: &Operand, shape: [u32; 2], loc: Loc) {
        let wanted = mma.atom.row().operand;
        match operand {
            Operand::Shared(r) => {
                self.shared(r, &shape, loc);
                let found = self.kernel.buffers[r.buffer].dtype;
                if found != wanted {
                    let name = &self.kernel.buffers[r.buffer].name;
                    self.error(
                        442,
                        loc,
                        format!("{} multiplies {wanted}, but `{name}` holds {found}", mma.atom.row().name),
                    );
                }
            }
            Operand::Fragment(v) => {
                if !self.fragment(*v).is_some_and(|(d, l)| d == wanted && l.shape == shape) {
                    let found = self.ty(*v);
                    self.error(442, loc, format!("{} takes {wanted}{shape:?}, found {found}", mma.atom.row().name));
                }
            }
        }
    }
}

/// True if lanes and first registers are those of a 16x8 block of a tensor-core atom.
fn is_atom_layout(layout: &Fragment) -> bool {
    let lanes = [Mode::new(4, 2, 1), Mode::new(8, 1, 0)];
    let block = [Mode::new(2, 1, 1), Mode::new(2, 8, 0)];
    layout.threads.starts_with(&lanes) && layout.regs.starts_with(&block)
}
