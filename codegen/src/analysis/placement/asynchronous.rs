//! Which products a warpgroup makes asynchronously, reading both operands in shared memory by itself.
//!
//! A left operand that is the same in each iteration of a loop is read from shared memory, though it may be computed in
//! registers: ptxas 13.0 gives the registers of such an operand away in the loop's first iteration (seen in the machine code
//! of `fused_forward`, whose second product then overwrites the first one's operand).
//!
//! # Promise
//! An asynchronous atom for each product that is given one, which encodes the product as it stands: tile, operands, warps.
//!
//! # Argument
//! An instruction of a warpgroup makes 64 rows and up to 256 columns. A product gets one if some grid of warps shares out
//! its tile in whole instructions, and if the buffers of both operands, which follow from the tiles alone, answer with a
//! descriptor. Operands that run along M or N, not K, lie in one span, which only one warpgroup can read from its beginning.
//! The right operand is loaded from a tensor that is only read: what threads store would need a fence and a meeting of all
//! threads before each product. Values that are tied together share one layout, so all products of a class are asynchronous or none is.
//!
//! # Breaks it
//! A tile of 48 columns, of K = 24 or of two warps that is called asynchronous: the verifier's rule 442 and the emitter.
//! One product of a class that is not, and a left operand from outside of the loop: tests/agreement/hopper.rs.

use super::super::Uses;
use super::super::sources::root;
use crate::arch::Target;
use crate::gpu::atom::{MmaAtom, Side, WARPGROUP};
use crate::gpu::{Split, warp_grid_of};
use crate::layout::{Fragment, SharedLayout};
use atlas_dsl::ir::ValueDef;
use atlas_dsl::{Block, Inst, Kernel, Op, Schedule, Value};
use std::collections::BTreeSet;

/// Clock cycles of a multiprocessor's tensor cores for what a warpgroup issues before it waits, below which a product is made
/// synchronously. A wait costs some hundred cycles, whatever the product takes: on an H200, products of 64 cycles were up to 10 %
/// slower than by `mma.sync`, those of 128 from 3 % slower to 12 % faster, those of 256 and more 23 % to 54 % faster.
const LEAST_CYCLES: u32 = 128;

/// Accumulators of a thread above which a product is made synchronously, by ranges of columns. ptxas issues the next range of an
/// asynchronous one before it stores the last, and then has no registers for both.
const MOST_ACCUMULATORS: u32 = 128;

/// The atom of each product that is made asynchronously; `class_of` gives the class of a value.
pub(super) fn asynchronous_products(
    kernel: &Kernel,
    schedule: &Schedule,
    target: Target,
    class_of: impl Fn(Value) -> usize,
) -> Vec<(Inst, MmaAtom)> {
    let mut found = Vec::new();
    let mut others = BTreeSet::new();
    for (inst, op) in kernel.insts.iter() {
        let Op::Dot { .. } = op else { continue };
        let class = class_of(kernel.results[inst][0]);
        match atom(kernel, inst, schedule, target) {
            Some(atom) => found.push((inst, atom, class)),
            None => _ = others.insert(class),
        }
    }
    found.retain(|f| !others.contains(&f.2));
    found.into_iter().map(|(inst, atom, _)| (inst, atom)).collect()
}

/// The atom of a product, if a warpgroup can make it.
fn atom(kernel: &Kernel, dot: Inst, schedule: &Schedule, target: Target) -> Option<MmaAtom> {
    let Op::Dot { a, b, .. } = kernel.insts[dot] else { return None };
    let atom = MmaAtom::select_asynchronous(kernel.ty(a).dtype, target)?;
    let warps = schedule.warps;
    let (made, depth) = (&kernel.ty(kernel.results[dot][0]).shape, kernel.ty(a).shape[1]);
    let (m, n) = (made[0], made[1]);
    if !warps.is_multiple_of(WARPGROUP) || !depth.is_multiple_of(atom.row().shape.2) {
        return None;
    }
    let splits = match schedule.warp_grid {
        Some(grid) => vec![Split::Given(grid)],
        None => vec![Split::Rows, Split::Both],
    };
    let fits = splits.into_iter().all(|split| {
        let grid = atom.warp_grid(m, n, warps, split);
        let (rows, columns) = (m / grid.rows, n / grid.cols);
        let is_long = cycles(rows, columns, depth) >= LEAST_CYCLES;
        atom.fits(m, n, grid) && is_long && rows / 16 * (columns / 2) <= MOST_ACCUMULATORS
    });
    let answers = [(a, Side::Left), (b, Side::Right)].into_iter().all(|(v, side)| {
        let (root, turned) = root(kernel, v);
        let ty = kernel.ty(root);
        let layout = SharedLayout::of_tile(&ty.shape, ty.dtype.bytes(), true);
        // The rows of `[M, K]` run along K, those of `[K, N]` along N.
        let along_k = (side == Side::Left) != turned;
        let alone = along_k || (warps == WARPGROUP && kernel.ty(v).shape[usize::from(side.outer())] == layout.cols);
        // What threads store needs a fence and a meeting of all threads before each product.
        let is_copied = match kernel.def_op(root) {
            Some((_, Op::Load { param, .. })) => kernel.params[*param].kind.is_read_only(),
            _ => side == Side::Left,
        };
        ty.rank() == 2 && layout.matrix_descriptor(along_k, ty.dtype.bytes()).is_some() && alone && is_copied
    });
    (fits && answers).then_some(atom)
}

/// True if what a warpgroup issues for a product of an accumulator's layout is worth its wait.
pub(crate) fn is_long_enough(accumulator: &Fragment, depth: u32) -> bool {
    let grid = warp_grid_of(accumulator);
    cycles(accumulator.shape[0] / grid.rows, accumulator.shape[1] / grid.cols, depth) >= LEAST_CYCLES
}

/// Cycles of tensor cores for a warpgroup's part of a product: rows of a warp, columns, and extent along K. Two columns of 64 rows
/// and 16 along K take one.
fn cycles(rows: u32, columns: u32, depth: u32) -> u32 {
    rows / 16 * (columns / 2) * (depth / 16)
}

/// True if a product in a loop has the same left operand in each iteration: nothing that it is computed from changes there.
pub(super) fn is_left_invariant(kernel: &Kernel, uses: &Uses, dot: Inst) -> bool {
    let Op::Dot { a, .. } = kernel.insts[dot] else { return false };
    let Some(body) = uses.block_of(dot).filter(|&b| uses.loop_of(b).is_some()) else { return false };
    let (mut seen, mut open) = (BTreeSet::new(), vec![a]);
    while let Some(v) = open.pop() {
        if !seen.insert(v) {
            continue;
        }
        match kernel.values[v].def {
            // A carried value that each iteration hands on as it is does not change either.
            ValueDef::BlockParam(block, n) if block == body => match yielded(kernel, body, n) {
                Some(next) if next == v => {}
                _ => return false,
            },
            // What a loop inside leaves may differ from iteration to iteration.
            ValueDef::Result(inst, _) if uses.block_of(inst) == Some(body) => {
                if let Op::Loop { .. } = kernel.insts[inst] {
                    return false;
                }
                kernel.insts[inst].visit_operands(|o| open.push(o));
            }
            _ => {}
        }
    }
    true
}

/// What a loop's body yields for its n-th parameter; nothing for its index.
fn yielded(kernel: &Kernel, body: Block, n: u32) -> Option<Value> {
    match kernel.blocks[body].insts.last().map(|&i| &kernel.insts[i]) {
        Some(Op::Yield(values)) => values.get((n as usize).checked_sub(1)?).copied(),
        _ => None,
    }
}
