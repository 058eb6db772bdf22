//! An estimate of the registers of a thread that a kernel's tiles need at once.
//!
//! # Promise
//! The estimate only serves to refuse configs early. Whatever it says, a kernel computes the same. If it is too high, a config
//! is refused that would work. If it is too low, ptxas spills, and the runtime sees that in the loaded kernel and tries the
//! next config. It depends only on the kernel and the schedule, so a config is refused on every machine of a kind or on none.
//!
//! # Argument
//! The estimate is a backward walk with the set of live values. A value costs its registers, packed to words. The peak is the
//! largest sum at any operation, including temporaries of the operation. A loop holds the values that are live after it, the
//! outer values that its body uses, and in its body the carried values. Element-wise operations are evaluated register by
//! register: an operand that dies there gives its registers to the result. A result that only one such operation uses is never
//! held as a whole; its operands are held instead. The same holds for all values inside a run that is emitted register by
//! register (`runs.rs`). Constants, indices and repeated elements are computed where they are used.
//!
//! This overestimates a sum of many loaded tiles, because all of them would be live at once. So a kernel that would be refused
//! is also estimated *in order*: operands are held instead of such a result only if that takes fewer registers, and a tile of a
//! read-only tensor is loaded where it is first used. The smaller of both estimates counts. ptxas finds either order, because
//! it moves loads and short operations down to their uses. It does not move functions and quotients, which have many
//! instructions. In order, these are held as a whole from their position on.
//!
//! Copies in chunks of less than 16 bytes hold the addresses of a group of chunks.
//!
//! Other addresses, predicates and values that ptxas keeps in flight are not counted. The limit of `check_registers` leaves
//! room for them, based on measurements and not on a proof.
//!
//! # Breaks it
//! - Kernels whose estimate is too low spill: `cargo xtask validate` assembles every shipped config with ptxas, and
//!   snapshots/resources.txt has the results.
//! - Values counted twice, or not for the whole of a loop: tests/snapshots.rs shows the refusals.

use super::runs::Runs;
use crate::gpu::atom::MmaAtom;
use crate::gpu::partial_tiles::{LOADS_AT_ONCE, REGISTERS_AT_ONCE};
use crate::gpu::{
    Accuracy, Block, BufferData, COPIED_AT_ONCE, CopyAtom, Inst, Kernel, Op, Operand, Side, Type, Value, ValueDef,
    access_elements,
};
use crate::layout::words;
use atlas_dsl::DType;
use atlas_dsl::op::BinaryOp;
use cranelift_entity::{EntitySet, SecondaryMap};

/// The peak number of 32-bit registers that the tiles of a thread take in a role.
pub fn peak_registers(k: &Kernel) -> u32 {
    peak(k, &EntitySet::new(), Order::ByRegister)
}

/// The same, with the estimate in order if the first one is above `most`.
pub fn peak_registers_within(k: &Kernel, most: u32) -> u32 {
    if tiles(k, Order::ByRegister) <= most { peak_registers(k) } else { tile_registers(k, most) }
}

/// The registers of tiles, without the operands that a loop of products loads at its end for the next iteration, because
/// `carry_operands` has checked those itself. Also estimated in order if they are above `most`.
pub fn tile_registers(k: &Kernel, most: u32) -> u32 {
    let needed = tiles(k, Order::ByRegister);
    if needed <= most { needed } else { needed.min(tiles(k, Order::ByValue)) }
}

fn tiles(k: &Kernel, order: Order) -> u32 {
    peak(k, &rotated(k), order)
}

/// The order in which element-wise results are evaluated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    /// Register by register, where the last of them is used.
    ByRegister,
    /// Each value as a whole at its position, except values that take more registers than their operands.
    ByValue,
}

/// The peak number of registers, without some values.
fn peak(k: &Kernel, uncounted: &EntitySet<Value>, order: Order) -> u32 {
    let mut users: SecondaryMap<Value, Users> = SecondaryMap::with_capacity(k.values.len());
    for inst in k.blocks.values().flat_map(|b| b.insts.iter().copied()) {
        k.insts[inst].visit_operands(|v| {
            users[v] = match users[v] {
                Users::None => Users::One(inst),
                Users::One(first) if first == inst => Users::One(inst),
                Users::One(_) | Users::Many => Users::Many,
            }
        });
    }
    let mut walk = PressureWalk::new(k, &users, order);
    uncounted.iter().for_each(|v| walk.cost[v] = 0);
    for role in k.roles.values() {
        walk.block(role.body, Live::default());
    }
    walk.peak
}

