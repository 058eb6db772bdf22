//! Runs of element-wise operations that are computed register by register.
//!
//! # Promise
//! The order of computation only. A run has the same operations on the same elements, so every result is the same.
//!
//! # Argument
//! Usually an operation is emitted for all registers of its tile before the next operation. A value with one use costs nothing
//! by that, because ptxas moves short operations down to their uses. It does not find another order for values that several
//! operations use: they are all there at once. A random number has about six of these for each element. So a run with many
//! registers of such values is emitted for a few registers of its tiles at a time, and they live only that long.
//!
//! A run is a sequence of operations of a block whose tiles have the same number of registers. Between them may be constants,
//! indices, renamings and what else has no effects, if they use nothing of the run: these are emitted where they are. Every
//! other operation ends the run.
//!
//! # Breaks it
//! - An operation between those of a run that uses one of them: the emission fails with an internal error.
//! - Kernels that need fewer registers operation by operation: snapshots/resources.txt has what ptxas takes.

use super::varying::Varying;
use crate::gpu::{Block, Inst, Kernel, Op, Value, ValueDef};
use crate::gpu_ops;
use crate::layout::words;
use cranelift_entity::{EntitySet, SecondaryMap};

/// The registers of values with several uses that a run may have at once before it is computed register by register.
const MOST_AT_ONCE: u32 = 64;

/// How many registers of a tile a run computes at once. A random number is two chains of instructions, so these are eight, and
/// the latency of an instruction is about four cycles.
pub const AT_ONCE: u32 = 4;

/// The runs of a kernel that are computed register by register.
#[derive(Clone, Debug, Default)]
pub struct Runs {
    /// The number of the run of an operation, from 1; 0 for one that is in none.
    number: SecondaryMap<Inst, u32>,
    runs: Vec<Run>,
    /// Values that only operations of their own run use.
    inside: EntitySet<Value>,
    /// Those of them that several operations use, and what these are computed from in their run.
    behind_shared: EntitySet<Value>,
    varying: Varying,
}

#[derive(Clone, Debug)]
struct Run {
    insts: Vec<Inst>,
    /// The registers of values inside that are there at once.
    at_once: u32,
}

/// Where an operation is in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InRun<'r> {
    /// In none.
    No,
    /// In one that is emitted at a later operation.
    Before,
    /// At the end of one of these operations.
    Last(&'r [Inst]),
}

impl Runs {
    /// The runs of a kernel.
    pub fn of(k: &Kernel) -> Runs {
        let mut users: SecondaryMap<Value, Vec<Inst>> = SecondaryMap::new();
        for inst in k.blocks.values().flat_map(|b| b.insts.iter().copied()) {
            k.insts[inst].visit_operands(|v| {
                if users[v].last() != Some(&inst) {
                    users[v].push(inst);
                }
            });
        }
        let mut runs = Runs { varying: Varying::of(k), ..Runs::default() };
        for block in k.blocks.keys() {
            for run in sequences(k, block) {
                runs.add(k, &users, run);
            }
        }
        runs
    }

    fn run(&self, inst: Inst) -> Option<&Run> {
        (self.number[inst] as usize).checked_sub(1).map(|at| &self.runs[at])
    }

