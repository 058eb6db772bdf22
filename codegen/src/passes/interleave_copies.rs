//! `interleave_copies`: a ring is refilled behind the first step of a product, not before it.
//!
//! Needs: rings by iteration number, refilled right after a wait; products in steps. Establishes: where a product follows
//! the refill in a loop, its first step along K stands before it. Never: moves a refill past a release. Refuses: nothing.
//! Constructs: removes nothing; adds nothing.
//!
//! All threads meet at a wait, and the tensor cores are idle until the first operands are there. The addresses and copies
//! of a refill take issue slots that cost nothing once the first products are on their way.
//!
//! # Promise
//! The same products over the same elements in the same order, and the same copies into the same stages.
//!
//! # Argument
//! Steps keep their order. The refill is moved down past one step that reads stages which this iteration waited for. It writes a stage
//! that was released before, hence another one. What it computes is scalars, which stay. It is moved within its block, so
//! that groups of copies are counted as before: no other commit or wait lies on the way.
//!
//! # Breaks it
//! A refill moved past another wait, or a step that reads what the refill writes: the simulator's races in tests/agreement;
//! tests/cases/passes/interleave_copies.

use crate::context::Cx;
use crate::error::CompileError;
use crate::gpu::slices::{guarded_fill, is_scalar};
use crate::gpu::{Block, Inst, Kernel, Mover, Op, Operand};

/// Moves the refills of every loop.
pub fn interleave_copies(k: &mut Kernel, cx: &mut Cx<'_>) -> Result<(), CompileError> {
    let bodies: Vec<Block> =
        k.insts.values().filter_map(|op| if let Op::Loop { body, .. } = op { Some(*body) } else { None }).collect();
    for body in bodies {
        // Of a loop with copies by the engine each refill, the last one first: it stands between the others and the product.
        let refills = refills(k, body);
        let by_engine = refills.iter().any(|r| r.count == 1);
        for refill in refills.iter().rev().filter(|r| by_engine || r.at == refills[0].at) {
            place(k, cx, body, refill);
        }
    }
    Ok(())
}

/// Moves one refill behind the product's first step, if only what may be passed stands between.
fn place(k: &mut Kernel, cx: &mut Cx<'_>, body: Block, refill: &Refill) {
    let &Refill { at: refill, count } = refill;
    if let Some(step) = step_behind(k, body, refill, count) {
        let loc = k.locs[k.blocks[body].insts[step]];
        cx.notes.push("refill", loc, || {
            ("behind the product's first step".to_owned(), "the tensor cores start before copies are issued".to_owned())
        });
        // The guarded copies, and the commit of those by threads, behind the step and its wait: of an asynchronous product, between the two.
        let end = if is_asynchronous(k, k.blocks[body].insts[step]) { step + 1 } else { step + 2 };
        k.blocks[body].insts[refill..end].rotate_left(count);
    }
}

/// A guarded fill of a stage of a ring that its block has waited for before.
struct Refill {
    /// Its place in the block.
    at: usize,
    /// Its instructions: the guard, and the commit of copies by threads.
    count: usize,
}

/// The refills of a block, in order.
fn refills(k: &Kernel, body: Block) -> Vec<Refill> {
    let insts = &k.blocks[body].insts;
    let refill = |at: usize| {
        let (ring, count) = guarded_fill(k, insts, at)?;
        let waits = |&i: &Inst| matches!(k.insts[i], Op::Wait(r, _) if r == ring);
        insts[..at].iter().any(waits).then_some(Refill { at, count })
    };
    (0..insts.len()).filter_map(refill).collect()
}

/// The place of the product that a refill may follow.
fn step_behind(k: &Kernel, body: Block, refill: usize, count: usize) -> Option<usize> {
    let insts = &k.blocks[body].insts;
    let is_step = |i: Inst| matches!(&k.insts[i], Op::Mma { atom, .. } if atom.is_tensor_core());
    let mut steps = (refill + count..insts.len()).filter(|&at| is_step(insts[at]));
    let step = steps.next()?;
    // On the way stand scalars, constants and the step's operands alone: what computes tiles would hold the copies up.
    let plain = |&i: &Inst| {
        let loads = match k.insts[i] {
            Op::Wait(ring, _) => k.rings[ring].filled_by == Mover::Engine,
            ref op => matches!(op, Op::Const(_) | Op::LoadMatrix { .. }),
        };
        loads || (!k.results[i].is_empty() && k.results[i].iter().all(|&v| is_scalar(k, v)))
    };
    let waits = |&i: &Inst| matches!(k.insts[i], Op::WaitMma(v, 0) if v == k.results[insts[step]][0]);
    let is_asynchronous = is_asynchronous(k, insts[step]);
    let goes_on = is_asynchronous || steps.next().is_some() || insts[step..].iter().any(|&i| has_steps(k, i));
    (goes_on && insts[refill + count..step].iter().all(plain) && insts.get(step + 1).is_some_and(waits)).then_some(step)
}

/// True for an asynchronous product whose operands lie in shared memory. Registers of one are not left in flight over a branch.
fn is_asynchronous(k: &Kernel, inst: Inst) -> bool {
    k.insts[inst].is_asynchronous() && matches!(k.insts[inst], Op::Mma { a: Operand::Shared(_), .. })
}

/// True for a loop over steps of a product.
fn has_steps(k: &Kernel, inst: Inst) -> bool {
    let Op::Loop { body, .. } = k.insts[inst] else { return false };
    k.blocks[body].insts.iter().any(|&i| matches!(k.insts[i], Op::Mma { .. }))
}