/// For each load that could be placed directly before its first use, the number of instructions that use it; 0 for other
/// values. Such a load reads a tensor that the kernel does not write, and only its own block uses it.
fn uses_of_late(k: &Kernel, users: &SecondaryMap<Value, Users>) -> SecondaryMap<Value, u32> {
    let mut loads: SecondaryMap<Value, Option<Block>> = SecondaryMap::new();
    for (block, data) in &k.blocks {
        for &inst in &data.insts {
            if let Op::LoadGlobal { param, .. } = &k.insts[inst]
                && k.params[*param].kind.is_read_only()
            {
                loads[k.results[inst][0]] = Some(block);
            }
        }
    }
    let mut uses: SecondaryMap<Value, u32> = SecondaryMap::new();
    for (block, data) in &k.blocks {
        for &inst in &data.insts {
            // What is repeated in several places is needed in the first of them, and stands elsewhere.
            let is_repeated = matches!(k.insts[inst], Op::Broadcast(_))
                && k.results[inst].iter().any(|&r| matches!(users[r], Users::Many));
            for v in operands(&k.insts[inst]) {
                if loads[v] == Some(block) && !is_repeated {
                    uses[v] += 1;
                } else {
                    loads[v] = None;
                }
            }
        }
    }
    for (v, from) in loads.iter() {
        if from.is_none() {
            uses[v] = 0;
        }
    }
    uses
}

/// The operands of an operation, each once.
fn operands(op: &Op) -> Vec<Value> {
    let mut operands = Vec::new();
    op.visit_operands(|v| {
        if !operands.contains(&v) {
            operands.push(v);
        }
    });
    operands
}

/// The operands that loops have loaded for their next iteration and carry: values that take their registers in turn.
fn rotated(k: &Kernel) -> EntitySet<Value> {
    let mut operands: EntitySet<Value> = EntitySet::new();
    for op in k.insts.values() {
        if let Op::Mma { a, b, .. } = op {
            let held = [a, b].into_iter().filter_map(|o| if let Operand::Fragment(v) = o { Some(*v) } else { None });
            operands.extend(held);
        }
    }
    let is_loaded = |v: Value| matches!(k.values[v].def, ValueDef::Result(inst, _) if matches!(k.insts[inst], Op::LoadMatrix { .. } | Op::If(..)));
    let mut rotated = EntitySet::new();
    for (inst, op) in &k.insts {
        let Op::Loop { inits, body, .. } = op else { continue };
        let last = k.blocks[*body].insts.last().map(|&i| &k.insts[i]);
        let Some(Op::Yield(yields)) = last else { continue };
        for (i, (&init, &next)) in inits.iter().zip(yields).enumerate() {
            let param = k.blocks[*body].params[i + 1];
            if operands.contains(param) && is_loaded(next) {
                rotated.extend([param, init, next, k.results[inst][i]]);
            }
        }
    }
    rotated
}

/// The instructions that use a value.
#[derive(Clone, Copy, Debug, Default)]
enum Users {
    #[default]
    None,
    One(Inst),
    Many,
}

/// Live values, and the sum of their registers.
#[derive(Clone, Default)]
struct Live {
    values: EntitySet<Value>,
    registers: u32,
}

struct PressureWalk<'k> {
    k: &'k Kernel,
    /// The registers of each value.
    cost: SecondaryMap<Value, u32>,
    /// True for a value that is never held as a whole.
    passes: SecondaryMap<Value, bool>,
    /// The number of the last search that met a value, so that a value reached in many ways is examined once.
    met: SecondaryMap<Value, u32>,
    searches: u32,
    order: Order,
    /// What is computed register by register in any order.
    runs: Runs,
    /// For loads that are placed at their first use, the uses that the walk has not met.
    late: SecondaryMap<Value, u32>,
    peak: u32,
}

