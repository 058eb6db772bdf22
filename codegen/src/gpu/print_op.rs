//! The operations of the text form of GPU IR, written.

use super::print::Printer;
use super::{At, Block, CopyAtom, FenceKind, Op, Operand, Reach, SharedRef, Slice, Value};
use atlas_dsl::op::LoopKind;
use atlas_dsl::text::{commas, float_text};
use std::fmt::{self, Display, Formatter, Write};

impl Display for CopyAtom {
    /// `cp.async.16`, `tma.store`.
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            CopyAtom::CpAsync(bytes) => write!(f, "cp.async.{bytes}"),
            CopyAtom::Open => f.write_str("open"),
            CopyAtom::Direct => f.write_str("direct"),
            CopyAtom::Tma => f.write_str("tma"),
            CopyAtom::TmaMulticast => f.write_str("tma.multicast"),
            CopyAtom::TmaStore => f.write_str("tma.store"),
        }
    }
}

impl FenceKind {
    /// Spelling in the text form.
    pub const fn name(self) -> &'static str {
        match self {
            FenceKind::ProxyAsync => "proxy.async",
        }
    }
}

impl Printer<'_> {
    /// An operation, without its results and without the end of the line.
    pub(super) fn op(&mut self, f: &mut Formatter<'_>, op: &Op, depth: usize) -> fmt::Result {
        let v = |x: &Value| self.value(*x);
        match op {
            Op::Const(x) => write!(f, "const {}", float_text(x)),
            Op::Iota { axis, offset: 0 } => write!(f, "iota axis {axis}"),
            Op::Iota { axis, offset } => write!(f, "iota axis {axis} offset {offset}"),
            Op::DimSize(d) => write!(f, "size {}", self.head().dim(*d)),
            Op::DimTiles(d, size) => write!(f, "tiles({}, {size})", self.head().dim(*d)),
            Op::CtaNumber => f.write_str("cta"),
            Op::CtaCount => f.write_str("ctas"),
            Op::Unsigned(op, a, b) => write!(f, "{} {}, {}", op.name(), v(a), v(b)),
            Op::Coordinate(x, axis) => {
                write!(f, "coordinate {} of ", v(x))?;
                self.head().write_extents(f, [*axis])
            }
            Op::ScalarParam(p) => write!(f, "scalar %{}", self.head().param(*p)),
            Op::TableGet(table, indices) => write!(f, "get @{}[{}]", self.head().table(*table), self.values(indices)),
            Op::Unary(op, by, x) => write!(f, "{}{} {}", op.name(), by.suffix(), v(x)),
            Op::Binary(op, by, a, b) => write!(f, "{}{} {}, {}", op.name(), by.suffix(), v(a), v(b)),
            Op::Compare(p, a, b) => write!(f, "{} {}, {}", p.name(), v(a), v(b)),
            Op::Select(c, a, b) => write!(f, "select {}, {}, {}", v(c), v(a), v(b)),
            Op::Cast(x) => write!(f, "cast {}", v(x)),
            Op::Again(x) => write!(f, "again {}", v(x)),
            Op::Broadcast(x) => write!(f, "broadcast {}", v(x)),
            Op::Reshape(x) => write!(f, "reshape {}", v(x)),
            Op::Transpose(x) => write!(f, "transpose {}", v(x)),
            Op::Convert(x) => write!(f, "convert {}", v(x)),
            Op::Part { value, axis, offset } => write!(f, "part {} axis {axis} offset {offset}", v(value)),
            Op::Refill { value, neutral, valid } => {
                write!(f, "refill {} with {} valid (", v(value), float_text(neutral))?;
                commas(f, valid, |f, x| {
                    write!(f, "{}: ", x.axis)?;
                    self.slice(f, &x.slice)?;
                    write!(f, " of {}", self.head().dim(x.dim))
                })?;
                f.write_char(')')
            }
            Op::Reduce { op, value, axes } => write!(f, "reduce {} {} axes {axes:?}", op.name(), v(value)),
            Op::LoadGlobal { param, slices, cache } => {
                write!(f, "load.global{} %{}", cache.suffix(), self.head().param(*param))?;
                self.slices(f, slices)
            }
            Op::StoreGlobal { param, slices, value } => {
                write!(f, "store.global %{}", self.head().param(*param))?;
                self.slices(f, slices)?;
                write!(f, ", {}", v(value))
            }
            Op::Copy { atom, param, slices, to } => {
                write!(f, "copy {atom} ")?;
                if *atom == CopyAtom::TmaStore {
                    self.shared(f, to)?;
                    write!(f, " -> %{}", self.head().param(*param))?;
                    return self.slices(f, slices);
                }
                write!(f, "%{}", self.head().param(*param))?;
                self.slices(f, slices)?;
                f.write_str(" -> ")?;
                self.shared(f, to)
            }
            Op::LoadShared(from) => {
                f.write_str("load.shared ")?;
                self.shared(f, from)
            }
            Op::LoadMatrix { side, from, further } => {
                write!(f, "load.matrix {} ", side.name())?;
                self.shared(f, from)?;
                match further {
                    Some((by, elements)) => write!(f, " further {} * {elements}", v(by)),
                    None => Ok(()),
                }
            }
            Op::StoreShared { to, value } => {
                f.write_str("store.shared ")?;
                self.shared(f, to)?;
                write!(f, ", {}", v(value))
            }
            Op::ZeroShared(buffer) => write!(f, "zero.shared %{}", self.buffer(*buffer)),
            Op::Mma { a, b, acc, atom, shape: (m, n, k), accumulate } => {
                write!(f, "mma {} [{m}, {n}, {k}] ", atom.info().name)?;
                commas(f, [a, b], |f, o| match o {
                    Operand::Shared(r) => self.shared(f, r),
                    Operand::Fragment(x) => f.write_str(&v(x)),
                })?;
                if let Some(acc) = acc {
                    write!(f, " acc {}", v(acc))?;
                }
                match accumulate {
                    Some(accumulate) => write!(f, " accumulate {}", v(accumulate)),
                    None => Ok(()),
                }
            }
            Op::WaitMma(x, pending) => write!(f, "wait.mma {}, {pending}", v(x)),
            Op::Acquire(ring, at) => {
                write!(f, "acquire %{}", self.ring(*ring))?;
                self.at(f, *at)
            }
            Op::Commit(ring, None) => write!(f, "commit %{}", self.ring(*ring)),
            Op::Commit(ring, Some(token)) => write!(f, "commit %{}, {}", self.ring(*ring), v(token)),
            Op::Wait(ring, at) => {
                write!(f, "wait %{}", self.ring(*ring))?;
                self.at(f, *at)
            }
            Op::Release(token) => write!(f, "release {}", v(token)),
            Op::Drain(ring) => write!(f, "drain %{}", self.ring(*ring)),
            Op::CopyWait(pending) => write!(f, "wait.copies {pending}"),
            Op::Barrier => f.write_str("barrier"),
            Op::Fence(kind) => write!(f, "fence {}", kind.name()),
            Op::Loop { kind, lo, hi, inits, body } => self.loop_(f, *kind, [*lo, *hi], inits, *body, depth),
            Op::Programs(body) => {
                f.write_str("programs (")?;
                let params = self.kernel.blocks.get(*body).map_or(&[][..], |b| &b.params);
                commas(f, params, |f, &p| f.write_str(&self.index(p)))?;
                f.write_char(')')?;
                self.body(f, *body, depth)
            }
            Op::If(condition, body, others) => {
                write!(f, "if {}", v(condition))?;
                self.body(f, *body, depth)?;
                if others.is_empty() { Ok(()) } else { write!(f, " else {}", self.values(others)) }
            }
            Op::Yield(values) if values.is_empty() => f.write_str("yield"),
            Op::Yield(values) => write!(f, "yield {}", self.values(values)),
        }
    }

    fn body(&mut self, f: &mut Formatter<'_>, body: Block, depth: usize) -> fmt::Result {
        f.write_str(" {\n")?;
        self.block(f, body, depth + 1)?;
        write!(f, "{:1$}}}", "", 2 * depth)
    }

    fn slices(&self, f: &mut Formatter<'_>, slices: &[Slice]) -> fmt::Result {
        f.write_char('[')?;
        commas(f, slices, |f, s| self.slice(f, s))?;
        f.write_char(']')
    }

    fn slice(&self, f: &mut Formatter<'_>, slice: &Slice) -> fmt::Result {
        let plus = |f: &mut Formatter<'_>, offset: u32| match offset {
            0 => Ok(()),
            _ => write!(f, " + {offset}"),
        };
        match *slice {
            Slice::At { coord, in_bounds } => {
                f.write_str(&self.value(coord))?;
                f.write_str(if in_bounds { " in_bounds" } else { "" })
            }
            Slice::Tile { index, size, offset, len, reach } => {
                write!(f, "{} : {size}", self.value(index))?;
                plus(f, offset)?;
                if len != size {
                    write!(f, " ..+ {len}")?;
                }
                if reach == Reach::Anywhere { Ok(()) } else { write!(f, " {}", reach.word()) }
            }
            Slice::Span { start, offset, len } => {
                f.write_str(&self.value(start))?;
                plus(f, offset)?;
                write!(f, " ..+ {len}")
            }
            Slice::Whole { offset, len } => write!(f, "{offset} ..+ {len}"),
        }
    }

    fn at(&self, f: &mut Formatter<'_>, at: At) -> fmt::Result {
        match at {
            At::Iteration(n) => write!(f, ", {}", self.value(n)),
            At::Slot(slot) => write!(f, " slot {}", self.value(slot)),
        }
    }

    fn shared(&self, f: &mut Formatter<'_>, r: &SharedRef) -> fmt::Result {
        write!(f, "%{}", self.buffer(r.buffer))?;
        if let Some(token) = r.token {
            write!(f, "[{}]", self.value(token))?;
        }
        if r.origin != (0, 0) {
            write!(f, " at ({}, {})", r.origin.0, r.origin.1)?;
        }
        f.write_str(if r.transposed { " transposed" } else { "" })
    }

    fn loop_(
        &mut self,
        f: &mut Formatter<'_>,
        kind: LoopKind,
        [lo, hi]: [Value; 2],
        inits: &[Value],
        body: Block,
        depth: usize,
    ) -> fmt::Result {
        let kernel = self.kernel;
        let params = kernel.blocks.get(body).map_or(&[][..], |b| &b.params);
        let index = params.first().map_or_else(|| "%missing".to_owned(), |&v| self.index(v));
        write!(f, "{} {index} in {}..{}", kind.name(), self.value(lo), self.value(hi))?;
        if !inits.is_empty() || params.len() > 1 {
            f.write_str(" carry (")?;
            let carried = params.get(1..).unwrap_or_default();
            commas(f, 0..inits.len().max(carried.len()), |f, i| {
                f.write_str(&carried.get(i).map_or_else(|| "%missing".to_owned(), |&p| self.typed(p)))?;
                write!(f, " = {}", inits.get(i).map_or_else(|| "%missing".to_owned(), |&v| self.value(v)))
            })?;
            f.write_char(')')?;
        }
        self.body(f, body, depth)
    }
}
