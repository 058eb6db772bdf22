//! How the warps of each product divide its tile: by rows, or by rows and columns.
//!
//! # Promise
//! Each class of values with a product's layout has a split: that of the config, or the best one if the config leaves it open.
//! The split changes no result, only which warp computes what.
//!
//! # Argument
//! Warps that have whole rows reduce them alone, and pass a computed left operand to the next product in registers. Warps that
//! split both axes read fewer operands. Products that pass registers on are decided together, by the reads of a warp from
//! shared memory: operand blocks per step, the stores of tiles that are no longer passed on, and the cost of barriers.
//! Operations in a loop count [`TRIPS`] times.
//!
//! # Breaks it
//! No result depends on it; tests/agreement runs products with both splits. The gain is measured.

use super::super::Uses;
use super::super::sources::root;
use crate::gpu::atom::MmaAtom;
use crate::gpu::{Split, WarpGrid};
use atlas_dsl::{Block, Inst, Kernel, Op, Schedule, Value};
use cranelift_entity::{EntityRef, SecondaryMap};
use std::collections::{BTreeMap, BTreeSet};

/// The cost of exchanging a tile between warps (store, barrier, load), in reads of operand blocks. One read takes about four
/// clocks of a multiprocessor.
const MEETING: u64 = 64;
/// The assumed number of runs of a loop's body.
const TRIPS: u64 = 8;
/// 32-bit registers of an accumulator above which it is computed by ranges of columns.
const RANGE: u32 = 64;

/// A product and its relation to others.
struct Product {
    inst: Inst,
    atom: MmaAtom,
    shape: (u32, u32, u32),
    class: usize,
    /// Class of the left operand, if a product computes it.
    left: Option<usize>,
    /// True if the left operand is in shared memory in any case.
    stored: bool,
    /// True if a loop carries the result in registers, so that it is computed as a whole.
    whole: bool,
    weight: u64,
}

/// The split of every class of values; `classes` numbers the class of each value.
pub(super) fn splits(
    kernel: &Kernel,
    uses: &Uses,
    classes: &[usize],
    atoms: &SecondaryMap<Inst, Option<MmaAtom>>,
    schedule: &Schedule,
) -> BTreeMap<usize, Split> {
    let (products, warps) = (products(kernel, uses, classes, atoms), schedule.warps);
    if let Some(grid) = schedule.warp_grid {
        return products.iter().map(|p| (p.class, Split::Given(grid))).collect();
    }
    let mut groups: BTreeMap<usize, usize> = products.iter().map(|p| (p.class, p.class)).collect();
    for p in &products {
        if let Some(left) = p.left {
            let (from, to) = (groups[&left], groups[&p.class]);
            groups.values_mut().filter(|g| **g == from).for_each(|g| *g = to);
        }
    }
    let cost = |group: usize, split: Split| -> u64 {
        let grid = |class: usize| products.iter().find(|p| p.class == class).map(|p| p.grid(warps, split));
        let of_group = products.iter().filter(|p| groups[&p.class] == group);
        let reads: u64 = of_group.map(|p| p.reads(p.left.and_then(grid), warps, split)).sum();
        let reductions = kernel.insts.iter().filter_map(|(inst, op)| match op {
            Op::Reduce { value, axes, .. } if axes.contains(&1) => {
                let class = classes[value.index()];
                let split_columns = groups.get(&class) == Some(&group) && grid(class).is_some_and(|g| g.cols > 1);
                split_columns.then(|| MEETING * weight(uses, inst))
            }
            _ => None,
        });
        reads + reductions.sum::<u64>()
    };
    let mut chosen = BTreeMap::new();
    for (&class, &group) in &groups {
        let both = cost(group, Split::Both) < cost(group, Split::Rows);
        chosen.insert(class, if both { Split::Both } else { Split::Rows });
    }
    chosen
}

fn products(
    kernel: &Kernel,
    uses: &Uses,
    classes: &[usize],
    atoms: &SecondaryMap<Inst, Option<MmaAtom>>,
) -> Vec<Product> {
    let of_product = |class: usize| {
        kernel.insts.keys().any(|i| atoms[i].is_some() && classes[kernel.results[i][0].index()] == class)
    };
    let carried: BTreeSet<usize> =
        kernel.blocks.values().flat_map(|b| b.params.iter().map(|p| classes[p.index()])).collect();
    let mut out = Vec::new();
    for (inst, op) in kernel.insts.iter() {
        let (&Op::Dot { a, .. }, Some(atom)) = (op, atoms[inst]) else { continue };
        let result = kernel.results[inst][0];
        let (left, made) = (&kernel.ty(a).shape, &kernel.ty(result).shape);
        let computed = matches!(kernel.def_op(a), Some((_, op)) if !matches!(op, Op::Load { .. } | Op::Transpose(_) | Op::Loop { .. }));
        let class = classes[a.index()];
        let handed = computed && atom.is_tensor_core() && atom.row().operand.is_half() && of_product(class);
        out.push(Product {
            inst,
            atom,
            shape: (made[0], made[1], left[1]),
            class: classes[result.index()],
            left: handed.then_some(class),
            stored: is_read_elsewhere(kernel, a, inst),
            whole: carried.contains(&classes[result.index()]),
            weight: weight(uses, inst),
        });
    }
    out.sort_by_key(|p| p.inst);
    out
}

/// True if another operation than this product's left side reads a tile in shared memory.
fn is_read_elsewhere(kernel: &Kernel, v: Value, dot: Inst) -> bool {
    kernel.insts.iter().any(|(inst, op)| match *op {
        Op::Dot { a, b, .. } => root(kernel, b).0 == v || (inst != dot && root(kernel, a) == (v, true)),
        _ => false,
    })
}

/// The assumed number of runs of an instruction.
fn weight(uses: &Uses, inst: Inst) -> u64 {
    let mut weight = 1;
    let mut block: Option<Block> = uses.block_of(inst);
    while let Some(owner) = block.and_then(|b| uses.loop_of(b)) {
        weight *= TRIPS;
        block = uses.block_of(owner);
    }
    weight
}

impl Product {
    fn grid(&self, warps: u32, split: Split) -> WarpGrid {
        self.atom.warp_grid(self.shape.0, self.shape.1, warps, split)
    }

    /// Reads of operand blocks by a warp, given the grid of the product that makes the left operand.
    fn reads(&self, left: Option<WarpGrid>, warps: u32, split: Split) -> u64 {
        let (m, n, k) = self.shape;
        let grid = self.grid(warps, split);
        let steps = u64::from(k.div_ceil(self.atom.row().shape.2));
        let (rows, cols) = self.atom.warp_blocks(grid, m, n);
        let in_registers = left.is_some_and(|l| l.cols == 1 && l.rows == grid.rows);
        if in_registers {
            return self.weight * steps * u64::from(self.atom.right_reads(rows, cols));
        }
        let ranges = if self.whole { 1 } else { (m * n / (32 * warps)).div_ceil(RANGE).next_power_of_two() };
        let blocks = u64::from(self.atom.operand_reads(ranges * rows, cols));
        let stores = match (left, self.stored) {
            (Some(_), false) => u64::from((m * k).div_ceil(256 * warps)) + MEETING,
            _ => 0,
        };
        self.weight * (steps * blocks + stores)
    }
}