impl<'k> PressureWalk<'k> {
    fn new(k: &'k Kernel, users: &SecondaryMap<Value, Users>, order: Order) -> PressureWalk<'k> {
        let n = k.values.len();
        let mut walk = PressureWalk {
            k,
            cost: SecondaryMap::with_capacity(n),
            passes: SecondaryMap::with_capacity(n),
            met: SecondaryMap::with_capacity(n),
            searches: 0,
            order,
            runs: Runs::of(k),
            late: if order == Order::ByValue { uses_of_late(k, users) } else { SecondaryMap::new() },
            peak: 0,
        };
        for v in k.values.keys() {
            walk.cost[v] = cost(k, v);
            walk.passes[v] = walk.runs.is_inside(v) || passes(k, v, users[v]);
        }
        walk
    }

    fn hold(&self, v: Value, live: &mut Live) {
        if live.values.insert(v) {
            live.registers += self.cost[v];
        }
    }

    fn drop(&self, v: Value, live: &mut Live) {
        if live.values.contains(v) {
            live.values.remove(v);
            live.registers -= self.cost[v];
        }
    }

    /// Walks a block backwards from the values that are live after it. Returns those that are live before it.
    fn block(&mut self, block: Block, mut live: Live) -> Live {
        for &inst in self.k.blocks[block].insts.iter().rev() {
            let op = &self.k.insts[inst];
            let results = &self.k.results[inst];
            if let Some(body) = op.body() {
                // A loop's results are what its body carries, which is counted there.
                results.iter().for_each(|&r| self.drop(r, &mut live));
                // What the body uses from outside is live throughout it.
                self.outer_uses(body, &mut live);
                self.block(body, live.clone());
            } else {
                self.peak = self.peak.max(live.registers + self.scratch(inst) + self.runs.scratch(inst));
            }
            results.iter().for_each(|&r| self.drop(r, &mut live));
            if !results.iter().any(|&r| self.passes[r]) {
                self.leaves(op, &mut live);
            }
        }
        for &p in &self.k.blocks[block].params {
            self.drop(p, &mut live);
        }
        live
    }

    /// Holds the values that a block uses and does not define.
    fn outer_uses(&self, block: Block, live: &mut Live) {
        let (mut used, mut inside) = (EntitySet::new(), EntitySet::new());
        self.collect_uses(block, &mut used, &mut inside);
        for v in used.iter().filter(|&v| !inside.contains(v)) {
            self.hold(v, live);
        }
    }

    fn collect_uses(&self, block: Block, used: &mut EntitySet<Value>, inside: &mut EntitySet<Value>) {
        let data = &self.k.blocks[block];
        data.params.iter().for_each(|&p| _ = inside.insert(p));
        for &inst in &data.insts {
            let op = &self.k.insts[inst];
            op.visit_operands(|v| _ = used.insert(v));
            if let Some(body) = op.body() {
                self.collect_uses(body, used, inside);
            }
            self.k.results[inst].iter().for_each(|&r| _ = inside.insert(r));
        }
    }

    /// Holds the values that the operands of an operation need: the operands themselves, or their own operands if they are
    /// evaluated register by register.
    fn leaves(&mut self, op: &Op, live: &mut Live) {
        self.searches += 1;
        let (mut open, mut loads) = (Vec::new(), Vec::new());
        self.operands(op, &mut open, &mut loads);
        while let Some(v) = open.pop() {
            if std::mem::replace(&mut self.met[v], self.searches) == self.searches {
                continue;
            }
            match self.k.values[v].def {
                ValueDef::Result(inst, _) if self.passes[v] && !self.is_better_whole(v, live) => {
                    self.operands(&self.k.insts[inst], &mut open, &mut loads);
                }
                _ => {
                    self.passes[v] = false;
                    self.hold(v, live);
                }
            }
        }
        if loads.is_empty() {
            return;
        }
        // They stand here.
        self.peak = self.peak.max(live.registers);
        for v in loads {
            self.drop(v, live);
            if let ValueDef::Result(load, _) = self.k.values[v].def {
                self.leaves(&self.k.insts[load], live);
            }
        }
    }

    /// Adds the operands of an operation to the needed values. Adds those that nothing before uses, and that are loaded where
    /// they are used, to `loads`.
    fn operands(&mut self, op: &Op, needed: &mut Vec<Value>, loads: &mut Vec<Value>) {
        op.visit_operands(|v| needed.push(v));
        if self.order == Order::ByRegister {
            return;
        }
        for v in operands(op) {
            self.late[v] = match self.late[v] {
                0 => 0,
                1 => {
                    loads.push(v);
                    0
                }
                uses => uses - 1,
            };
        }
    }

    /// True, in the estimate in order, for a result that takes fewer registers than its operands add to the live values.
    fn is_better_whole(&self, v: Value, live: &Live) -> bool {
        let ValueDef::Result(inst, _) = self.k.values[v].def else { return false };
        // Repeated elements stay where they come from, and predicates are few.
        let is_inside = self.runs.is_inside(v);
        if self.order == Order::ByRegister || is_inside || self.cost[v] == 0 || !is_evaluated(&self.k.insts[inst]) {
            return false;
        }
        if is_long(&self.k.insts[inst]) {
            return true;
        }
        let (mut open, mut seen, mut registers) = (vec![inst], EntitySet::new(), 0);
        for _ in 0..FARTHEST {
            let Some(inst) = open.pop() else { break };
            self.k.insts[inst].visit_operands(|o| match self.k.values[o].def {
                _ if !seen.insert(o) => {}
                ValueDef::Result(inst, _) if self.passes[o] => open.push(inst),
                _ if live.values.contains(o) => {}
                _ => registers += self.cost[o],
            });
            if registers > self.cost[v] {
                return true;
            }
        }
        !open.is_empty()
    }

    /// Temporary registers of an operation, without its operands and results.
    fn scratch(&self, inst: Inst) -> u32 {
        let op = &self.k.insts[inst];
        if let Op::Copy { atom, to, .. } = op {
            return self.addresses(*atom, &self.k.buffers[to.buffer]);
        }
        if let Op::SumSplits(values) = op {
            // The assembler moves loads of parts to the head of their block, as far as it has registers. Half of a block's loads hide
            // most of their latency.
            let steps = self.k.partial_steps(values);
            return REGISTERS_AT_ONCE * (steps * self.k.index_map.splits).min(LOADS_AT_ONCE / 2);
        }
        let Op::Mma { atom, a, b, .. } = op else {
            // A polynomial's coefficients and powers; an approximate instruction has none.
            return if is_polynomial(op) { 8 } else { 0 };
        };
        if atom.is_tensor_core() {
            // Operands are values of their own. Those that are split into two tf32 have two registers more for each element, while two
            // bf16 take the place of their element. The assembler also loads and splits operands of a block's later steps ahead, or
            // of the next iteration's.
            let ahead = |v: &Value| self.k.tile(*v).1.reg_count() * self.steps_beside(inst, *atom).max(1);
            let words = |operand: &Operand| match (atom, operand) {
                (MmaAtom::M16N8K8Tf32x3, Operand::Fragment(v)) => 2 * self.k.tile(*v).1.reg_count() + 3 * ahead(v) / 2,
                (MmaAtom::M16N8K16Bf16x3, Operand::Fragment(v)) => ahead(v),
                _ => 0,
            };
            return words(a) + words(b);
        }
        let layout = self.k.values[self.k.results[inst][0]].ty.tile().map(|(_, l)| l);
        let count = |axis: u8| -> u32 {
            let regs = layout.map_or(&[][..], |l| &l.regs);
            regs.iter().filter(|m| m.axis == Some(axis)).map(|m| m.extent).product()
        };
        // Operand quads of the rows and columns that a thread holds.
        4 * (count(0) + count(1)) * atom.row().operand.bytes() / 4
    }

    /// How many other steps of an atom are in the block of one.
    fn steps_beside(&self, step: Inst, atom: MmaAtom) -> u32 {
        let is_step = |&&inst: &&Inst| matches!(&self.k.insts[inst], Op::Mma { atom: other, .. } if *other == atom);
        let here = self.k.blocks.values().find(|block| block.insts.contains(&step));
        here.map_or(0, |block| block.insts.iter().filter(is_step).count().saturating_sub(1) as u32)
    }

    /// Registers for the addresses of a copy in narrow chunks, which unaligned rows need.
    fn addresses(&self, atom: CopyAtom, buffer: &BufferData) -> u32 {
        let Some(bytes) = atom.chunk_bytes(buffer.dtype).filter(|&bytes| bytes < 16) else { return 0 };
        let chunks = buffer.layout.rows * buffer.layout.cols * buffer.dtype.bytes() / bytes;
        chunks.div_ceil(self.k.threads).min(COPIED_AT_ONCE) * OF_CHUNK
    }
}

fn cost(k: &Kernel, v: Value) -> u32 {
    if let (ValueDef::Result(inst, _), Type::Fragment { dtype, layout }) = (k.values[v].def, &k.values[v].ty)
        && let Op::LoadGlobal { param, slices, .. } = &k.insts[inst]
        && access_elements(k, *param, slices) * dtype.bytes() < 4
    {
        // What is loaded in halves of a word is not packed before it is used.
        return layout.reg_count();
    }
    let words = match &k.values[v].ty {
        // Predicates.
        Type::Fragment { dtype: DType::Bool, .. } => 0,
        Type::Fragment { dtype, layout } | Type::InFlight { dtype, layout } => words((*dtype, layout)),
        Type::Token(_) => 1,
    };
    // Of a right operand that is loaded for one step two blocks are there at a time.
    let right = |inst: Inst| matches!(k.insts[inst], Op::LoadMatrix { side: Side::Right, .. });
    match k.values[v].def {
        ValueDef::Result(inst, _) if right(inst) => words.min(8),
        _ => words,
    }
}

/// True for a value that is never held as a whole: a constant, a repeated element, a part of what a loop leaves, or an
/// element-wise result that only one element-wise operation, reduction or store uses, register by register.
fn passes(k: &Kernel, v: Value, users: Users) -> bool {
    let ValueDef::Result(def, _) = k.values[v].def else { return false };
    if matches!(k.insts[def], Op::Const(_) | Op::Iota { .. } | Op::Broadcast(_)) || is_part_of_result(k, def) {
        return true;
    }
    if !is_evaluated(&k.insts[def]) {
        return false;
    }
    let Users::One(one) = users else { return false };
    let takes =
        |op: &Op| matches!(op, Op::Broadcast(_) | Op::Reduce { .. } | Op::StoreGlobal { .. } | Op::StoreShared { .. });
    is_evaluated(&k.insts[one]) || takes(&k.insts[one])
}

/// True for a part of what a loop or a sum over CTAs leaves: some of the registers that hold it in any case.
fn is_part_of_result(k: &Kernel, inst: Inst) -> bool {
    let Op::ExtractSlice { value, .. } = k.insts[inst] else { return false };
    matches!(k.values[value].def, ValueDef::Result(of, _) if k.insts[of].leaves_registers())
}

/// True for an operation that is evaluated element by element.
fn is_evaluated(op: &Op) -> bool {
    op.is_elementwise() || matches!(op, Op::MaskInvalid { .. })
}

/// True for a function that is evaluated by a polynomial; an approximate instruction is not.
fn is_polynomial(op: &Op) -> bool {
    matches!(op, Op::Unary(f, Accuracy::Precise, _) if !f.row().exact)
        || matches!(op, Op::Binary(f, ..) if f.is_function())
}

/// True for an operation with so many instructions that ptxas does not move it.
fn is_long(op: &Op) -> bool {
    is_polynomial(op) || matches!(op, Op::Binary(BinaryOp::Div | BinaryOp::Rem, ..))
}

/// The most operations behind a result that are examined. A result with more is held as a whole.
const FARTHEST: usize = 256;

/// Registers of a narrow chunk of a copy: its source, its destination, and its data if the copy is not asynchronous.
const OF_CHUNK: u32 = 4;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::parse_gpu;
    use std::fmt::Write;

