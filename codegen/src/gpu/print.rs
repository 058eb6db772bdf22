//! The text form of GPU IR, written; [`super::parse_gpu`] reads it back.
//!
//! ```text
//! gpu @scale sm_80 threads 128 approximate (
//!   %x: bf16[M, D] strides [64, 1] align 16,
//!   %y: out bf16[M, D] strides [64, 1] align 16,
//! )
//! dims M: ?1, D = 64
//! map %map0 = %x [1: 64, 0: 64] span 128
//! layout #0 = [64, 64] threads (8:8@1, 4:1@0, 4:4@0) regs (8:1@1, 4:16@0)
//! buffer %X: shared bf16 [2] [64, 64] pitch 128 swizzle<3,4,3> at 0
//! ring %ring0: stages 2 over (%X)
//! programs (%0) = linear (tiles(M, 64))
//! role all scope cta {
//!   %1: bf16 #0 = load.global %x[%0 : 64, 0 ..+ 64]
//!   store.global %y[%0 : 64, 0 ..+ 64], %1
//! }
//! ```
//!
//! A type is `f32` (a scalar), `f32 #0` (a fragment), `inflight f32 #0` or `token %ring0`. Slices:
//! `%c` or `%c in_bounds` (an element), `%t : 64 + 8 ..+ 16` (16 elements from the 8th of the t-th tile of
//! 64), `%s + 8 ..+ 16` (16 elements from s + 8), `8 ..+ 16`. A shared reference is
//! `%X[%token] at (row, column) transposed`. A map has the axes of its tensor, innermost first, with the extents of a box.
//! A ring that the copy engine fills is `from engine`, one that it reads `to engine`.
//!
//! The text is canonical: values are numbered in the order of their definition, layouts in the order
//! of their first use. Source places are not part of it. A kernel that breaks the verifier's rules
//! still prints.

use super::{Block, Buffer, Domain, Inst, Kernel, Mover, Op, Owner, Ring, RoleData, Scope, TensorMap, Type, Value};
use crate::layout::{Fragment, Mode};
use atlas_dsl::DType;
use atlas_dsl::text::bodies::{Bodies, BodyPrinter, Numbering};
use atlas_dsl::text::head::Head;
use atlas_dsl::text::{Name, commas};
use cranelift_entity::EntityRef;
use std::collections::BTreeSet;
use std::fmt::{self, Display, Formatter, Write};

impl Scope {
    /// Every scope, from the smallest.
    pub const ALL: [Scope; 5] = [Scope::Thread, Scope::Warp, Scope::Warpgroup, Scope::Cta, Scope::Cluster];

    /// Spelling in the text form.
    pub const fn name(self) -> &'static str {
        match self {
            Scope::Thread => "thread",
            Scope::Warp => "warp",
            Scope::Warpgroup => "warpgroup",
            Scope::Cta => "cta",
            Scope::Cluster => "cluster",
        }
    }
}

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
        self.insts.get(inst).and_then(Op::body)
    }

    fn results(&self, inst: Inst) -> &[Value] {
        &self.results[inst]
    }
}

/// The layouts of the kernel's values in the order of their first use, without that of scalars.
fn layouts<'k>(kernel: &'k Kernel, order: &[Value]) -> Vec<&'k Fragment> {
    let mut seen = BTreeSet::new();
    let tile = |&v: &Value| kernel.values.get(v)?.ty.tile();
    let layouts = order.iter().filter_map(tile).map(|(_, layout)| layout);
    layouts.filter(|&layout| !is_scalar(kernel, layout) && seen.insert(layout)).collect()
}

/// True for the layout of the kernel's scalars, which types leave out.
fn is_scalar(kernel: &Kernel, layout: &Fragment) -> bool {
    layout.shape.is_empty() && layout.regs.is_empty() && layout.threads == [Mode::replicated(kernel.threads)]
}

/// The names of the buffers, made words and made unique.
fn buffer_names(kernel: &Kernel) -> Vec<String> {
    let mut taken: BTreeSet<String> =
        kernel.rings.keys().map(ring_name).chain(kernel.maps.keys().map(map_name)).collect();
    let mut names = Vec::new();
    for data in kernel.buffers.values() {
        let mut base: String =
            data.name.chars().map(|c| if c.is_ascii_alphanumeric() || c == '_' { c } else { '_' }).collect();
        if !base.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') {
            base.insert(0, '_');
        }
        let mut name = base.clone();
        let mut n = 2;
        while !taken.insert(name.clone()) {
            name = format!("{base}_{n}");
            n += 1;
        }
        names.push(name);
    }
    names
}

fn ring_name(ring: Ring) -> String {
    format!("ring{}", ring.index())
}

fn map_name(map: TensorMap) -> String {
    format!("map{}", map.index())
}

pub(super) struct Printer<'k> {
    pub(super) kernel: &'k Kernel,
    numbering: Numbering<Kernel>,
    layouts: Vec<&'k Fragment>,
    buffers: Vec<String>,
    /// Blocks that have been opened, so that a malformed kernel does not recurse for ever.
    open: BTreeSet<Block>,
}

impl Kernel {
    /// The text of the kernel. In development builds this crate is optimised, and its callers are not.
    pub fn text(&self) -> String {
        self.to_string()
    }
}

impl Display for Kernel {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let bodies = self.roles.values().map(|role| role.body);
        let numbering = Numbering::of(self, self.coords.iter().copied(), bodies);
        let layouts = layouts(self, numbering.order());
        Printer { kernel: self, numbering, layouts, buffers: buffer_names(self), open: BTreeSet::new() }.print(f)
    }
}

