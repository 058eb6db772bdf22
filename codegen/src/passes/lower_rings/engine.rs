//! Rings that the copy engine fills: cursors of a slot and a phase, which all loops carry on, and fills by one thread.
//!
//! A number of such a ring counts from the beginning of the outermost body that holds its fills and waits. Its mbarriers do not
//! begin anew there: each has a phase that flips whenever it is complete. So at each place there is a *base*, the cursor of
//! number 0, and number `n` is the base moved on by `n`.
//!
//! # Promise
//! The n-th fill and the n-th wait of a role have the same slot and the same phase, and the phase is that of the slot's
//! mbarriers: 0 in the first round of the ring, then 1 and 0 in turn.
//!
//! # Argument
//! The base is slot 0 and phase 0 at the head of a role. A loop that numbers the ring by its index carries the base on by one
//! for each iteration, for each has one wait; a loop around such a loop, or a branch, by what its body moved it on. All fills
//! before such a loop and in it together are as many as its iterations, since a fill is guarded by the loop's bound. So
//! behind the loop every number that was filled has been waited for, and the base is that of the next fill.
//!
//! # Breaks it
//! A ring of which some number is no sum of a loop's index and a constant is refused as a defect of the passes before. Loops in
//! loops, of no iterations and of branches: tests/agreement/hopper.rs, tests/cases/passes/lower_rings, and the GPU IR
//! interpreter, which compares each phase with the fills of the slot.

use super::numbers::{Index, distance};
use super::scalars::{binary, int, push};
use crate::error::CompileError;
use crate::gpu::{At, Block, BlockData, Inst, Kernel, Op, Ring, Value};
use atlas_dsl::DType;
use atlas_dsl::op::{BinaryOp, Predicate};

/// A place in a ring.
#[derive(Clone, Copy)]
struct Cursor {
    slot: Value,
    phase: Value,
}

/// Replaces the numbers of a ring's iterations, puts its fills into regions of one thread, and sets its mbarriers up first.
pub(super) fn lower_ring(k: &mut Kernel, ring: Ring) -> Result<(), CompileError> {
    let bodies: Vec<Block> = k.roles.values().map(|r| r.body).filter(|&b| has_wait(k, b, ring)).collect();
    for body in bodies {
        let Some(&like) = k.blocks[body].insts.first() else { continue };
        let mut walk = CursorLowering { k, ring, indices: Vec::new(), own: false };
        let mut head = Vec::new();
        let base = Cursor { slot: int(walk.k, 0, like, &mut head), phase: int(walk.k, 0, like, &mut head) };
        walk.block(body, base)?;
        let loc = k.locs[like];
        head.push(k.new_inst(Op::InitRing(ring), vec![], loc));
        k.blocks[body].insts.splice(0..0, head);
    }
    Ok(())
}

struct CursorLowering<'k> {
    k: &'k mut Kernel,
    ring: Ring,
    /// The loops around, and their indices.
    indices: Vec<Index>,
    /// True if the innermost loop around numbers a wait of the ring.
    own: bool,
}