    /// Each number is used twice by the next: as a tree, there would be 2^64 of them.
    #[test]
    fn a_chain_of_scalars_is_walked_once() {
        let mut text = "gpu @chain sm_80 threads 32 (%s: i32, %y: out i32[N])\ndims N: ?1\n\
                        programs (%0) = linear (N)\nrole all scope cta {\n  %1: i32 = scalar %s\n"
            .to_owned();
        for i in 1..65 {
            writeln!(text, "  %{}: i32 = mul %{i}, %{i}", i + 1).unwrap();
        }
        text.push_str("  store.global %y[%65], %1\n}\n");
        let k = parse_gpu(&text).unwrap();
        // What the chain begins with: the rest passes.
        assert_eq!(peak_registers(&k), 1);
    }

    /// Rows of 8 registers of a thread, loaded first or where they are added, after `each` of them.
    fn sum(rows: usize, loaded_first: bool, each: &str) -> Kernel {
        let params: String = (0..rows).map(|i| format!("%x{i}: f32[N, D] strides [256, 1] align 16, ")).collect();
        let mut text = format!(
            "gpu @sum sm_80 threads 32 ({params}%y: out f32[N, D] strides [256, 1] align 16)\n\
             dims N: ?1, D = 256\nlayout #0 = [256] threads (32:4@0) regs (4:1@0, 2:128@0)\n\
             programs (%0) = linear (N)\nrole all scope cta {{\n"
        );
        let (mut loads, mut sums) = (Vec::new(), Vec::new());
        for i in 0..rows {
            loads.push(format!("  %{}: f32 #0 = load.global %x{i}[%0, 0 ..+ 256]\n", i + 1));
            let (made, before) = (2 * rows + 1 + i, 2 * rows + i);
            let made_of = format!("  %{}: f32 #0 = {each} %{}\n", rows + 1 + i, i + 1);
            let added = format!("  %{made}: f32 #0 = add %{before}, %{}\n", rows + 1 + i);
            let first = format!("  %{made}: f32 #0 = neg %{}\n", rows + 1 + i);
            sums.push(made_of + if i == 0 { &first } else { &added });
        }
        let order = match loaded_first {
            true => loads.concat() + &sums.concat(),
            false => loads.iter().zip(&sums).map(|(load, sum)| load.clone() + sum).collect(),
        };
        write!(text, "{order}  store.global %y[%0, 0 ..+ 256], %{}\n}}\n", 3 * rows).unwrap();
        parse_gpu(&text).unwrap_or_else(|e| panic!("{e}\n{text}"))
    }