    /// Where an operation is in a run.
    pub fn at(&self, inst: Inst) -> InRun<'_> {
        match self.run(inst) {
            None => InRun::No,
            Some(run) if run.insts.last() == Some(&inst) => InRun::Last(&run.insts),
            Some(_) => InRun::Before,
        }
    }

    /// The registers that values inside a run take at once, for its last operation; 0 for others.
    pub fn scratch(&self, inst: Inst) -> u32 {
        let last = |run: &&Run| run.insts.last() == Some(&inst);
        self.run(inst).filter(last).map_or(0, |run| run.at_once)
    }

    /// True for a value of which only a few registers are there at a time.
    pub fn is_inside(&self, v: Value) -> bool {
        self.inside.contains(v)
    }

    /// True for a value of a run that several operations of it use, or from which such a value is computed.
    pub fn is_behind_shared(&self, v: Value) -> bool {
        self.behind_shared.contains(v)
    }

    /// True for a tile whose registers may all be different.
    pub fn is_all_different(&self, k: &Kernel, v: Value) -> bool {
        self.varying.registers(k, v) == k.tile(v).1.reg_count()
    }

    fn add(&mut self, k: &Kernel, users: &SecondaryMap<Value, Vec<Inst>>, run: Vec<Inst>) {
        let mut members: EntitySet<Inst> = EntitySet::new();
        members.extend(run.iter().copied());
        let inside = |v: &Value| users[*v].iter().all(|&user| members.contains(user));
        let is_of_run = |v: Value| matches!(k.values[v].def, ValueDef::Result(of, _) if members.contains(of));
        let shared = |v: Value| users[v].len() > 1 && inside(&v);
        // Registers that are equal are computed once.
        let words = |v: Value| {
            let all = k.values[v].ty.tile().map_or((0, 1), |tile| (words(tile), tile.1.reg_count()));
            all.0 * self.varying.registers(k, v) / all.1.max(1)
        };
        // Backwards, with the values that several operations use and that are needed below.
        let (mut live, mut registers, mut most) = (EntitySet::new(), 0, 0);
        let (mut met, mut given) = (EntitySet::new(), 0);
        for &inst in run.iter().rev() {
            let result = k.results[inst][0];
            if live.contains(result) {
                live.remove(result);
                registers -= words(result);
            }
            k.insts[inst].visit_operands(|v| {
                if is_of_run(v) && shared(v) && live.insert(v) {
                    registers += words(v);
                }
                // What only the run uses gives its registers to what is computed.
                if !is_of_run(v) && inside(&v) && met.insert(v) && is_held(k, v) {
                    given += words(v);
                }
            });
            most = most.max(registers);
        }
        let n = run.first().map_or(0, |&inst| k.tile(k.results[inst][0]).1.reg_count());
        if most <= MOST_AT_ONCE + given || n <= AT_ONCE {
            return;
        }
        let results: Vec<Value> = run.iter().map(|&inst| k.results[inst][0]).collect();
        self.inside.extend(results.iter().copied().filter(inside));
        for (&inst, &result) in run.iter().zip(&results).rev() {
            if shared(result) || self.behind_shared.contains(result) {
                self.behind_shared.insert(result);
                k.insts[inst].visit_operands(|v| self.behind_shared.extend(is_of_run(v).then_some(v)));
            }
        }
        let number = self.runs.len() as u32 + 1;
        run.iter().for_each(|&inst| self.number[inst] = number);
        self.runs.push(Run { insts: run, at_once: (most * AT_ONCE).div_ceil(n) });
    }
}

/// True for a tile that is in registers of its own.
fn is_held(k: &Kernel, v: Value) -> bool {
    let ValueDef::Result(inst, _) = k.values[v].def else { return true };
    !matches!(k.insts[inst], gpu_ops!(sources views))
}

/// The sequences of a block that could be runs.
fn sequences(k: &Kernel, block: Block) -> Vec<Vec<Inst>> {
    let (mut all, mut run, mut made) = (Vec::new(), Vec::new(), EntitySet::new());
    let mut registers = None;
    for &inst in &k.blocks[block].insts {
        let op = &k.insts[inst];
        let mut uses_run = false;
        op.visit_operands(|v| uses_run |= made.contains(v));
        let here = registers_of(k, inst);
        if registers.is_some() && here != registers && (uses_run || !is_free(op)) {
            all.push(std::mem::take(&mut run));
            made.clear();
            registers = None;
        }
        if here.is_some() && (registers.is_none() || registers == here) {
            registers = here;
            run.push(inst);
            made.insert(k.results[inst][0]);
        }
    }
    all.push(run);
    all.retain(|run| run.len() > 1);
    all
}

/// The registers of the result of an operation that can be computed for some of them, and `None` for another.
fn registers_of(k: &Kernel, inst: Inst) -> Option<u32> {
    let computes = matches!(
        k.insts[inst],
        Op::Unary(..) | Op::Binary(..) | Op::Compare(..) | Op::Select(..) | Op::Fma(..) | Op::Cast(_)
    );
    k.values[*k.results[inst].first().filter(|_| computes)?].ty.tile().map(|(_, layout)| layout.reg_count())
}

