//! `split_tiles`: computes a tile that is too wide for the registers by ranges of columns.
//!
//! Needs: whole tiles, each computed once. Establishes: if a store or a reduction along columns uses a tree of operations that
//! nothing else uses, and its widest tile needs more registers than the budget, the tree is computed range by range, each
//! stored or reduced before the next. Never: changes what is computed, or splits values with uses outside of the tree. Refuses:
//! nothing. Constructs: removes nothing; adds nothing.
//!
//! ```text
//!                                    %f = mma [64, 64, 32] %A, %B
//!                                    %d = wait.mma %f, 0
//! %f = mma [64, 128, 32] %A, %B      %e = exp %d
//! %d = wait.mma %f, 0             →  store.global %y[%m : 64, 0 ..+ 64], %e
//! %e = exp %d                        %g = mma [64, 64, 32] %A, %B at (0, 64)
//! store.global %y[%m : 64, ..], %e   ..
//! ```
//!
//! # Promise
//! The same elements are stored and reduced. Sums over columns are accumulated range by range.
//!
//! # Argument
//! *Trees.* Every operation of a tree is element-wise, a repetition along columns, a product, or a load from a tensor that the
//! kernel does not write. So a column of a result depends on the same column of the operands, or on the rows of a left operand
//! and one column of a right one. The leaves are tiles of shared memory, of which columns are read, values that cost nothing, and
//! what a loop or a sum over CTAs leaves in registers, of which a range is some of the registers. A value with other uses is in no
//! tree, unless it can be computed again cheaply.
//!
//! *Moved.* Ranges are computed at the root, which is later than the tree was. If anything in between writes what the tree
//! reads in shared memory, or releases its stage, the tree stays whole. A root that overwrites a tile which its tree reads does
//! so range by range, which is correct if a range only reads those columns of it.
//!
//! *Consecutive stores.* The tiles that an iteration yields are stored after all its computations, one store after the other,
//! each to a buffer of its own. A whole tile was computed before its store, but a tile by ranges still reads at its store. So a
//! store comes first if no other one reads its buffer. In a cycle of such dependences, one tile stays whole, after which its
//! store reads nothing.
//!
//! *Padding.* Ranges may have a layout of their own. If it has padding that the whole does not have, 0 is put there before the
//! store to shared memory. If it reaches fewer rows, the buffer is zeroed before its first store, and later stores find zeros.
//! A reduced range has the layout of the whole, restricted, and needs no other neutral elements.
//!
//! # Breaks it
//! - Tiles that are computed from one another or swapped, and tiles of two widths:
//!   tests/agreement/wrong_code.rs::carried_tiles_are_replaced_together.
//! - Padding that ranges do not reach: tests/agreement/arguments.rs::padding_of_an_operand_is_zero_whatever_ranges_write_it.

mod ranges;
mod trees;

use crate::arch::limits::registers_per_thread;
use crate::context::Cx;
use crate::error::CompileError;
use crate::gpu::slices::remove_unread;
use crate::gpu::{Block, Buffer, Inst, Kernel, Op, Value, WarpGrid};
use crate::gpu_ops;
use crate::layout::Fragment;
use crate::mutation::{Mutation, is_planted};
use crate::notes::Notes;
use ranges::Ranges;
use std::collections::{BTreeMap, BTreeSet};
use trees::{Program, Tree};

/// The columns of a range are a multiple of those that an atom takes of a right operand at once.
const GRANULE: u32 = 16;

/// Registers of the widest tile of a range, and of one that reads the left operand of a product from shared memory again.
const RANGE: u32 = 64;
const RANGE_OF_PRODUCT: u32 = 128;

/// A root whose tree is computed by ranges.
struct Plan {
    tree: Tree,
    /// Registers of the widest tile.
    widest: u32,
    /// The number of registers that it may take.
    budget: u32,
    /// Columns of a range, and of the whole.
    len: u32,
    cols: u32,
    /// For each layout of the tree, the layout of a range.
    layouts: BTreeMap<Fragment, Fragment>,
    /// The buffer of the ranges, if nothing wrote it before and the ranges reach fewer rows than the whole.
    zeroed: Option<Buffer>,
}

/// Splits the trees of every block.
pub fn split_tiles(k: &mut Kernel, cx: &mut Cx<'_>) -> Result<(), CompileError> {
    // At most half of what the schedule leaves a thread.
    let budget = registers_per_thread(k.threads, k.occupancy).div_ceil(2);
    for block in k.blocks.keys().collect::<Vec<_>>() {
        let mut plans = plans(k, block, budget, cx.schedule.warp_grid);
        if plans.is_empty() {
            continue;
        }
        order_stores(k, block, &mut plans);
        let program = Program::of(k);
        plans.retain(|&root, plan| program.is_kept(k, &plan.tree, root));
        split(k, block, &plans, cx.notes);
    }
    Ok(())
}

/// The tile that a root uses, and that gives the columns of the root.
fn taken(k: &Kernel, inst: Inst) -> Option<Value> {
    match &k.insts[inst] {
        Op::StoreGlobal { value, .. } | Op::StoreShared { value, .. } => Some(*value),
        // Partial reductions of ranges meet in one column.
        Op::Reduce { value, axes, .. } => {
            let last = k.tile(*value).1.shape.len().checked_sub(1)?;
            axes.contains(&(last as u8)).then_some(*value)
        }
        Op::MaskInvalid { .. } | Op::Scan { .. } | Op::ConvertLayout(_) => None,
        Op::LoadGlobal { .. } | Op::Copy { .. } => None,
        Op::LoadShared(_) | Op::LoadMatrix { .. } | Op::ZeroShared(_) | Op::SumCluster(..) => None,
        gpu_ops!(sources elementwise views products rings orders control) => None,
    }
}