    #[test]
    fn a_sum_is_added_up_in_order_where_all_of_it_would_be_too_much() {
        for loaded_first in [false, true] {
            let k = sum(30, loaded_first, "neg");
            // A program's number, and all rows at once.
            assert_eq!(peak_registers(&k), 1 + 30 * 8);
            assert_eq!(tile_registers(&k, 1 + 30 * 8), 1 + 30 * 8);
            // The sum, and a row.
            assert_eq!(tile_registers(&k, 30 * 8), 1 + 2 * 8);
            assert_eq!(peak_registers_within(&k, 30 * 8), 1 + 2 * 8);
        }
    }

    /// Functions are not moved down to their uses.
    #[test]
    fn functions_that_stand_first_are_held() {
        let mut k = sum(30, false, "exp");
        assert!(tile_registers(&k, 0) <= 1 + 2 * 8 + 8);
        // All functions before all sums.
        let body = k.roles.values().next().unwrap().body;
        let is_sum = |k: &Kernel, i: Inst| matches!(k.insts[i], Op::Binary(..) | Op::StoreGlobal { .. });
        let insts = k.blocks[body].insts.clone();
        let (late, early): (Vec<Inst>, Vec<Inst>) = insts.into_iter().partition(|&i| is_sum(&k, i));
        k.blocks[body].insts = early.into_iter().chain(late).collect();
        assert!(tile_registers(&k, 0) >= 30 * 8);
    }

    /// A chain that is as long as a kernel is examined one part at a time.
    #[test]
    fn an_estimate_in_order_takes_no_longer_for_long_chains() {
        assert_eq!(tile_registers(&sum(5000, false, "neg"), 0), 1 + 2 * 8);
    }
}
