//! The bodies of a kernel in both text forms, written: the numbers of values, blocks of instructions, and loops.
//!
//! ```text
//!   %9, %10 = pipeline %5 in %3..%4 carry (%6: f32[64, 64] = %1, %7: f32 = %2) {
//!     ...
//!   }
//! ```
//!
//! Values are numbered in the order of their definition, the results of a loop after its body. A kernel that breaks the
//! verifier's rules still prints: what is missing is marked, and a block that is reached twice is written once.

use super::commas;
use cranelift_entity::{EntityRef, SecondaryMap};
use std::collections::BTreeSet;
use std::fmt::{self, Display, Formatter, Write};

/// A kernel whose instructions are in blocks, some of which are bodies of instructions.
pub trait Bodies {
    /// A value.
    type Value: EntityRef;
    /// An instruction.
    type Inst: EntityRef;
    /// A block.
    type Block: EntityRef + Ord + Display;

    /// The parameters of a block; none if there is no such block.
    fn params(&self, block: Self::Block) -> &[Self::Value];

    /// The instructions of a block, if it exists.
    fn insts(&self, block: Self::Block) -> Option<&[Self::Inst]>;

    /// The block that an instruction runs, if it runs one.
    fn body(&self, inst: Self::Inst) -> Option<Self::Block>;

    /// The results of an instruction.
    fn results(&self, inst: Self::Inst) -> &[Self::Value];
}

/// The position of every value in the order of definition.
pub struct Numbering<K: Bodies> {
    number: SecondaryMap<K::Value, Option<u32>>,
    order: Vec<K::Value>,
    /// The blocks on the way here, so that a malformed kernel does not recurse forever.
    seen: BTreeSet<K::Block>,
}

impl<K: Bodies> Numbering<K> {
    /// Numbers the coordinates of the grid, and then what the bodies define.
    pub fn of(
        kernel: &K,
        coords: impl IntoIterator<Item = K::Value>,
        bodies: impl IntoIterator<Item = K::Block>,
    ) -> Numbering<K> {
        let mut n = Numbering { number: SecondaryMap::new(), order: Vec::new(), seen: BTreeSet::new() };
        coords.into_iter().for_each(|v| n.define(v));
        bodies.into_iter().for_each(|b| n.block(kernel, b));
        n
    }

    fn define(&mut self, v: K::Value) {
        if self.number[v].is_none() {
            self.number[v] = Some(self.order.len() as u32);
            self.order.push(v);
        }
    }

    fn block(&mut self, kernel: &K, block: K::Block) {
        let Some(insts) = kernel.insts(block) else { return };
        if !self.seen.insert(block) {
            return;
        }
        kernel.params(block).iter().for_each(|&v| self.define(v));
        for &inst in insts {
            if let Some(body) = kernel.body(inst) {
                self.block(kernel, body);
            }
            kernel.results(inst).iter().for_each(|&v| self.define(v));
        }
    }

    /// A value's number, if something defines it.
    pub fn number(&self, v: K::Value) -> Option<u32> {
        self.number[v]
    }

    /// The values in the order of their numbers.
    pub fn order(&self) -> &[K::Value] {
        &self.order
    }
}

/// Writes the bodies of a kernel. A text form gives the parts in which it differs.
pub trait BodyPrinter<'k> {
    /// The kernel.
    type Kernel: Bodies + 'k;

    /// The kernel that is printed.
    fn kernel(&self) -> &'k Self::Kernel;

    /// The numbers of its values.
    fn numbering(&self) -> &Numbering<Self::Kernel>;

    /// Notes that a block is being written; false if it was written before.
    fn open(&mut self, block: BlockOf<'k, Self>) -> bool;

    /// One instruction, without indentation and the end of the line.
    fn inst(&mut self, f: &mut Formatter<'_>, inst: InstOf<'k, Self>, depth: usize) -> fmt::Result;

    /// `%3: f32[64]`.
    fn typed(&self, v: ValueOf<'k, Self>) -> String;

    /// `%3`, where a loop or `programs` defines an index.
    fn index(&self, v: ValueOf<'k, Self>) -> String {
        self.value(v)
    }

    /// `%3`.
    fn value(&self, v: ValueOf<'k, Self>) -> String {
        match self.numbering().number(v) {
            Some(n) => format!("%{n}"),
            None => format!("%undefined_{}", v.index()),
        }
    }

    /// `%3, %4`.
    fn values(&self, values: &[ValueOf<'k, Self>]) -> String {
        values.iter().map(|&v| self.value(v)).collect::<Vec<_>>().join(", ")
    }

    /// The instructions of a block, one on each line.
    fn block(&mut self, f: &mut Formatter<'_>, block: BlockOf<'k, Self>, depth: usize) -> fmt::Result {
        let Some(insts) = self.kernel().insts(block) else { return Ok(()) };
        if !self.open(block) {
            return writeln!(f, "{:1$}// {block} again", "", 2 * depth);
        }
        for &inst in insts {
            write!(f, "{:1$}", "", 2 * depth)?;
            self.inst(f, inst, depth)?;
            f.write_char('\n')?;
        }
        Ok(())
    }

    /// A block in braces, behind the instruction that runs it.
    fn body(&mut self, f: &mut Formatter<'_>, block: BlockOf<'k, Self>, depth: usize) -> fmt::Result {
        f.write_str(" {\n")?;
        self.block(f, block, depth + 1)?;
        write!(f, "{:1$}}}", "", 2 * depth)
    }

    /// A loop from its keyword to its closing brace.
    fn loop_(
        &mut self,
        f: &mut Formatter<'_>,
        keyword: &str,
        [lo, hi]: [ValueOf<'k, Self>; 2],
        inits: &[ValueOf<'k, Self>],
        body: BlockOf<'k, Self>,
        depth: usize,
    ) -> fmt::Result {
        let missing = || "%missing".to_owned();
        let params = self.kernel().params(body);
        let index = params.first().map_or_else(missing, |&v| self.index(v));
        write!(f, "{keyword} {index} in {}..{}", self.value(lo), self.value(hi))?;
        let carried = params.get(1..).unwrap_or_default();
        if !inits.is_empty() || !carried.is_empty() {
            f.write_str(" carry (")?;
            commas(f, 0..inits.len().max(carried.len()), |f, i| {
                f.write_str(&carried.get(i).map_or_else(missing, |&p| self.typed(p)))?;
                write!(f, " = {}", inits.get(i).map_or_else(missing, |&v| self.value(v)))
            })?;
            f.write_char(')')?;
        }
        self.body(f, body, depth)
    }
}

/// A value of the kernel that is printed.
type ValueOf<'k, P> = <<P as BodyPrinter<'k>>::Kernel as Bodies>::Value;

/// An instruction of the kernel that is printed.
type InstOf<'k, P> = <<P as BodyPrinter<'k>>::Kernel as Bodies>::Inst;

/// A block of the kernel that is printed.
type BlockOf<'k, P> = <<P as BodyPrinter<'k>>::Kernel as Bodies>::Block;