/// True for an operation that may be emitted before operations that stand above it and whose results it does not use.
fn is_free(op: &Op) -> bool {
    matches!(op, gpu_ops!(sources elementwise views) | Op::MaskInvalid { .. })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::parse_gpu;
    use std::fmt::Write;

    /// A tile of `registers` registers, and `shared` values made of it that are used twice each, at once. `between` stands in
    /// the middle of them.
    fn kernel(registers: u32, shared: usize, between: &str) -> Kernel {
        let cols = 32 * registers;
        let mut text = format!(
            "gpu @k sm_80 threads 32 (%x: f32[N, D] strides [{cols}, 1] align 16, %y: out f32[N, D] strides [{cols}, 1] align 16)\n\
             dims N: ?1, D = {cols}\nlayout #0 = [{cols}] threads (32:{registers}@0) regs ({registers}:1@0)\n\
             programs (%0) = linear (N)\nrole all scope cta {{\n  %1: f32 #0 = load.global %x[%0, 0 ..+ {cols}]\n"
        );
        for i in 0..shared {
            writeln!(text, "  %{}: f32 #0 = mul %1, %1", 2 + i).unwrap();
        }
        text.push_str(between);
        let mut last = 1;
        for pass in 0..2 {
            for i in 0..shared {
                let at = 10 + shared + pass * shared + i;
                writeln!(text, "  %{at}: f32 #0 = add %{last}, %{}", 2 + i).unwrap();
                last = at;
            }
        }
        write!(text, "  store.global %y[%0, 0 ..+ {cols}], %{last}\n}}\n").unwrap();
        parse_gpu(&text).unwrap_or_else(|e| panic!("{e}\n{text}"))
    }

    fn lengths(k: &Kernel) -> Vec<usize> {
        Runs::of(k).runs.iter().map(|run| run.insts.len()).collect()
    }

    #[test]
    fn values_that_are_used_twice_make_a_run() {
        assert_eq!(lengths(&kernel(16, 6, "")), [18]);
        // 64 registers besides those of the operand are not too many.
        assert_eq!(lengths(&kernel(16, 5, "")), [0usize; 0]);
    }

    #[test]
    fn what_uses_nothing_of_a_run_does_not_end_it() {
        assert_eq!(lengths(&kernel(16, 6, "  %90: f32 #0 = const 1\n")), [18]);
    }

    #[test]
    fn an_effect_ends_a_run() {
        // The values before it are used behind it too: none is inside of a run.
        assert_eq!(lengths(&kernel(16, 6, "  barrier\n")), [0usize; 0]);
    }

    /// Five values of four registers are computed at once in any order: that many in flight are no fewer.
    #[test]
    fn tiles_of_few_registers_make_no_run() {
        assert_eq!(lengths(&kernel(4, 40, "")), [0usize; 0]);
        assert_eq!(lengths(&kernel(8, 40, "")), [120]);
    }

    #[test]
    fn a_run_takes_what_a_few_registers_of_its_values_are() {
        let k = kernel(16, 6, "");
        assert_eq!(lengths(&k), [18]);
        let last = *Runs::of(&k).runs[0].insts.last().unwrap();
        assert_eq!(Runs::of(&k).scratch(last), 6 * AT_ONCE);
    }

    /// An index along a row of one register is the same in all that a thread has of a column.
    #[test]
    fn equal_registers_count_once() {
        let text = |axis: u8| {
            let mut text = String::from(
                "gpu @k sm_80 threads 32 (%y: out i32[N, D] strides [64, 1] align 16)\ndims N: ?1, D = 64\n\
                 layout #0 = [16, 64] threads (16:4@1, 2:1@0) regs (4:1@1, 8:2@0)\n\
                 programs (%0) = linear (tiles(N, 16))\nrole all scope cta {\n",
            );
            writeln!(text, "  %1: i32 #0 = iota axis {axis}").unwrap();
            for i in 0..10 {
                writeln!(text, "  %{}: i32 #0 = mul %1, %1", 2 + i).unwrap();
            }
            for i in 0..20 {
                writeln!(text, "  %{}: i32 #0 = add %{}, %{}", 12 + i, if i == 0 { 1 } else { 11 + i }, 2 + i % 10)
                    .unwrap();
            }
            text.push_str("  store.global %y[%0 : 16 past_end, 0 ..+ 64], %31\n}\n");
            parse_gpu(&text).unwrap_or_else(|e| panic!("{e}\n{text}"))
        };
        // 10 values of 4 registers, and of 8.
        assert_eq!(lengths(&text(1)), [0usize; 0]);
        assert_eq!(lengths(&text(0)), [30]);
        assert!(!Runs::of(&text(0)).is_all_different(&text(0), text(0).values.keys().nth(1).unwrap()));
    }

    #[test]
    fn inside_is_what_only_the_run_uses() {
        let k = kernel(16, 6, "");
        let runs = Runs::of(&k);
        let inside = k.values.keys().filter(|&v| runs.is_inside(v)).count();
        // All but the last sum, which is stored.
        assert_eq!(inside, 17);
        let run = &runs.runs[0].insts[..];
        assert_eq!(runs.at(run[0]), InRun::Before);
        assert_eq!(runs.at(run[17]), InRun::Last(run));
    }
}
