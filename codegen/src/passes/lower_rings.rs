//! `lower_rings`: iterations of rings become slots.
//!
//! Needs: rings by iteration number. Establishes: every `acquire` and `wait` names a slot, a number below the ring's stages.
//! Never: moves anything. Refuses: nothing. Constructs: removes numbered; adds nothing.
//!
//! The slot of an iteration is its number modulo the stages. In a loop whose iterations are numbered from its first one,
//! a cursor goes round instead: the loop carries it, and each iteration takes the next slot.
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

use crate::context::Cx;
use crate::error::CompileError;
use crate::gpu::{At, Block, Inst, Kernel, Op, Ring, Type, Value, ValueDef};
use crate::gpu_ops;
use atlas_dsl::DType;
use atlas_dsl::op::{BinaryOp, Predicate};

/// Sums and differences above each other that are followed; numbers of iterations have few.
const DEEPEST: u32 = 8;

/// Replaces every number of an iteration.
pub fn lower_rings(k: &mut Kernel, _: &mut Cx<'_>) -> Result<(), CompileError> {
    let bodies: Vec<Block> = k.roles.values().map(|r| r.body).collect();
    for body in bodies {
        let mut walk = Walk { k, loops: Vec::new() };
        walk.block(body);
    }
    Ok(())
}

/// A loop around the place that is walked.
struct Around {
    index: Value,
    lo: Value,
    body: Block,
    /// The cursors that it carries so far, in the order of its parameters: one for each number of stages.
    cursors: Vec<(u32, Value)>,
}

/// The index of a loop and what is subtracted from it, if there are such, and a constant.
type Offset = (Option<(Value, Option<Value>)>, i64);

struct Walk<'k> {
    k: &'k mut Kernel,
    loops: Vec<Around>,
}

