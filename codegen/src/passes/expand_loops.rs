//! `expand_loops`: copies into a ring of several stages run ahead of the iteration that reads them.
//!
//! Needs: rings of several stages filled, in a loop, right before they are waited for. Establishes: all stages but one are
//! filled before the loop, and each iteration fills the one that is free. Never: chooses how far; moves what reads a stage.
//! Refuses: nothing. Constructs: removes nothing; adds nothing.
//!
//! ```text
//!                              for each number s below stages - 1: fill s if lo + s < hi
//! loop i in lo..hi {           loop i in lo..hi {
//!   fill i - lo                  wait i - lo
//!   wait i - lo           →      fill i - lo + stages - 1, if that iteration is below hi
//!   ..                           ..
//! ```
//!
//! # Promise
//! The stage of an iteration holds what its fill in the loop would have put there, when it is waited for.
//!
//! # Argument
//! A fill is copies, and scalars that the index and what stands outside of the loop decide; the pass that made it refuses
//! others. So it may be copied with another number in place of the index. Of the numbers 0.. those below `hi - lo` are filled
//! once each, in their order: the first `stages - 1` before the loop, each other one `stages - 1` iterations early. Fill
//! `n + stages - 1` goes to the stage of iteration `n - 1`, which was released before the wait for `n`.
//!
//! The condition `index + s < hi` is computed as `s < hi - index`, because the sum may be past the last number. Where
//! `index < hi`, the difference is at least 1 and below 2^32, so it is right as an unsigned number, and `s` is below the lesser of
//! it and `s + 1`. LLVM makes one unsigned comparison of that. A loop that begins at a constant of at least 0, as nearly all do,
//! has no index below 0. There the difference is below 2^31, and is compared as it is. Before the loop, `lo < hi` is part of
//! the condition.
//!
//! A fill by threads is committed whether it copies or not, so that every thread counts the same groups. A fill by the copy
//! engine is committed only if it copies, for nothing counts its groups.
//!
//! # Breaks it
//! Loops of fewer iterations than stages, of none, and of indices near the last and the least number:
//! tests/agreement/pipelines.rs; loads whose place a carried number decides: tests/agreement/wrong_code.rs.

use crate::context::Cx;
use crate::error::CompileError;
use crate::gpu::slices::{copy, is_plain, remove_unread, slice};
use crate::gpu::{At, Block, BlockData, Inst, Kernel, Mover, Op, Ring, Type, UnsignedOp, Value, ValueDef};
use atlas_dsl::DType;
use atlas_dsl::op::{BinaryOp, Predicate};
use std::collections::BTreeMap;

/// Expands the loops of every block.
pub fn expand_loops(k: &mut Kernel, _: &mut Cx<'_>) -> Result<(), CompileError> {
    for block in k.blocks.keys().collect::<Vec<_>>() {
        let mut out = Vec::new();
        for inst in std::mem::take(&mut k.blocks[block].insts) {
            if let Op::Loop { lo, hi, body, .. } = k.insts[inst] {
                while let Some(fill) = Fill::find(k, body) {
                    let index = k.blocks[body].params[0];
                    Ahead { k, fill, like: inst, bounds: (lo, hi), index }.expand(body, &mut out);
                }
            }
            out.push(inst);
        }
        k.blocks[block].insts = out;
    }
    Ok(())
}

/// A fill of a ring of several stages and the wait for it, in the body of a loop.
struct Fill {
    ring: Ring,
    /// The number of the iteration.
    number: Value,
    acquire: Inst,
    copies: Vec<Inst>,
    commit: Inst,
    wait: Inst,
    /// What in the body the places of the copies are computed from.
    places: Vec<Inst>,
}

impl Fill {
    fn find(k: &Kernel, body: Block) -> Option<Fill> {
        let insts = &k.blocks[body].insts;
        insts.iter().find_map(|&acquire| {
            let Op::Acquire(ring, At::Iteration(number)) = k.insts[acquire] else { return None };
            let token = k.results[acquire][0];
            let commit = insts.iter().copied().find(|&i| k.insts[i] == Op::Commit(ring, Some(token)))?;
            let wait = insts.iter().copied().find(|&i| k.insts[i] == Op::Wait(ring, At::Iteration(number)))?;
            let into = |i: Inst| matches!(&k.insts[i], Op::Copy { to, .. } if to.token == Some(token));
            let copies: Vec<Inst> = insts.iter().copied().filter(|&i| into(i)).collect();
            let mut places = Vec::new();
            copies.iter().for_each(|&i| k.insts[i].visit_operands(|v| places.push(v)));
            let places = slice(k, insts, places.into_iter().filter(|&v| v != token));
            (k.rings[ring].stages > 1).then_some(Fill { ring, number, acquire, copies, commit, wait, places })
        })
    }

