//! How many registers of a thread a kernel's tiles need at once.
//!
//! # Promise
//! An estimate for refusing configs early, and no more. Whatever it says, a kernel computes the same: too high and a config
//! is refused that would do, too low and ptxas spills, which the runtime sees in the loaded kernel and tries the next
//! config. It depends on the kernel and the schedule alone, so a config is refused on every machine of a kind or on none.
//!
//! # Argument
//! A walk backward with the set of live values. A value costs its registers, packed to words; the peak is the largest sum
//! at any operation, with what the operation needs besides. A loop holds what lives after it, what its body uses from
//! outside, and in its body what it carries. Element-wise operations are evaluated register by register: an operand that
//! dies there gives its registers to the result, and a result that one such operation takes up is never held whole; what it
//! is made of is held in its place. Constants, indices and repeated elements are made where they are used.
//!
//! Copies in chunks of less than 16 bytes hold the addresses of a group of chunks.
//!
//! What is not counted: other addresses, predicates, and what ptxas keeps in flight. The limit of `check_registers` leaves room
//! for them, by measurement and not by proof.
//!
//! # Breaks it
//! - Kernels whose estimate is too low spill: `cargo xtask validate` puts every shipped config through ptxas, and
//!   snapshots/resources.txt holds what it said.
//! - Values counted twice, or not for the whole of a loop: tests/snapshots.rs shows the refusals.

use super::vectors::access_elements;
use crate::gpu::{Block, BufferData, COPIED_AT_ONCE, CopyAtom, Inst, Kernel, Op, Operand, Side, Type, Value, ValueDef};
use crate::layout::Fragment;
use atlas_dsl::DType;
use atlas_dsl::op::UnaryOp;
use std::collections::{BTreeMap, BTreeSet};

/// The most 32-bit registers that the tiles of a thread take at any point of a role.
pub fn peak_registers(k: &Kernel) -> u32 {
    let mut users: BTreeMap<Value, Vec<Inst>> = BTreeMap::new();
    for inst in k.blocks.values().flat_map(|b| b.insts.iter().copied()) {
        k.insts[inst].visit_operands(|v| {
            let list = users.entry(v).or_default();
            if list.last() != Some(&inst) {
                list.push(inst);
            }
        });
    }
    k.roles.values().map(|r| Walk { k, users: users.clone(), peak: 0 }.run(r.body)).max().unwrap_or(0)
}

/// Registers of a thread for the operands of products that a loop carries, of the loop that carries most.
pub fn carried_operands(k: &Kernel) -> u32 {
    let mut operands = BTreeSet::new();
    for inst in k.blocks.values().flat_map(|b| &b.insts) {
        if let Op::Mma { a, b, .. } = &k.insts[*inst] {
            operands
                .extend([a, b].into_iter().filter_map(|o| if let Operand::Fragment(v) = o { Some(*v) } else { None }));
        }
    }
    let carried = |v: &&Value| operands.contains(*v);
    let words = |v: &Value| k.values[*v].ty.tile().map_or(0, |(dtype, layout)| words(dtype, layout));
    k.blocks.values().map(|b| b.params.iter().filter(carried).map(words).sum()).max().unwrap_or(0)
}

/// Registers that a thread may have: a multiprocessor has 64 Ki, a thread at most 255.
pub fn registers_per_thread(threads: u32, occupancy: u32) -> u32 {
    (65536 / (threads * occupancy).max(1)).min(255)
}

struct Walk<'k> {
    k: &'k Kernel,
    users: BTreeMap<Value, Vec<Inst>>,
    peak: u32,
}

