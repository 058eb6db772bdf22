//! The text form of Tile IR, written; [`crate::parse_kernel`] reads it back.
//!
//! ```text
//! kernel @scale(
//!   %x: bf16[G, N, D] strides [?128, 64, 1] align 16,
//!   %y: out bf16[G, N, D] strides [?128, 64, 1] align 16,
//!   %a: f32,
//! )
//! dims G: ?1, N: ?16, D = 64
//! grid (%0, %1) = (G, tiles(N, 64)) {
//!   %2 = load %x[%0, %1 : 64, ..] : bf16[64, 64]
//!   ...
//!   %9, %10 = pipeline %5 in %3..%4 carry (%6: f32[64, 64] = %1, %7: f32 = %2) {
//!     ...
//!     yield %8, %7
//!   }
//!   store %y[%0, %1 : 64, ..], %11
//! }
//! ```
//!
//! The text is canonical: values are numbered in the order of their definition (a loop's results
//! after its body), so kernels that differ in numbering alone print the same. Source places and the
//! source file are not part of it. A kernel that breaks the verifier's rules still prints.

use crate::entity::{Block, Inst, Value};
use crate::ir::Kernel;
use crate::op::{Op, Precision, Slice};
use crate::text::bodies::{Bodies, BodyPrinter, Numbering};
use crate::text::head::Head;
use crate::text::{commas, float_text};
use crate::types::reshape_axes;
use std::collections::BTreeSet;
use std::fmt::{self, Display, Formatter, Write};

impl Bodies for Kernel {
    type Value = Value;
    type Inst = Inst;
    type Block = Block;

    fn params(&self, block: Block) -> &[Value] {
        self.blocks.get(block).map_or(&[], |data| &data.params)
    }

    fn insts(&self, block: Block) -> Option<&[Inst]> {
        self.blocks.get(block).map(|data| &data.insts[..])
    }

    fn body(&self, inst: Inst) -> Option<Block> {
        match self.insts.get(inst) {
            Some(Op::Loop { body, .. }) => Some(*body),
            _ => None,
        }
    }

    fn results(&self, inst: Inst) -> &[Value] {
        &self.results[inst]
    }
}

fn numbering(kernel: &Kernel) -> Numbering<Kernel> {
    Numbering::of(kernel, kernel.grid.iter().map(|axis| axis.coord), [kernel.body])
}

struct Printer<'k> {
    kernel: &'k Kernel,
    numbering: Numbering<Kernel>,
    /// Blocks that have been opened, so that a malformed kernel does not recurse forever.
    open: BTreeSet<Block>,
}

impl Display for Kernel {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        Printer { kernel: self, numbering: numbering(self), open: BTreeSet::new() }.print(f)
    }
}

impl Printer<'_> {
    fn head(&self) -> Head<'_> {
        self.kernel.head()
    }

    fn ty(&self, v: Value) -> String {
        self.kernel.values.get(v).map_or_else(|| "undefined".to_owned(), |data| data.ty.to_string())
    }

    fn print(&mut self, f: &mut Formatter<'_>) -> fmt::Result {
        let k = self.kernel;
        write!(f, "kernel @{}(", k.name)?;
        self.head().write(f)?;
        f.write_str("grid (")?;
        commas(f, &k.grid, |f, a| f.write_str(&self.value(a.coord)))?;
        f.write_str(") = ")?;
        self.head().write_extents(f, k.grid.iter().map(|a| a.extent))?;
        f.write_str(if k.cluster { " cluster {\n" } else { " {\n" })?;
        self.block(f, k.body, 1)?;
        f.write_str("}\n")
    }

    fn slices(&self, f: &mut Formatter<'_>, slices: &[Slice]) -> fmt::Result {
        f.write_char('[')?;
        commas(f, slices, |f, s| match s {
            Slice::At(v) => f.write_str(&self.value(*v)),
            Slice::Tile { index, size } => write!(f, "{} : {size}", self.value(*index)),
            Slice::Span { start, len } => write!(f, "{} ..+ {len}", self.value(*start)),
            Slice::Whole => f.write_str(".."),
            Slice::Gather(places) => write!(f, "at {}", self.value(*places)),
        })?;
        f.write_char(']')
    }
}