impl Printer<'_> {
    pub(super) fn head(&self) -> Head<'_> {
        self.kernel.head()
    }

    pub(super) fn buffer(&self, b: Buffer) -> Name<'_> {
        Name(self.buffers.get(b.index()).map(String::as_str), b.index())
    }

    pub(super) fn ring(&self, r: Ring) -> String {
        if self.kernel.rings.is_valid(r) { ring_name(r) } else { format!("missing_{}", r.index()) }
    }

    pub(super) fn map(&self, map: TensorMap) -> String {
        if self.kernel.maps.is_valid(map) { map_name(map) } else { format!("missing_{}", map.index()) }
    }

    fn tile(&self, dtype: DType, layout: &Fragment) -> String {
        match self.layouts.iter().position(|&known| known == layout) {
            Some(n) => format!("{dtype} #{n}"),
            None => dtype.to_string(),
        }
    }

    fn print(&mut self, f: &mut Formatter<'_>) -> fmt::Result {
        let k = self.kernel;
        write!(f, "gpu @{} {} threads {}", k.name, k.target, k.threads)?;
        if k.occupancy != 1 {
            write!(f, " occupancy {}", k.occupancy)?;
        }
        if k.cluster != (1, 1) {
            write!(f, " cluster ({}, {})", k.cluster.0, k.cluster.1)?;
        }
        f.write_str(" (")?;
        self.head().write(f)?;
        for (i, layout) in self.layouts.iter().enumerate() {
            writeln!(f, "layout #{i} = {layout}")?;
        }
        self.maps(f)?;
        self.memory(f)?;
        f.write_str("programs (")?;
        commas(f, &k.coords, |f, &v| f.write_str(&self.index(v)))?;
        f.write_str(") = ")?;
        let map = &k.index_map;
        if map.persistent {
            f.write_str("persistent ")?;
        }
        if map.splits > 1 {
            write!(f, "split({}) ", map.splits)?;
        }
        match (map.domain, map.group) {
            (Domain::Box, None) => f.write_str("linear ")?,
            (Domain::Box, Some(width)) => write!(f, "grouped({width}) ")?,
            (Domain::Triangle, None) => f.write_str("triangular ")?,
            (Domain::Triangle, Some(width)) => write!(f, "triangular grouped({width}) ")?,
        }
        self.head().write_extents(f, map.axes.iter().copied())?;
        f.write_char('\n')?;
        k.roles.values().try_for_each(|role| self.role(f, role))
    }

    /// Tensor maps.
    fn maps(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for (map, data) in &self.kernel.maps {
            write!(f, "map %{} = %{} [", self.map(map), self.head().param(data.param))?;
            commas(f, &data.axes, |f, a| write!(f, "{}: {}", a.axis, a.size))?;
            writeln!(f, "] span {}", data.span)?;
        }
        Ok(())
    }

    /// Buffers and rings.
    fn memory(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for (b, data) in &self.kernel.buffers {
            write!(f, "buffer %{}: shared {} [{}] {}", self.buffer(b), data.dtype, data.stages, data.layout)?;
            if data.owner == Owner::Cluster {
                f.write_str(" owner cluster")?;
            }
            if let Some(offset) = data.offset {
                write!(f, " at {offset}")?;
            }
            f.write_char('\n')?;
        }
        for (r, data) in &self.kernel.rings {
            write!(f, "ring %{}: stages {} over (", self.ring(r), data.stages)?;
            commas(f, &data.buffers, |f, &b| write!(f, "%{}", self.buffer(b)))?;
            f.write_char(')')?;
            if data.filled_by == Mover::Engine {
                f.write_str(" from engine")?;
            }
            if data.read_by == Mover::Engine {
                f.write_str(" to engine")?;
            }
            if data.by_warpgroups {
                f.write_str(" by warpgroups")?;
            }
            if let Some(offset) = data.mbarriers {
                write!(f, " at {offset}")?;
            }
            f.write_char('\n')?;
        }
        Ok(())
    }

    fn role(&mut self, f: &mut Formatter<'_>, role: &RoleData) -> fmt::Result {
        write!(f, "role {} scope {}", role.name, role.scope.name())?;
        if role.scope != Scope::Cta || role.units != (0, 0) {
            write!(f, " {}..{}", role.units.0, role.units.1)?;
        }
        if let Some(registers) = role.registers {
            write!(f, " registers {registers}")?;
        }
        f.write_str(" {\n")?;
        self.block(f, role.body, 1)?;
        f.write_str("}\n")
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
            commas(f, results, |f, &v| f.write_str(&self.typed(v)))?;
            f.write_str(" = ")?;
        }
        self.op(f, op, depth)?;
        kernel.access_kinds[inst].iter().try_for_each(|form| write!(f, " {form}"))
    }

    /// `%3: f32 #0`.
    fn typed(&self, v: Value) -> String {
        let ty = match self.kernel.values.get(v) {
            None => "undefined".to_owned(),
            Some(data) => match &data.ty {
                Type::Fragment { dtype, layout } => self.tile(*dtype, layout),
                Type::InFlight { dtype, layout } => format!("inflight {}", self.tile(*dtype, layout)),
                Type::Token(ring) => format!("token %{}", self.ring(*ring)),
            },
        };
        format!("{}: {ty}", self.value(v))
    }

    /// `%3`, with its type unless that is a scalar i32.
    fn index(&self, v: Value) -> String {
        let plain = self.kernel.values.get(v).is_some_and(
            |data| matches!(&data.ty, Type::Fragment { dtype: DType::I32, layout } if is_scalar(self.kernel, layout)),
        );
        if plain { self.value(v) } else { self.typed(v) }
    }
}