impl Walk<'_> {
    fn run(mut self, body: Block) -> u32 {
        self.block(body, BTreeSet::new());
        self.peak
    }

    /// Walks a block backward from what is live after it; returns what is live before it.
    fn block(&mut self, block: Block, mut live: BTreeSet<Value>) -> BTreeSet<Value> {
        for &inst in self.k.blocks[block].insts.iter().rev() {
            let op = &self.k.insts[inst];
            match op {
                Op::Loop { body, .. } | Op::If(_, body, _) | Op::Programs(body) => {
                    // What the body uses from outside is live throughout it.
                    let mut through = live.clone();
                    // A loop's results are what its body carries, which is counted there.
                    for r in &self.k.results[inst] {
                        through.remove(r);
                    }
                    self.outer_uses(*body, &mut through);
                    self.block(*body, through.clone());
                    live = through;
                }
                _ => self.note(&live, self.scratch(inst)),
            }
            let results = &self.k.results[inst];
            for r in results {
                live.remove(r);
            }
            if !results.iter().any(|&r| self.passes(r)) {
                op.visit_operands(|v| self.leaves(v, &mut live));
            }
        }
        for p in &self.k.blocks[block].params {
            live.remove(p);
        }
        live
    }

    fn outer_uses(&self, block: Block, into: &mut BTreeSet<Value>) {
        let mut inside: BTreeSet<Value> = self.k.blocks[block].params.iter().copied().collect();
        let mut used = BTreeSet::new();
        for &inst in &self.k.blocks[block].insts {
            let op = &self.k.insts[inst];
            op.visit_operands(|v| {
                used.insert(v);
            });
            if let Op::Loop { body, .. } | Op::If(_, body, _) | Op::Programs(body) = op {
                self.outer_uses(*body, &mut used);
            }
            inside.extend(&self.k.results[inst]);
        }
        into.extend(used.difference(&inside));
    }

    fn note(&mut self, live: &BTreeSet<Value>, scratch: u32) {
        let sum: u32 = live.iter().map(|&v| self.cost(v)).sum();
        self.peak = self.peak.max(sum + scratch);
    }

    /// What must be held for an operand to be had: itself, or what it is made of where it passes register by register.
    fn leaves(&self, v: Value, live: &mut BTreeSet<Value>) {
        match self.k.values[v].def {
            ValueDef::Result(inst, _) if self.passes(v) => {
                self.k.insts[inst].visit_operands(|o| self.leaves(o, live));
            }
            _ => {
                live.insert(v);
            }
        }
    }

    fn cost(&self, v: Value) -> u32 {
        if let (ValueDef::Result(inst, _), Type::Fragment { dtype, layout }) =
            (self.k.values[v].def, &self.k.values[v].ty)
            && let Op::LoadGlobal { param, slices, .. } = &self.k.insts[inst]
            && access_elements(self.k, *param, slices) * dtype.bytes() < 4
        {
            // What is loaded in halves of a word is not packed before it is used.
            return layout.reg_count();
        }
        let words = match &self.k.values[v].ty {
            Type::Fragment { dtype, layout } | Type::InFlight { dtype, layout } => words(*dtype, layout),
            Type::Token(_) => 1,
        };
        // Of a right operand that is loaded for one step two blocks are there at a time.
        let right = |inst: Inst| matches!(self.k.insts[inst], Op::LoadMatrix { side: Side::Right, .. });
        match self.k.values[v].def {
            ValueDef::Result(inst, _) if right(inst) => words.min(8),
            _ => words,
        }
    }

    /// True for what is never held whole: constants, repeated elements, and an element-wise result that one
    /// element-wise operation, fold or store takes up register by register.
    fn passes(&self, v: Value) -> bool {
        let ValueDef::Result(def, _) = self.k.values[v].def else { return false };
        if matches!(self.k.insts[def], Op::Const(_) | Op::Iota { .. } | Op::Broadcast(_)) {
            return true;
        }
        let elementwise = |op: &Op| op.is_elementwise() || matches!(op, Op::Broadcast(_) | Op::Refill { .. });
        if !elementwise(&self.k.insts[def]) {
            return false;
        }
        match self.users.get(&v).map(Vec::as_slice) {
            Some([one]) => {
                let op = &self.k.insts[*one];
                elementwise(op) || matches!(op, Op::Reduce { .. } | Op::StoreGlobal { .. } | Op::StoreShared { .. })
            }
            _ => false,
        }
    }

    /// Registers that an operation needs besides its operands and results.
    fn scratch(&self, inst: Inst) -> u32 {
        let op = &self.k.insts[inst];
        if let Op::Copy { atom, to, .. } = op {
            return self.addresses(*atom, &self.k.buffers[to.buffer]);
        }
        let Op::Mma { atom, .. } = op else {
            // A polynomial's coefficients and powers; an approximate instruction has none, but log has no such form.
            let polynomial = matches!(op, Op::Unary(f, _) if !f.row().exact);
            let precise = !self.k.approximate_math || matches!(op, Op::Unary(UnaryOp::Log, _));
            return if polynomial && precise { 8 } else { 0 };
        };
        let layout = self.k.values[self.k.results[inst][0]].ty.tile().map(|(_, l)| l);
        let count = |axis: u8| -> u32 {
            let regs = layout.map_or(&[][..], |l| &l.regs);
            regs.iter().filter(|m| m.axis == Some(axis)).map(|m| m.extent).product()
        };
        if atom.is_tensor_core() {
            // Operands are values of their own.
            return 0;
        }
        // Operand quads of the rows and columns that a thread holds.
        4 * (count(0) + count(1)) * atom.info().operand.bytes() / 4
    }

    /// Registers for the addresses of a copy in narrow chunks, as rows that are not aligned need.
    fn addresses(&self, atom: CopyAtom, buffer: &BufferData) -> u32 {
        let Some(bytes) = atom.chunk_bytes(buffer.dtype).filter(|&bytes| bytes < 16) else { return 0 };
        let chunks = buffer.layout.rows * buffer.layout.cols * buffer.dtype.bytes() / bytes;
        chunks.div_ceil(self.k.threads).min(COPIED_AT_ONCE) * OF_CHUNK
    }
}

/// Registers that a narrow chunk of a copy takes: where it comes from and goes to, and what it is where nothing copies it
/// asynchronously.
const OF_CHUNK: u32 = 4;

fn words(dtype: DType, layout: &Fragment) -> u32 {
    if dtype == DType::Bool {
        return 0;
    }
    (layout.reg_count() * dtype.bytes()).div_ceil(4)
}