impl<'k> BodyPrinter<'k> for Printer<'k> {
    type Kernel = Kernel;

    fn kernel(&self) -> &'k Kernel {
        self.kernel
    }

    fn numbering(&self) -> &Numbering<Kernel> {
        &self.numbering
    }

    fn open(&mut self, block: Block) -> bool {
        self.open.insert(block)
    }

    fn inst(&mut self, f: &mut Formatter<'_>, inst: Inst, depth: usize) -> fmt::Result {
        let kernel = self.kernel;
        let Some(op) = kernel.insts.get(inst) else { return write!(f, "// {inst} is missing") };
        let results = &kernel.results[inst];
        if !results.is_empty() {
            write!(f, "{} = ", self.values(results))?;
        }
        let name = op.kind().name();
        let v = |x: &Value| self.value(*x);
        let is_float = |x: Value| kernel.values.get(x).is_some_and(|data| data.ty.dtype.is_float());
        match op {
            // Whole numbers print in full, which is exact.
            Op::Splat { value, dtype, .. } if !dtype.is_float() && value.fract() == 0.0 => write!(f, "{name} {value}")?,
            Op::Splat { value, .. } => write!(f, "{name} {}", float_text(value))?,
            Op::Other { value, other, axes } => {
                match !is_float(*value) && other.fract() == 0.0 {
                    true => write!(f, "{name} {}, {other}", v(value))?,
                    false => write!(f, "{name} {}, {}", v(value), float_text(other))?,
                }
                // All axes go without saying.
                let rank = kernel.values.get(*value).map_or(0, |data| data.ty.rank());
                if axes.len() != rank {
                    write!(f, " axes {axes:?}")?;
                }
            }
            Op::Iota { axis, .. } => write!(f, "{name} axis {axis}")?,
            Op::DimSize(dim) => write!(f, "{name} {}", self.head().dim(*dim))?,
            Op::DimTiles { dim, size } => write!(f, "{name}({}, {size})", self.head().dim(*dim))?,
            Op::ScalarParam(p) => write!(f, "{name} %{}", self.head().param(*p))?,
            Op::TableGet { table, indices } => {
                write!(f, "{name} @{}[{}]", self.head().table(*table), self.values(indices))?
            }
            Op::Unary(op, x) => write!(f, "{} {}", op.name(), v(x))?,
            Op::Binary(op, a, b) => write!(f, "{} {}, {}", op.name(), v(a), v(b))?,
            Op::Compare(p, a, b) => write!(f, "{} {}, {}", p.name(), v(a), v(b))?,
            Op::Select { cond, on_true, on_false } => {
                write!(f, "{name} {}, {}, {}", v(cond), v(on_true), v(on_false))?;
            }
            Op::Fma(a, b, c) => write!(f, "{name} {}, {}, {}", v(a), v(b), v(c))?,
            Op::Cast(_, x) => write!(f, "{name} {}", v(x))?,
            Op::Broadcast { value, .. } => write!(f, "{name} {}", v(value))?,
            Op::Reshape { value, axes } => {
                write!(f, "{name} {}", v(value))?;
                // What the extents say goes without saying.
                let shape = |x: &Value| kernel.values.get(*x).map(|data| &data.ty.shape[..]);
                let said = shape(value).zip(results.first().and_then(shape)).and_then(|(a, b)| reshape_axes(a, b));
                if said.as_ref() != Some(axes) {
                    f.write_str(" axes [")?;
                    commas(f, axes, |f, axis| match axis {
                        Some(axis) => write!(f, "{axis}"),
                        None => f.write_str("new"),
                    })?;
                    f.write_char(']')?;
                }
            }
            Op::Transpose(x) | Op::ClusterSum(x) => write!(f, "{name} {}", v(x))?,
            Op::Reduce { op, value, axes } => write!(f, "{name} {} {} axes {axes:?}", op.name(), v(value))?,
            Op::Scan { op, value, axis, reverse } => {
                write!(f, "{name} {} {} axis {axis}{}", op.name(), v(value), if *reverse { " reverse" } else { "" })?;
            }
            Op::Dot { a, b, acc, precision } => {
                write!(f, "{name} {}, {}", v(a), v(b))?;
                if let Some(c) = acc {
                    write!(f, " acc {}", v(c))?;
                }
                if *precision != Precision::Default {
                    write!(f, " precision {}", precision.name())?;
                }
            }
            Op::Load { param, slices } => {
                write!(f, "{name} %{}", self.head().param(*param))?;
                self.slices(f, slices)?;
            }
            Op::Store { param, slices, value, update } => {
                f.write_str(name)?;
                if update.is_atomic() {
                    write!(f, " {}", update.name())?;
                }
                write!(f, " %{}", self.head().param(*param))?;
                self.slices(f, slices)?;
                return write!(f, ", {}", v(value));
            }
            Op::Loop { kind, lo, hi, inits, body } => {
                return self.loop_(f, kind.name(), [*lo, *hi], inits, *body, depth);
            }
            Op::Yield(values) if values.is_empty() => return f.write_str(name),
            Op::Yield(values) => return write!(f, "{name} {}", self.values(values)),
        }
        f.write_str(" : ")?;
        commas(f, results, |f, &r| f.write_str(&self.ty(r)))
    }

    fn typed(&self, v: Value) -> String {
        format!("{}: {}", self.value(v), self.ty(v))
    }
}

