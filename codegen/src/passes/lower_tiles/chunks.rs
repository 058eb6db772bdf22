//! Column ranges: which roots are evaluated piece by piece, so that their trees fit in registers.

use super::{Columns, Lower};
use crate::analysis::{Home, registers_per_thread};
use crate::error::CompileError;
use crate::mutation::{Mutation, is_planted};
use atlas_dsl::{Block, Inst, Op, Schedule, Value};

/// The same where each range reads the left operand of a product from shared memory again.
const RANGE_OF_PRODUCT: u32 = 128;

/// 32-bit registers of one thread that a tree's widest fragment may take: at most 64, and half of what the schedule
/// leaves a thread.
fn register_budget(schedule: &Schedule) -> u32 {
    (registers_per_thread(schedule.warps * 32, schedule.occupancy) / 2).min(64)
}

impl Lower<'_> {
    /// Chooses the column ranges of every root of a block and marks the trees below them.
    pub(super) fn choose_ranges(&mut self, block: Block) -> Result<(), CompileError> {
        let budget = register_budget(&self.schedule);
        let insts = self.tile.blocks[block].insts.clone();
        for &inst in insts.iter().rev() {
            for root in self.root_values(inst) {
                let mut tree = Vec::new();
                self.collect(root, block, &mut tree);
                if self.is_free_of_layout(inst, &tree) {
                    for &v in &tree {
                        self.lazy[v] = true;
                    }
                    self.any_layout[inst] = true;
                }
                let widest = tree.iter().map(|&v| self.registers(v)).max().unwrap_or(0);
                let budget = if self.reads_left_again(&tree) { budget.max(RANGE_OF_PRODUCT) } else { budget };
                if widest <= budget {
                    continue;
                }
                // Partial folds of column ranges meet in one column.
                let last = self.tile.ty(root).rank().saturating_sub(1) as u8;
                if matches!(&self.tile.insts[inst], Op::Reduce { axes, .. } if !axes.contains(&last)) {
                    continue;
                }
                let Some(&cols) = self.tile.ty(root).shape.last() else { continue };
                let mut pieces = widest.div_ceil(budget).next_power_of_two();
                while pieces < cols && !cols.is_multiple_of(pieces * 16) {
                    pieces *= 2;
                }
                if !self.leaves_have_columns(&tree) {
                    continue;
                }
                if !cols.is_multiple_of(pieces * 16)
                    || tree.iter().any(|&v| self.tile.ty(v).shape.last() != Some(&cols))
                {
                    continue;
                }
                let len = cols / pieces;
                let ranges = (0..pieces).map(|i| Some((i * len, len))).collect();
                self.ranges.insert((inst, root), ranges);
                for v in tree {
                    self.lazy[v] = true;
                }
            }
        }
        Ok(())
    }

    /// True if each column range of a tree reads the left operand of a product from shared memory.
    fn reads_left_again(&self, tree: &[Value]) -> bool {
        tree.iter().any(|&v| match self.tile.def_op(v) {
            Some((_, Op::Dot { a, .. })) => *self.placement.home(*a) != Home::Registers,
            _ => false,
        })
    }

    /// The values that an instruction takes as roots.
    fn root_values(&self, inst: Inst) -> Vec<Value> {
        match &self.tile.insts[inst] {
            Op::Store { value, .. } | Op::Reduce { value, .. } => vec![*value],
            Op::Loop { inits, body, .. } => {
                let params = &self.tile.blocks[*body].params[1..];
                inits
                    .iter()
                    .zip(params)
                    .filter(|(_, p)| *self.placement.home(**p) == Home::Carried)
                    .map(|(v, _)| *v)
                    .collect()
            }
            Op::Yield(values) => {
                // The carried homes are those of the loop whose body this yield ends.
                values.iter().copied().filter(|&v| self.yields_to_shared(inst, v)).collect()
            }
            _ => {
                let result = self.tile.results[inst].first().copied();
                let only_shared = |v: Value| {
                    *self.placement.home(v) == Home::Stored
                        && self
                            .uses
                            .get(v)
                            .iter()
                            .all(|u| matches!(self.tile.insts[u.inst], Op::Dot { .. } | Op::Transpose(_)))
                };
                result.into_iter().filter(|&v| only_shared(v) && !self.lazy[v]).collect()
            }
        }
    }

    fn yields_to_shared(&self, inst: Inst, v: Value) -> bool {
        let Op::Yield(values) = &self.tile.insts[inst] else { return false };
        let Some(owner) = self.uses.block_of(inst).and_then(|b| self.uses.loop_of(b)) else { return false };
        let results = &self.tile.results[owner];
        values.iter().position(|&y| y == v).is_some_and(|k| *self.placement.home(results[k]) == Home::Carried)
    }

    /// Collects the values below a root that nothing else uses.
    fn collect(&self, v: Value, block: Block, tree: &mut Vec<Value>) {
        let Some((inst, op)) = self.tile.def_op(v) else { return };
        if self.uses.block_of(inst) != Some(block)
            || (self.uses.get(v).len() > 1 && !self.is_cheap(v, block))
            || !matches!(self.placement.home(v), Home::Registers | Home::Stored)
            || self.lazy[v]
        {
            return;
        }
        let inner: Vec<Value> = match op {
            Op::Unary(_, a) | Op::Cast(_, a) => vec![*a],
            Op::Binary(_, a, b) | Op::Compare(_, a, b) => vec![*a, *b],
            Op::Select { cond, on_true, on_false } => vec![*cond, *on_true, *on_false],
            Op::Dot { acc, .. } => acc.iter().copied().collect(),
            Op::Broadcast { .. } => vec![],
            _ => return,
        };
        tree.push(v);
        for a in inner {
            self.collect(a, block, tree);
        }
    }

    /// True if a store's tree is element-wise over tiles in shared memory: it is then made in whatever
    /// layout suits global memory.
    fn is_free_of_layout(&self, inst: Inst, tree: &[Value]) -> bool {
        matches!(self.tile.insts[inst], Op::Store { .. })
            && !tree.is_empty()
            && tree.iter().all(|&v| {
                !matches!(self.tile.def_op(v), Some((_, Op::Dot { .. }))) && *self.placement.home(v) == Home::Registers
            })
            && self.leaves_have_columns(tree)
    }

    /// True if columns of everything that a tree reads can be had: tiles in shared memory, tiles that cost
    /// nothing, and tiles whose last axis has one element.
    fn leaves_have_columns(&self, tree: &[Value]) -> bool {
        let ready = |v: Value| {
            tree.contains(&v)
                || self.lazy[v]
                || self.tile.ty(v).shape.last().is_none_or(|&e| e == 1)
                || matches!(self.placement.home(v), Home::Anywhere | Home::Copied(_) | Home::Carried)
        };
        tree.iter().all(|&v| match self.tile.def_op(v) {
            Some((_, Op::Dot { acc, .. })) => acc.is_none_or(ready),
            Some((_, op)) => {
                let mut all = true;
                op.visit_operands(|o| all &= ready(o));
                all
            }
            None => false,
        })
    }

    /// True if a value is made again at little cost: a few element-wise operations on tiles that lie in
    /// shared memory. Such a value may have several users, each making the columns that it needs.
    fn is_cheap(&self, v: Value, block: Block) -> bool {
        match self.placement.home(v) {
            Home::Anywhere | Home::Copied(_) | Home::Carried => return true,
            Home::Stored => return false,
            Home::Registers => {}
        }
        if !self.uses.get(v).iter().all(|u| u.block == block) {
            return false;
        }
        match self.tile.def_op(v) {
            Some((_, Op::Cast(_, a) | Op::Unary(atlas_dsl::op::UnaryOp::Neg | atlas_dsl::op::UnaryOp::Abs, a))) => {
                self.is_cheap(*a, block)
            }
            _ => false,
        }
    }

    fn registers(&self, v: Value) -> u32 {
        let bytes = self.tile.ty(v).dtype.bytes();
        self.placement.layout(v).map_or(0, |l| (l.reg_count() * bytes).div_ceil(4))
    }

    /// The column ranges in which an instruction evaluates one of its roots.
    pub(super) fn ranges_of(&self, inst: Inst, root: Value) -> Vec<Columns> {
        if is_planted(Mutation::CarriedByOneWidth) {
            let last = self.ranges.iter().rfind(|((i, _), _)| *i == inst).map(|(_, ranges)| ranges.clone());
            return last.unwrap_or_else(|| vec![None]);
        }
        self.ranges.get(&(inst, root)).cloned().unwrap_or_else(|| vec![None])
    }
}