impl CursorLowering<'_> {
    /// Walks a block from the base at its beginning. Returns the base at its end.
    fn block(&mut self, block: Block, mut base: Cursor) -> Result<Cursor, CompileError> {
        let mut out = Vec::new();
        for inst in std::mem::take(&mut self.k.blocks[block].insts) {
            let op = self.k.insts[inst].clone();
            if let Op::Acquire(ring, At::Iteration(n)) | Op::Wait(ring, At::Iteration(n)) = op
                && ring == self.ring
            {
                self.own |= matches!(op, Op::Wait(..));
                let Cursor { slot, phase } = self.cursor(n, base, inst, &mut out)?;
                if let Op::Acquire(_, at) | Op::Wait(_, at) = &mut self.k.insts[inst] {
                    *at = At::Cursor { slot, phase };
                }
            } else if let Op::Loop { lo, body, .. } = op {
                self.indices.push(Index { index: self.k.blocks[body].params[0], lo });
                match has_wait(self.k, body, self.ring) {
                    true => base = self.carry(inst, body, base)?,
                    false => _ = self.block(body, base)?,
                }
                self.indices.pop();
            } else if let Op::If(_, body, _) = op {
                match has_wait(self.k, body, self.ring) {
                    true => base = self.branch(inst, body, base)?,
                    false => _ = self.block(body, base)?,
                }
            } else if let Op::Programs(body) = op
                && has_wait(self.k, body, self.ring)
            {
                return Err(CompileError::bug("a ring of the copy engine in several programs of a CTA"));
            }
            out.push(inst);
        }
        self.k.blocks[block].insts = out;
        self.gather(block)?;
        Ok(base)
    }

    /// A loop that holds waits: it carries the cursor.
    fn carry(&mut self, inst: Inst, body: Block, base: Cursor) -> Result<Cursor, CompileError> {
        let i32_type = self.k.scalar_type(DType::I32);
        let slot = self.k.push_block_param(body, i32_type.clone());
        let phase = self.k.push_block_param(body, i32_type);
        let around = std::mem::replace(&mut self.own, false);
        let end = self.block(body, Cursor { slot, phase })?;
        let own = std::mem::replace(&mut self.own, around);
        let Some(last) = self.k.blocks[body].insts.pop() else {
            return Err(CompileError::bug("a loop without a yield"));
        };
        let mut insts = std::mem::take(&mut self.k.blocks[body].insts);
        let next = if own { self.round(Cursor { slot, phase }, 1, last, &mut insts) } else { end };
        insts.push(last);
        self.k.blocks[body].insts = insts;
        self.yields(last, next);
        if let Op::Loop { inits, .. } = &mut self.k.insts[inst] {
            inits.extend([base.slot, base.phase]);
        }
        Ok(self.results(inst))
    }

    /// A branch that holds waits: it gives the cursor behind them, or the one before it.
    fn branch(&mut self, inst: Inst, body: Block, base: Cursor) -> Result<Cursor, CompileError> {
        let end = self.block(body, base)?;
        let insts = &self.k.blocks[body].insts;
        let last = match insts.last() {
            Some(&last) if matches!(self.k.insts[last], Op::Yield(_)) => last,
            _ => {
                let loc = self.k.locs[inst];
                let last = self.k.new_inst(Op::Yield(Vec::new()), vec![], loc);
                self.k.blocks[body].insts.push(last);
                last
            }
        };
        self.yields(last, end);
        if let Op::If(_, _, others) = &mut self.k.insts[inst] {
            others.extend([base.slot, base.phase]);
        }
        Ok(self.results(inst))
    }

    fn yields(&mut self, last: Inst, next: Cursor) {
        if let Op::Yield(values) = &mut self.k.insts[last] {
            values.extend([next.slot, next.phase]);
        }
    }

    fn results(&mut self, inst: Inst) -> Cursor {
        let i32_type = self.k.scalar_type(DType::I32);
        let slot = self.k.push_result(inst, i32_type.clone());
        Cursor { slot, phase: self.k.push_result(inst, i32_type) }
    }

    /// The cursor of number `n`; what computes it goes before `like`.
    fn cursor(&mut self, n: Value, base: Cursor, like: Inst, out: &mut Vec<Inst>) -> Result<Cursor, CompileError> {
        let innermost = self.indices.len().checked_sub(1);
        match distance(self.k, &self.indices, n) {
            Some((at, ahead)) if at.is_none() || at == innermost => Ok(self.round(base, ahead, like, out)),
            _ => Err(CompileError::bug("a ring of the copy engine that no loop around numbers")),
        }
    }

    /// The cursor so many stages further on.
    fn round(&mut self, from: Cursor, ahead: u32, like: Inst, out: &mut Vec<Inst>) -> Cursor {
        let stages = self.k.rings[self.ring].stages;
        let mut to = from;
        if !ahead.is_multiple_of(stages) {
            let (by, all) = (int(self.k, ahead % stages, like, out), int(self.k, stages, like, out));
            let on = binary(self.k, BinaryOp::Add, from.slot, by, like, out);
            let bool = self.k.scalar_type(DType::Bool);
            let over = push(self.k, Op::Compare(Predicate::Ge, on, all), bool, like, out);
            let back = binary(self.k, BinaryOp::Sub, on, all, like, out);
            let flipped = self.flip(from.phase, like, out);
            to = Cursor {
                slot: self.select(over, back, on, like, out),
                phase: self.select(over, flipped, from.phase, like, out),
            };
        }
        if !(ahead / stages).is_multiple_of(2) {
            to.phase = self.flip(to.phase, like, out);
        }
        to
    }

    fn flip(&mut self, phase: Value, like: Inst, out: &mut Vec<Inst>) -> Value {
        let one = int(self.k, 1, like, out);
        binary(self.k, BinaryOp::Sub, one, phase, like, out)
    }

    fn select(&mut self, condition: Value, a: Value, b: Value, like: Inst, out: &mut Vec<Inst>) -> Value {
        let i32_type = self.k.scalar_type(DType::I32);
        push(self.k, Op::Select(condition, a, b), i32_type, like, out)
    }

    /// Puts each fill of the ring in a block into a region of one thread: the acquire, the copies and the commit. What computes
    /// their places stands before it, for others may read it too.
    fn gather(&mut self, block: Block) -> Result<(), CompileError> {
        let insts = std::mem::take(&mut self.k.blocks[block].insts);
        let (mut out, mut fill): (Vec<Inst>, Option<Vec<Inst>>) = (Vec::new(), None);
        for inst in insts {
            let k = &self.k;
            let token = fill.as_ref().and_then(|f| f.first()).and_then(|&acquire| k.results[acquire].first().copied());
            if let Op::Acquire(ring, _) = k.insts[inst]
                && ring == self.ring
            {
                fill = Some(vec![inst]);
            } else if let (Op::Copy { to, .. }, Some(part)) = (&k.insts[inst], &mut fill)
                && to.token == token
            {
                part.push(inst);
            } else if let Some(mut insts) = fill.take_if(|_| k.insts[inst] == Op::Commit(self.ring, token)) {
                insts.push(inst);
                let loc = self.k.locs[inst];
                let body = self.k.blocks.push(BlockData { params: Vec::new(), insts });
                out.push(self.k.new_inst(Op::Once(body), vec![], loc));
            } else {
                out.push(inst);
            }
        }
        self.k.blocks[block].insts = out;
        if fill.is_some() { Err(CompileError::bug("a fill of a ring that is never committed")) } else { Ok(()) }
    }
}

/// True if a block, or one in it, waits for a stage of the ring.
fn has_wait(k: &Kernel, block: Block, ring: Ring) -> bool {
    k.blocks[block].insts.iter().any(|&i| {
        matches!(k.insts[i], Op::Wait(r, _) if r == ring)
            || k.insts[i].body().is_some_and(|body| has_wait(k, body, ring))
    })
}