    fn is_part(&self, inst: Inst) -> bool {
        inst == self.acquire || inst == self.commit || self.copies.contains(&inst)
    }
}

struct Ahead<'k> {
    k: &'k mut Kernel,
    fill: Fill,
    /// Whose place in the source the instructions before the loop have.
    like: Inst,
    bounds: (Value, Value),
    index: Value,
}

impl Ahead<'_> {
    /// Puts the first fills before the loop and the others behind the wait.
    fn expand(&mut self, body: Block, before: &mut Vec<Inst>) {
        let most = self.k.rings[self.fill.ring].stages - 1;
        for s in 0..most {
            let step = self.int(s, before);
            self.fill_if_below(self.bounds.0, (s, step), step, true, before);
        }
        let mut out = Vec::new();
        self.like = self.fill.wait;
        for inst in std::mem::take(&mut self.k.blocks[body].insts) {
            if !self.fill.is_part(inst) {
                out.push(inst);
            }
            if inst == self.fill.wait {
                let step = self.int(most, &mut out);
                let number = self.integer(BinaryOp::Add, self.fill.number, step, &mut out);
                self.fill_if_below(self.index, (most, step), number, false, &mut out);
            }
        }
        self.k.blocks[body].insts = out;
        remove_unread(self.k, body, is_plain);
    }

    /// Fills the stage of iteration `number`, the loop's index being `from + step`, if that is below the upper bound; `first`
    /// if `from` need not be.
    fn fill_if_below(
        &mut self,
        from: Value,
        (steps, step): (u32, Value),
        number: Value,
        first: bool,
        out: &mut Vec<Inst>,
    ) {
        let left = self.integer(BinaryOp::Sub, self.bounds.1, from, out);
        let bool = self.k.scalar_type(DType::Bool);
        let mut inside = match self.is_never_negative(self.bounds.0) {
            true => self.push(Op::Compare(Predicate::Lt, step, left), bool.clone(), out),
            false => {
                let next = self.int(steps + 1, out);
                let int = self.k.scalar_type(DType::I32);
                let left = self.push(Op::Unsigned(UnsignedOp::Min, left, next), int, out);
                self.push(Op::Compare(Predicate::Lt, step, left), bool.clone(), out)
            }
        };
        if first {
            let any = self.push(Op::Compare(Predicate::Lt, from, self.bounds.1), bool.clone(), out);
            inside = self.push(Op::binary(BinaryOp::And, any, inside), bool, out);
        }
        let index = self.integer(BinaryOp::Add, from, step, out);
        let mut values = BTreeMap::from([(self.index, index), (self.fill.number, number)]);
        let mut insts = Vec::new();
        for &inst in self.fill.places.iter().chain([&self.fill.acquire]).chain(&self.fill.copies) {
            // The number may be one of the places too.
            if self.k.results[inst].first() != Some(&self.fill.number) {
                insts.push(copy(self.k, inst, &mut values));
            }
        }
        let by_engine = self.k.rings[self.fill.ring].filled_by == Mover::Engine;
        if by_engine {
            insts.push(copy(self.k, self.fill.commit, &mut values));
        }
        let block = self.k.blocks.push(BlockData { params: Vec::new(), insts });
        self.effect(Op::If(inside, block, Vec::new()), out);
        if !by_engine {
            self.effect(Op::Commit(self.fill.ring, None), out);
        }
    }

    fn is_never_negative(&self, v: Value) -> bool {
        let ValueDef::Result(inst, _) = self.k.values[v].def else { return false };
        matches!(self.k.insts[inst], Op::Const(x) if x >= 0.0)
    }

    fn effect(&mut self, op: Op, out: &mut Vec<Inst>) {
        let loc = self.k.locs[self.like];
        out.push(self.k.new_inst(op, vec![], loc));
    }

    fn int(&mut self, x: u32, out: &mut Vec<Inst>) -> Value {
        let int = self.k.scalar_type(DType::I32);
        self.push(Op::Const(f64::from(x)), int, out)
    }

    fn integer(&mut self, op: BinaryOp, a: Value, b: Value, out: &mut Vec<Inst>) -> Value {
        let int = self.k.scalar_type(DType::I32);
        self.push(Op::binary(op, a, b), int, out)
    }

    fn push(&mut self, op: Op, ty: Type, out: &mut Vec<Inst>) -> Value {
        let loc = self.k.locs[self.like];
        let inst = self.k.new_inst(op, vec![ty], loc);
        out.push(inst);
        self.k.results[inst][0]
    }
}
