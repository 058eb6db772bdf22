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
//! its tile in whole instructions. Its operands then lie in panels of at most 128 bytes of their rows ([`Placement::buffer_layout`]),
//! of which a descriptor tells the instruction. Of a right operand whose rows run along N, the columns of each warpgroup
//! begin with a panel. The left one's always do: a panel has at most 64 elements, and a warpgroup's rows begin at a multiple of 64.
//! Operands of 32-bit elements run along K, because the instruction does not transpose them.
//!
//! [`Placement::buffer_layout`]: super::Placement::buffer_layout
//!
//! The right operand is loaded from a tensor that is only read: what threads store would need a fence and a meeting of all
//! threads before each product. Values that are tied together share one layout, so all products of a class are asynchronous or none is.
//!
//! # Breaks it
//! A tile of 48 columns, of K = 24 or of two warps that is called asynchronous: the verifier's rule 442 and the emitter.
//! One product of a class that is not, and a left operand from outside of the loop: tests/agreement/hopper.rs.

use super::super::Uses;
use super::super::sources::root;
use crate::arch::Target;
use crate::arch::limits::registers_per_thread;
use crate::gpu::atom::{MmaAtom, Side, WARPGROUP};
use crate::gpu::{Split, WarpGrid, warp_grid_of};
use crate::layout::{Fragment, SharedLayout};
use atlas_dsl::config::Products;
use atlas_dsl::ir::ValueDef;
use atlas_dsl::{Block, Inst, Kernel, Op, Schedule, Value};
use std::collections::BTreeSet;

/// Clock cycles of a multiprocessor's tensor cores for what a warpgroup issues before it waits, below which a product is made
/// synchronously. A wait costs some hundred cycles, whatever the product takes: on an H200, products of 64 cycles were up to 10 %
/// slower than by `mma.sync`, those of 128 from 3 % slower to 12 % faster, those of 256 and more 23 % to 54 % faster.
const LEAST_CYCLES: u32 = 128;

/// What the extents of tiles in shared memory are padded to.
const BLOCK: u32 = 16;

/// Accumulators of a thread above which a product is made synchronously, by ranges of columns. ptxas issues the next range of an
/// asynchronous one before it stores the last, and then has no registers for both.
const MOST_ACCUMULATORS: u32 = 128;

/// Registers of a thread besides the accumulators of one instruction, without which ptxas 13.0 refuses it (C7602): it asks for 66 for
/// 40 accumulators, and takes 36 with 64.
const BESIDE_ACCUMULATORS: u32 = 26;

/// Why a product is not made asynchronously.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhySynchronous {
    /// The target has no asynchronous product of the element type.
    Atom,
    /// The config leaves products to warps.
    Config,
    /// The CTA does not consist of warpgroups.
    Warps,
    /// K is no multiple of 16, to which buffers are padded.
    Depth,
    /// No grid of warpgroups divides the tile into whole instructions.
    Tile,
    /// The config's grid of warps does not, and another one would.
    Grid,
    /// The wait would take longer than the product.
    Short,
    /// A thread would hold too many accumulators.
    Accumulators,
    /// A thread has too few registers for one instruction.
    Registers,
    /// An operand has more or fewer than two axes.
    Rank(Side),
    /// An operand of 32-bit elements runs along M or N.
    AlongK(Side),
    /// The right operand's rows run along N, and the columns of a warpgroup begin within a panel.
    Across,
    /// The right operand is computed, or the kernel writes its tensor.
    Computed,
    /// Another product of the same accumulator is synchronous.
    Tied,
}

impl WhySynchronous {
    /// The reason as a sentence without an end.
    pub const fn text(self) -> &'static str {
        match self {
            WhySynchronous::Atom => "the target has no wgmma of this element type",
            WhySynchronous::Config => "no wgmma: the config leaves products to warps",
            WhySynchronous::Warps => "no wgmma: warps are no multiple of 4",
            WhySynchronous::Depth => "no wgmma: its depth is no multiple of 16",
            WhySynchronous::Tile => {
                "no wgmma: warpgroups do not divide it into multiples of 64 rows and of 16 columns, at most 256"
            }
            WhySynchronous::Grid => {
                "no wgmma: the config's warp_grid does not divide it among warpgroups, which are four warps below each other; warp_grid=auto does"
            }
            WhySynchronous::Short => "no wgmma: a warpgroup's part takes tensor cores less than 128 cycles",
            WhySynchronous::Accumulators => "no wgmma: a thread would hold more than 128 accumulators",
            WhySynchronous::Registers => {
                "no wgmma: one instruction needs more registers than a thread may have beside so many; fewer warps, or columns, have room"
            }
            WhySynchronous::Rank(Side::Left) => "no wgmma: A is no tile of two axes",
            WhySynchronous::Rank(Side::Right) => "no wgmma: B is no tile of two axes",
            WhySynchronous::AlongK(Side::Left) => "no wgmma: A is of 32-bit elements and does not run along K",
            WhySynchronous::AlongK(Side::Right) => "no wgmma: B is of 32-bit elements and does not run along K",
            WhySynchronous::Across => {
                "no wgmma: B's rows run along N, and warpgroups divide them into no multiples of 64, 32 or 16 columns"
            }
            WhySynchronous::Computed => "no wgmma: B is computed, or the kernel writes its tensor",
            WhySynchronous::Tied => "no wgmma: another product of its accumulator cannot be one",
        }
    }
}

