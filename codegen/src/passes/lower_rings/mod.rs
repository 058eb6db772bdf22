//! `lower_rings`: iterations of rings become slots.
//!
//! Needs: rings by iteration number. Establishes: every `acquire` and `wait` names a slot, a number below the ring's stages, and
//! of a ring that the copy engine fills the phase too. One thread fills such a ring, and starts the engine's stores. Never: moves
//! anything else. Refuses: nothing. Constructs: removes numbered; adds cursors.
//!
//! The slot of an iteration is its number modulo the stages. In a loop whose iterations are numbered from its first one,
//! a cursor goes round instead: the loop carries it, and each iteration takes the next slot. The cursors of rings that the
//! engine fills are never begun anew ([`engine`]).
//!
//! # Promise
//! A slot is congruent to the iteration that it stands for.
//!
//! # Argument
//! The cursor is 0 where the index is `lo`, and one more, or 0 again, where the index is one more. A number `index - lo + c`
//! with a constant `c` of at least 0 is the cursor plus `c`, which is less than two rounds once `c` is taken modulo the
//! stages: one subtraction is enough. Any other number is divided; numbers of iterations are not negative.
//!
//! # Breaks it
//! Rings of three stages and more than three iterations, and of loops that begin elsewhere than at 0:
//! tests/cases/passes/lower_rings; tests/agreement runs pipelines of every depth.

mod engine;
mod numbers;
pub(super) mod scalars;
mod stores;

use crate::context::Cx;
use crate::error::CompileError;
use crate::gpu::{At, Block, Inst, Kernel, Mover, Op, Ring, Value};
use crate::gpu_ops;
use atlas_dsl::DType;
use atlas_dsl::op::{BinaryOp, Predicate};
use numbers::{Index, distance};
use scalars::{binary, int, push};

/// Replaces every number of an iteration.
pub fn lower_rings(k: &mut Kernel, _: &mut Cx<'_>) -> Result<(), CompileError> {
    let of_engine: Vec<Ring> = k.rings.keys().filter(|&r| k.rings[r].filled_by == Mover::Engine).collect();
    for ring in of_engine {
        engine::lower_ring(k, ring)?;
    }
    if k.rings.values().any(|r| r.read_by == Mover::Engine) {
        stores::start_once(k);
    }
    let bodies: Vec<Block> = k.roles.values().map(|r| r.body).collect();
    for body in bodies {
        let mut walk = SlotLowering { k, loops: Vec::new(), indices: Vec::new() };
        walk.block(body);
    }
    Ok(())
}

/// A loop around the place that is walked.
struct LoopCursors {
    body: Block,
    /// The cursors that it carries so far, in the order of its parameters: one for each number of stages.
    cursors: Vec<(u32, Value)>,
}

struct SlotLowering<'k> {
    k: &'k mut Kernel,
    /// The loops around, and their indices.
    loops: Vec<LoopCursors>,
    indices: Vec<Index>,
}

impl SlotLowering<'_> {
    fn block(&mut self, block: Block) {
        let mut out = Vec::new();
        for inst in std::mem::take(&mut self.k.blocks[block].insts) {
            match self.k.insts[inst] {
                Op::Acquire(ring, At::Iteration(n)) | Op::Wait(ring, At::Iteration(n)) => {
                    let slot = self.slot(ring, n, inst, &mut out);
                    if let Op::Acquire(_, at) | Op::Wait(_, at) = &mut self.k.insts[inst] {
                        *at = At::Slot(slot);
                    }
                }
                Op::Loop { lo, body, .. } => {
                    self.indices.push(Index { index: self.k.blocks[body].params[0], lo });
                    self.loops.push(LoopCursors { body, cursors: Vec::new() });
                    self.block(body);
                    self.indices.pop();
                    if let Some(done) = self.loops.pop() {
                        self.carry(inst, done, &mut out);
                    }
                }
                Op::If(_, body, _) | Op::Once(body) | Op::Programs(body) => self.block(body),
                Op::Acquire(_, At::Slot(_) | At::Cursor { .. }) | Op::Wait(_, At::Slot(_) | At::Cursor { .. }) => {}
                Op::Commit(..) | Op::Release(_) | Op::Drain(_) | Op::InitRing(_) => {}
                Op::Yield(_) | gpu_ops!(sources elementwise views fragments global shared clusters products orders) => {
                }
            }
            out.push(inst);
        }
        self.k.blocks[block].insts = out;
    }

    /// The slot of iteration `n`; what computes it goes before `like`.
    fn slot(&mut self, ring: Ring, n: Value, like: Inst, out: &mut Vec<Inst>) -> Value {
        let stages = self.k.rings[ring].stages;
        match distance(self.k, &self.indices, n) {
            _ if stages == 1 => int(self.k, 0, like, out),
            Some((None, n)) => int(self.k, n % stages, like, out),
            Some((Some(at), ahead)) => {
                let cursor = self.cursor(at, stages);
                match ahead % stages {
                    0 => cursor,
                    ahead => self.round(cursor, ahead, stages, like, out),
                }
            }
            None => {
                let stages = int(self.k, stages, like, out);
                let whole = binary(self.k, BinaryOp::Div, n, stages, like, out);
                let rounds = binary(self.k, BinaryOp::Mul, whole, stages, like, out);
                binary(self.k, BinaryOp::Sub, n, rounds, like, out)
            }
        }
    }

    /// The cursor of a loop around, which it carries from now on.
    fn cursor(&mut self, at: usize, stages: u32) -> Value {
        let body = self.loops[at].body;
        if let Some(&(_, cursor)) = self.loops[at].cursors.iter().find(|c| c.0 == stages) {
            return cursor;
        }
        let i32_type = self.k.scalar_type(DType::I32);
        let cursor = self.k.push_block_param(body, i32_type);
        self.loops[at].cursors.push((stages, cursor));
        cursor
    }

    /// Gives a loop the cursors that its body asked for: they begin at 0 and go on at the end of an iteration.
    fn carry(&mut self, inst: Inst, done: LoopCursors, out: &mut Vec<Inst>) {
        let Some(end) = self.k.blocks[done.body].insts.pop() else { return };
        for (stages, cursor) in done.cursors {
            let first = int(self.k, 0, inst, out);
            let mut last = std::mem::take(&mut self.k.blocks[done.body].insts);
            let next = self.round(cursor, 1, stages, end, &mut last);
            self.k.blocks[done.body].insts = last;
            if let Op::Yield(values) = &mut self.k.insts[end] {
                values.push(next);
            }
            if let Op::Loop { inits, .. } = &mut self.k.insts[inst] {
                inits.push(first);
            }
            let i32_type = self.k.scalar_type(DType::I32);
            self.k.push_result(inst, i32_type);
        }
        self.k.blocks[done.body].insts.push(end);
    }

    /// `(cursor + ahead) mod stages`, for a cursor and an `ahead` below it.
    fn round(&mut self, cursor: Value, ahead: u32, stages: u32, like: Inst, out: &mut Vec<Inst>) -> Value {
        let (ahead, stages) = (int(self.k, ahead, like, out), int(self.k, stages, like, out));
        let on = binary(self.k, BinaryOp::Add, cursor, ahead, like, out);
        let bool = self.k.scalar_type(DType::Bool);
        let over = push(self.k, Op::Compare(Predicate::Ge, on, stages), bool, like, out);
        let back = binary(self.k, BinaryOp::Sub, on, stages, like, out);
        let i32_type = self.k.scalar_type(DType::I32);
        push(self.k, Op::Select(over, back, on), i32_type, like, out)
    }
}