/// The roots of a block whose trees are too wide, the last first: what two trees have in common counts for the later one.
fn plans(k: &Kernel, block: Block, budget: u32, given: Option<WarpGrid>) -> BTreeMap<Inst, Plan> {
    let program = Program::of(k);
    let mut counted = BTreeSet::new();
    let mut plans: BTreeMap<Inst, Plan> = BTreeMap::new();
    for &inst in k.blocks[block].insts.iter().rev() {
        let Some(value) = taken(k, inst) else { continue };
        let Some(&cols) = k.tile(value).1.shape.last() else { continue };
        let Some(tree) = program.tree(k, inst, value) else { continue };
        let widest = tree.widest(k, &counted);
        // Measured on products whose warps do not divide the tile: by wide ranges ptxas spills.
        let layout = k.tile(value).1;
        let is_padded = (0..layout.shape.len() as u8).any(|axis| layout.is_padded(axis));
        let wide = tree.reads_left_again() && !is_padded;
        let budget = budget.min(if wide { RANGE_OF_PRODUCT } else { RANGE });
        let another = plans.values().next_back().filter(|_| is_planted(Mutation::CarriedByOneWidth));
        if widest <= budget && another.is_none() {
            continue;
        }
        let granules = cols / GRANULE;
        let pieces = (widest.div_ceil(budget)..=granules).find(|&n| granules.is_multiple_of(n));
        let Some(pieces) = pieces.filter(|_| cols.is_multiple_of(GRANULE)) else { continue };
        let len = another.map_or(cols / pieces, |plan| plan.len);
        let Some(layouts) = tree.layouts(k, inst, (cols, len), given) else { continue };
        let cols = another.map_or(cols, |plan| plan.cols);
        let mut zeroed = None;
        if let Op::StoreShared { to, value } = &k.insts[inst]
            && program.is_first_write(k, inst, to.buffer)
        {
            let whole = k.tile(*value).1;
            zeroed = layouts.get(whole).is_some_and(|cut| cut.cover(0) < whole.cover(0)).then_some(to.buffer);
        }
        counted.extend(tree.all());
        plans.insert(inst, Plan { tree, widest, budget, len, cols, layouts, zeroed });
    }
    plans
}

/// Orders consecutive stores to shared memory so that none overwrites what a later one reads.
fn order_stores(k: &mut Kernel, block: Block, plans: &mut BTreeMap<Inst, Plan>) {
    let buffer = |i: Inst| if let Op::StoreShared { to, .. } = k.insts[i] { Some(to.buffer) } else { None };
    let mut out = Vec::new();
    for row in k.blocks[block].insts.chunk_by(|&a, &b| buffer(a).is_some() && buffer(b).is_some()) {
        let buffers: BTreeSet<Buffer> = row.iter().filter_map(|&i| buffer(i)).collect();
        let mut left = row.to_vec();
        if buffers.len() < row.len() || is_planted(Mutation::CarriedInTurn) {
            out.append(&mut left);
        }
        while !left.is_empty() {
            let reads = |j: Inst, i: Inst| {
                plans.get(&j).is_some_and(|p| p.tree.reads.iter().any(|r| Some(r.from.buffer) == buffer(i)))
            };
            let reader = |i: Inst| left.iter().copied().find(|&j| j != i && reads(j, i));
            match left.iter().position(|&i| reader(i).is_none()) {
                Some(free) => out.push(left.remove(free)),
                // Tiles that exchange places: one stays whole.
                None => _ = reader(left[0]).and_then(|j| plans.remove(&j)),
            }
        }
    }
    k.blocks[block].insts = out;
}

/// Computes the trees of a block by ranges, and removes the old operations.
fn split(k: &mut Kernel, block: Block, plans: &BTreeMap<Inst, Plan>, notes: &mut Notes) {
    let mut reductions = BTreeMap::new();
    let mut out = Vec::new();
    for inst in std::mem::take(&mut k.blocks[block].insts) {
        let Some(plan) = plans.get(&inst) else {
            out.push(inst);
            continue;
        };
        let Plan { len, cols, .. } = *plan;
        if let Some(buffer) = plan.zeroed {
            out.push(k.new_inst(Op::ZeroShared(buffer), vec![], k.locs[inst]));
        }
        let mut before = None;
        for first in (0..cols).step_by(len as usize) {
            before = Ranges::new(k, plan, first, len, &mut out).root(inst, before);
        }
        reductions.extend(k.results[inst].first().copied().zip(before));
        notes.push(subject(k, inst), k.locs[inst], || {
            let ranges = format!("by {} ranges of {len} columns", cols / len);
            let Plan { widest, budget, .. } = plan;
            (ranges, format!("its widest tile takes {widest} registers of a thread, wanted at most {budget}"))
        });
    }
    k.blocks[block].insts = out;
    for op in k.insts.values_mut() {
        op.replace_operands(|v| reductions.get(&v).copied().unwrap_or(v));
    }
    let made: BTreeSet<Inst> = plans.values().flat_map(|p| p.tree.all()).collect();
    for block in [block].into_iter().chain(k.blocks.keys().filter(|&b| b != block).collect::<Vec<_>>()) {
        remove_unread(k, block, |_, inst| made.contains(&inst));
    }
}

/// The name of a root in notes.
fn subject(k: &Kernel, root: Inst) -> String {
    if let Op::StoreGlobal { param, .. } = &k.insts[root] {
        format!("store {}", k.params[*param].name)
    } else if let Op::StoreShared { to, .. } = &k.insts[root] {
        format!("tile {}", k.buffers[to.buffer].name)
    } else {
        "reduction".to_owned()
    }
}