/// True if two kernels are equal except for the numbering of values, source locations and the source file.
///
/// Compares the text and then the structure. Numbers are compared by their bits, and all NaNs are equal.
pub fn same_kernel(a: &Kernel, b: &Kernel) -> bool {
    let number = |x: f64| if x.is_nan() { f64::NAN.to_bits() } else { x.to_bits() };
    let signature = a.name == b.name
        && a.dims.values().eq(b.dims.values())
        && a.params.values().eq(b.params.values())
        && a.tables.len() == b.tables.len()
        && a.tables.values().zip(b.tables.values()).all(|(x, y)| {
            let bits = |t: &crate::ir::TableData| t.values.iter().map(|&v| number(f64::from(v))).collect::<Vec<_>>();
            x.name == y.name && x.shape == y.shape && bits(x) == bits(y)
        })
        && a.grid.iter().map(|g| g.extent).eq(b.grid.iter().map(|g| g.extent))
        && a.cluster == b.cluster;
    signature && a.to_string() == b.to_string() && outline(a) == outline(b)
}

/// An instruction with canonical operands: its depth, operation, number's bits, results and their types.
type OutlineRow = (usize, String, Option<u64>, Vec<(Option<u32>, String)>);

/// The body as rows that do not depend on ids of values, instructions and blocks.
fn outline(kernel: &Kernel) -> Vec<OutlineRow> {
    fn block(
        k: &Kernel,
        n: &Numbering<Kernel>,
        b: Block,
        depth: usize,
        seen: &mut BTreeSet<Block>,
        rows: &mut Vec<OutlineRow>,
    ) {
        let Some(data) = k.blocks.get(b) else { return };
        if !seen.insert(b) {
            return;
        }
        let named = |vs: &[Value]| -> Vec<(Option<u32>, String)> {
            let ty = |v: Value| k.values.get(v).map(|d| d.ty.to_string()).unwrap_or_default();
            vs.iter().map(|&v| (n.number(v), ty(v))).collect()
        };
        rows.push((depth, "block".to_owned(), None, named(&data.params)));
        for &inst in &data.insts {
            let Some(op) = k.insts.get(inst) else { continue };
            let mut op = op.clone().map_operands(|v| Value::from_u32(n.number(v).unwrap_or(u32::MAX - 1)));
            let mut bits = None;
            let mut inner = None;
            match &mut op {
                Op::Splat { value, .. } | Op::Other { other: value, .. } => {
                    bits = Some(if value.is_nan() { f64::NAN.to_bits() } else { value.to_bits() });
                    *value = 0.0;
                }
                Op::Loop { body, .. } => inner = Some(std::mem::replace(body, Block::from_u32(0))),
                _ => {}
            }
            rows.push((depth, format!("{op:?}"), bits, named(&k.results[inst])));
            if let Some(body) = inner {
                block(k, n, body, depth + 1, seen, rows);
            }
        }
    }
    let mut rows = Vec::new();
    block(kernel, &numbering(kernel), kernel.body, 0, &mut BTreeSet::new(), &mut rows);
    rows
}