/// For each product, the atom by which it is made asynchronously or why it is not; `class_of` gives the class of a value.
pub(super) fn asynchronous_products(
    kernel: &Kernel,
    schedule: &Schedule,
    target: Target,
    class_of: impl Fn(Value) -> usize,
) -> Vec<(Inst, Result<MmaAtom, WhySynchronous>)> {
    let mut found = Vec::new();
    let mut others = BTreeSet::new();
    for (inst, op) in kernel.insts.iter() {
        let Op::Dot { .. } = op else { continue };
        let class = class_of(kernel.results[inst][0]);
        let atom = atom(kernel, inst, schedule, target);
        if atom.is_err() {
            others.insert(class);
        }
        found.push((inst, atom, class));
    }
    let tied = |(inst, atom, class): (Inst, Result<MmaAtom, WhySynchronous>, usize)| {
        (inst, atom.and_then(|atom| if others.contains(&class) { Err(WhySynchronous::Tied) } else { Ok(atom) }))
    };
    found.into_iter().map(tied).collect()
}

/// The atom of a product, if a warpgroup can make it.
fn atom(kernel: &Kernel, dot: Inst, schedule: &Schedule, target: Target) -> Result<MmaAtom, WhySynchronous> {
    let Op::Dot { a, b, precision, .. } = kernel.insts[dot] else { return Err(WhySynchronous::Atom) };
    let atom = MmaAtom::select_asynchronous(kernel.ty(a).dtype, precision, target).ok_or(WhySynchronous::Atom)?;
    let warps = schedule.warps;
    let (made, depth) = (&kernel.ty(kernel.results[dot][0]).shape, kernel.ty(a).shape[1]);
    let (m, n) = (made[0], made[1]);
    let or = |holds: bool, why| if holds { Ok(()) } else { Err(why) };
    or(schedule.products != Some(Products::Warps), WhySynchronous::Config)?;
    or(warps.is_multiple_of(WARPGROUP), WhySynchronous::Warps)?;
    or(depth.is_multiple_of(BLOCK), WhySynchronous::Depth)?;
    let own = [Split::Rows, Split::Both].map(|split| atom.warp_grid(m, n, warps, split));
    let grids = match schedule.warp_grid {
        Some(grid) => vec![atom.warp_grid(m, n, warps, Split::Given(grid))],
        None => own.to_vec(),
    };
    let is_given = schedule.warp_grid.is_some() && own.iter().all(|&grid| atom.fits(m, n, grid));
    let unfit = if is_given { WhySynchronous::Grid } else { WhySynchronous::Tile };
    for &grid in &grids {
        let (rows, columns) = (m / grid.rows, n / grid.cols);
        or(atom.fits(m, n, grid), unfit)?;
        let is_asked_for = schedule.products == Some(Products::Warpgroups);
        or(is_asked_for || cycles(atom, [rows, columns, depth]) >= LEAST_CYCLES, WhySynchronous::Short)?;
        or(rows / 16 * (columns / 2) <= MOST_ACCUMULATORS, WhySynchronous::Accumulators)?;
        let registers = registers_per_thread(32 * warps, schedule.occupancy);
        or(columns / 2 + BESIDE_ACCUMULATORS <= registers, WhySynchronous::Registers)?;
    }
    for (v, side) in [(a, Side::Left), (b, Side::Right)] {
        let (root, turned) = root(kernel, v);
        let ty = kernel.ty(root);
        let layout = SharedLayout::of_wgmma_operand(&ty.shape, ty.dtype.bytes()).ok_or(WhySynchronous::Rank(side))?;
        // What threads store needs a fence and a meeting of all threads before each product. How a computed tile's rows run says
        // nothing of the tensor from which it is computed.
        let is_copied = match kernel.def_op(root) {
            Some((_, op @ Op::Load { param, .. })) => kernel.params[*param].kind.is_read_only() && !op.gathers(),
            _ => side == Side::Left,
        };
        or(is_copied, WhySynchronous::Computed)?;
        let is_along_k = (side == Side::Left) != turned;
        or(is_along_k || !atom.reads_along_k_alone(), WhySynchronous::AlongK(side))?;
        // The rows of `[N, K]` run along K, those of `[K, N]` along N.
        let begins = |grid: &WarpGrid| grid.cols == 1 || (n / grid.cols).is_multiple_of(layout.panel);
        let is_whole = side == Side::Left || turned || grids.iter().all(begins);
        or(is_whole, WhySynchronous::Across)?;
    }
    Ok(atom)
}

/// True if what a warpgroup issues for a product of an accumulator's layout is worth its wait.
pub(crate) fn is_long_enough(atom: MmaAtom, accumulator: &Fragment, depth: u32) -> bool {
    let grid = warp_grid_of(accumulator);
    cycles(atom, [accumulator.shape[0] / grid.rows, accumulator.shape[1] / grid.cols, depth]) >= LEAST_CYCLES
}

/// Cycles of tensor cores for a warpgroup's part of a product: rows of a warp, columns, and extent along K. Of 16-bit elements,
/// two columns of 64 rows and 16 along K take one.
fn cycles(atom: MmaAtom, [rows, columns, depth]: [u32; 3]) -> u32 {
    rows / 16 * (columns / 2) * (depth * atom.row().time / 16)
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