impl Walk<'_> {
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
                    let index = self.k.blocks[body].params[0];
                    self.loops.push(Around { index, lo, body, cursors: Vec::new() });
                    self.block(body);
                    if let Some(done) = self.loops.pop() {
                        self.carry(inst, done, &mut out);
                    }
                }
                Op::If(_, body, _) | Op::Programs(body) => self.block(body),
                Op::Acquire(_, At::Slot(_))
                | Op::Wait(_, At::Slot(_))
                | Op::Commit(..)
                | Op::Release(_)
                | Op::Drain(_) => {}
                Op::Yield(_) | gpu_ops!(sources elementwise views fragments global shared products orders) => {}
            }
            out.push(inst);
        }
        self.k.blocks[block].insts = out;
    }

    /// The slot of iteration `n`; what computes it goes before `like`.
    fn slot(&mut self, ring: Ring, n: Value, like: Inst, out: &mut Vec<Inst>) -> Value {
        let stages = self.k.rings[ring].stages;
        match self.distance(n) {
            _ if stages == 1 => self.int(0, like, out),
            Some((None, n)) => self.int(n % stages, like, out),
            Some((Some(at), ahead)) => {
                let cursor = self.cursor(at, stages);
                match ahead % stages {
                    0 => cursor,
                    ahead => self.round(cursor, ahead, stages, like, out),
                }
            }
            None => {
                let stages = self.int(stages, like, out);
                let whole = self.binary(BinaryOp::Div, n, stages, like, out);
                let rounds = self.binary(BinaryOp::Mul, whole, stages, like, out);
                self.binary(BinaryOp::Sub, n, rounds, like, out)
            }
        }
    }

    /// A number as a constant beyond 0, or beyond the start of one of the loops around, of which it gives the number.
    fn distance(&self, n: Value) -> Option<(Option<usize>, u32)> {
        let (base, ahead) = self.offset(n)?;
        match base {
            None => Some((None, u32::try_from(ahead).ok()?)),
            Some((index, lo)) => {
                let at = self.loops.iter().position(|l| l.index == index && lo.is_none_or(|lo| lo == l.lo))?;
                // Without a subtraction the loop has to begin at 0.
                let begins_at_0 = matches!(self.offset(self.loops[at].lo), Some((None, 0)));
                (lo.is_some() || begins_at_0).then_some((Some(at), u32::try_from(ahead).ok()?))
            }
        }
    }

    /// A number as `index - lo + constant`.
    fn offset(&self, v: Value) -> Option<Offset> {
        self.offset_within(v, DEEPEST)
    }

    /// The same of a formula that is no deeper than so much.
    fn offset_within(&self, v: Value, deepest: u32) -> Option<Offset> {
        let deepest = deepest.checked_sub(1)?;
        let ValueDef::Result(inst, _) = self.k.values[v].def else {
            return self.loops.iter().any(|l| l.index == v).then_some((Some((v, None)), 0));
        };
        match self.k.insts[inst] {
            Op::Const(x) => Some((None, x as i64)),
            Op::Binary(BinaryOp::Add, _, a, b) => {
                match (self.offset_within(a, deepest)?, self.offset_within(b, deepest)?) {
                    ((base, x), (None, y)) | ((None, x), (base, y)) => Some((base, x + y)),
                    _ => None,
                }
            }
            Op::Binary(BinaryOp::Sub, _, a, b) => {
                let (base, x) = self.offset_within(a, deepest)?;
                match (base, self.offset_within(b, deepest)) {
                    (Some((index, None)), _) if self.loops.iter().any(|l| l.index == index && l.lo == b) => {
                        Some((Some((index, Some(b))), x))
                    }
                    (base, Some((None, y))) => Some((base, x - y)),
                    _ => None,
                }
            }
            Op::Iota { .. } | Op::DimSize(_) | Op::DimTiles(..) | Op::CtaNumber | Op::CtaCount => None,
            Op::Unsigned(..) | Op::Coordinate(..) | Op::ScalarParam(_) | Op::TableGet(..) => None,
            gpu_ops!(elementwise views fragments global shared products rings orders control) => None,
        }
    }

    /// The cursor of a loop around, which it carries from now on.
    fn cursor(&mut self, at: usize, stages: u32) -> Value {
        let body = self.loops[at].body;
        if let Some(&(_, cursor)) = self.loops[at].cursors.iter().find(|c| c.0 == stages) {
            return cursor;
        }
        let int = self.k.scalar_type(DType::I32);
        let cursor = self.k.push_block_param(body, int);
        self.loops[at].cursors.push((stages, cursor));
        cursor
    }

    /// Gives a loop the cursors that its body asked for: they begin at 0 and go on at the end of an iteration.
    fn carry(&mut self, inst: Inst, done: Around, out: &mut Vec<Inst>) {
        let Some(end) = self.k.blocks[done.body].insts.pop() else { return };
        for (stages, cursor) in done.cursors {
            let first = self.int(0, inst, out);
            let mut last = std::mem::take(&mut self.k.blocks[done.body].insts);
            let next = self.round(cursor, 1, stages, end, &mut last);
            self.k.blocks[done.body].insts = last;
            if let Op::Yield(values) = &mut self.k.insts[end] {
                values.push(next);
            }
            if let Op::Loop { inits, .. } = &mut self.k.insts[inst] {
                inits.push(first);
            }
            let int = self.k.scalar_type(DType::I32);
            self.k.push_result(inst, int);
        }
        self.k.blocks[done.body].insts.push(end);
    }

    /// `(cursor + ahead) mod stages`, for a cursor and an `ahead` below it.
    fn round(&mut self, cursor: Value, ahead: u32, stages: u32, like: Inst, out: &mut Vec<Inst>) -> Value {
        let (ahead, stages) = (self.int(ahead, like, out), self.int(stages, like, out));
        let on = self.binary(BinaryOp::Add, cursor, ahead, like, out);
        let bool = self.k.scalar_type(DType::Bool);
        let over = self.push(Op::Compare(Predicate::Ge, on, stages), bool, like, out);
        let back = self.binary(BinaryOp::Sub, on, stages, like, out);
        let int = self.k.scalar_type(DType::I32);
        self.push(Op::Select(over, back, on), int, like, out)
    }

    fn int(&mut self, x: u32, like: Inst, out: &mut Vec<Inst>) -> Value {
        let int = self.k.scalar_type(DType::I32);
        self.push(Op::Const(f64::from(x)), int, like, out)
    }

    fn binary(&mut self, op: BinaryOp, a: Value, b: Value, like: Inst, out: &mut Vec<Inst>) -> Value {
        let int = self.k.scalar_type(DType::I32);
        self.push(Op::binary(op, a, b), int, like, out)
    }

    fn push(&mut self, op: Op, ty: Type, like: Inst, out: &mut Vec<Inst>) -> Value {
        let loc = self.k.locs[like];
        let inst = self.k.new_inst(op, vec![ty], loc);
        out.push(inst);
        self.k.results[inst][0]
    }
}
