//! `interleave_copies`: a ring is refilled behind the first step of a product, not before it.
//!
//! Needs: rings by iteration number, refilled right after a wait. Establishes: where a product follows the refill in a
//! loop, its first step along K stands before it. Never: moves a refill past a release. Refuses: nothing.
//! Features: removes nothing; adds nothing.
//!
//! All threads meet at a wait, and the tensor cores are idle until the first operands are there. The addresses and copies
//! of a refill take issue slots that cost nothing once the first products are on their way.
//!
//! # Promise
//! The same products over the same elements in the same order, and the same copies into the same stages.
//!
//! # Argument
//! A product over K is the sum of its steps in their order, whoever starts where: the atoms add to an accumulator in
//! registers. The refill is moved down past one step that reads stages which this iterate waited for. It writes a stage
//! that was released before, hence another one. What it computes is scalars, which stay. It is moved within its block, so
//! that groups of copies are counted as before: no other commit or wait lies on the way.
//!
//! # Breaks it
//! A refill moved past another wait, or a step that reads what the refill writes: the simulator's races in tests/agreement;
//! tests/cases/passes/interleave_copies.

use crate::context::Cx;
use crate::error::CompileError;
use crate::gpu::{Block, Inst, Kernel, Op, Operand, SharedRef, Type, Value};

/// Moves the refills of every loop.
pub fn interleave_copies(k: &mut Kernel, cx: &mut Cx<'_>) -> Result<(), CompileError> {
    let bodies: Vec<Block> =
        k.insts.values().filter_map(|op| if let Op::Loop { body, .. } = op { Some(*body) } else { None }).collect();
    for body in bodies {
        let Some((refill, product)) = find(k, body) else { continue };
        let loc = k.locs[k.blocks[body].insts[product]];
        cx.notes.push("refill", loc, || {
            ("behind the product's first step".to_owned(), "the tensor cores start before copies are issued".to_owned())
        });
        split(k, body, refill, product);
    }
    Ok(())
}

/// Where a refill, a guarded copy and its commit, stands in a block, and the product that it may follow.
fn find(k: &Kernel, body: Block) -> Option<(usize, usize)> {
    let insts = &k.blocks[body].insts;
    let refill = (1..insts.len()).find(|&at| {
        let Op::Commit(ring, None) = k.insts[insts[at]] else { return false };
        let waits = |&i: &Inst| matches!(k.insts[i], Op::Wait(r, _) if r == ring);
        fills(k, insts[at - 1]) && insts[..at].iter().any(waits)
    })? - 1;
    let after = &insts[refill + 2..];
    let product = refill + 2 + after.iter().position(|&i| matches!(k.insts[i], Op::Mma { .. }))?;
    // On the way stand scalars and constants alone: what computes tiles would hold the copies up.
    let plain = |&i: &Inst| {
        let scalar = |&v: &Value| matches!(&k.values[v].ty, Type::Fragment { layout, .. } if layout.shape.is_empty());
        matches!(k.insts[i], Op::Const(_)) || (!k.results[i].is_empty() && k.results[i].iter().all(scalar))
    };
    (insts[refill + 2..product].iter().all(plain) && has_first_step(k, insts[product])).then_some((refill, product))
}

/// True for a guarded block that copies.
fn fills(k: &Kernel, inst: Inst) -> bool {
    let Op::If(_, block) = k.insts[inst] else { return false };
    k.blocks[block].insts.iter().any(|&i| matches!(k.insts[i], Op::Copy { .. }))
}

/// True if a product has a first step of its own: operands in shared memory, and more than one step.
fn has_first_step(k: &Kernel, inst: Inst) -> bool {
    let Op::Mma { a: Operand::Shared(_), b: Operand::Shared(_), atom, shape, .. } = &k.insts[inst] else {
        return false;
    };
    atom.is_tensor_core() && shape.2 > atom.info().shape.2
}

/// Cuts the first step off a product and moves the refill behind it.
fn split(k: &mut Kernel, body: Block, refill: usize, product: usize) {
    let whole = k.blocks[body].insts[product];
    let (loc, op) = (k.locs[whole], k.insts[whole].clone());
    let Op::Mma { a: Operand::Shared(a), b: Operand::Shared(b), acc, atom, shape: (m, n, depth), accumulate } = op
    else {
        return;
    };
    let step = atom.info().shape.2;
    let Type::InFlight { dtype, layout } = k.values[k.results[whole][0]].ty.clone() else { return };
    let first = Op::Mma { a: Operand::Shared(a), b: Operand::Shared(b), acc, atom, shape: (m, n, step), accumulate };
    let first = k.new_inst(first, vec![Type::InFlight { dtype, layout: layout.clone() }], loc);
    let done = Op::WaitMma(k.results[first][0], 0);
    let done = k.new_inst(done, vec![Type::Fragment { dtype, layout }], loc);
    k.insts[whole] = Op::Mma {
        a: Operand::Shared(further(a, (0, step))),
        b: Operand::Shared(further(b, (step, 0))),
        acc: Some(k.results[done][0]),
        atom,
        shape: (m, n, depth - step),
        accumulate: None,
    };
    let insts = &mut k.blocks[body].insts;
    let moved: Vec<Inst> = insts.drain(refill..refill + 2).collect();
    let at = product - 2;
    insts.splice(at..at, [first, done].into_iter().chain(moved));
}

/// The rectangle that begins so many rows and columns of the tile further on.
fn further(r: SharedRef, (rows, cols): (u32, u32)) -> SharedRef {
    let (rows, cols) = if r.transposed { (cols, rows) } else { (rows, cols) };
    SharedRef { origin: (r.origin.0 + rows, r.origin.1 + cols), ..r }
}
