//! Tiles that a loop carries in shared memory: the buffer of each, and when it is replaced.
//!
//! # Promise
//! At the head of each iteration, and after the last, the buffer of a carried tile holds the tile of Tile IR: first the initial
//! tile, then the tile that the body yielded, computed from the tiles of the same iteration.
//!
//! # Argument
//! *Replacing.* All tiles of a loop are assigned together. The yielded tiles are completely computed in registers first, so
//! that all reads are done. Then all of them are stored. Only the release of the ring follows in the body.
//!
//! *Starting.* The initial tiles are stored before the loop, one after the other. An initial tile may take over the buffer of a
//! loaded tile ([`Lower::dying_buffer`]) if nothing reads the loaded tile afterwards. That requires three things. It is loaded
//! in this block, so that no iteration of an outer loop finds it overwritten. Everything computed from it serves this one
//! initial tile, or ends in reductions before the loop that are computed in place. And every value computed from it has no
//! other use, not even as the start of another carried tile, because such a value may be computed again at a store after the
//! loop. The buffer fits the loop: one stage, the same type, and the same padding, which the copy has filled with 0.
//!
//! *Padding.* Stored values are 0 where the buffer's tile is not real. Padding is 0 from the start: it is zeroed, unless the
//! layout of every store reaches it.
//!
//! # Breaks it
//! - Tiles that are computed from one another or swapped, and tiles of two widths:
//!   tests/agreement/wrong_code.rs::carried_tiles_are_replaced_together.
//! - A transpose of a tile that is also in registers:
//!   tests/agreement/arguments.rs::a_transpose_is_read_before_its_tile_is_replaced.
//! - A start that is used again: tests/agreement/wrong_code.rs::a_buffer_is_taken_over_only_from_a_tile_that_is_dead; by a
//!   loop around: tests/agreement/exchanges.rs::a_tile_from_outside_a_loop_outlives_its_iterates; by another carried tile:
//!   tests/agreement/arguments.rs::what_another_carried_tile_starts_with_is_not_overwritten.
//! - Padding past the edge, or of a start with another edge: tests/agreement/exchanges.rs::
//!   what_lies_in_shared_memory_is_zero_past_the_edge and a_loop_begins_with_the_edge_that_it_carries.

use super::{Lower, Resident};
use crate::analysis::{Home, Use};
use crate::error::CompileError;
use crate::gpu;
use crate::mutation::{Mutation, is_planted};
use atlas_dsl::{Inst, Op, Value};
use std::collections::BTreeSet;

impl Lower<'_> {
    /// Stores the tiles that an iteration yields to the buffers of the tiles that they replace.
    pub(super) fn store_carried(&mut self, yields: &[Value], params: &[Value]) -> Result<(), CompileError> {
        let mut updates = Vec::new();
        for (&next, &param) in yields.iter().zip(params) {
            if *self.placement.home(param) == Home::Carried
                && next != param
                && let Some(Resident { buffer, .. }) = self.residents[param]
            {
                let value = self.held_in(next, param)?;
                if is_planted(Mutation::CarriedInTurn) {
                    self.store_shared(value, buffer);
                } else {
                    updates.push((value, buffer));
                }
            }
        }
        for (value, buffer) in updates {
            self.store_shared(value, buffer);
        }
        Ok(())
    }

    /// The buffer of a loaded tile from which `init` is computed element by element, if nothing needs the loaded tile
    /// afterwards. Every thread then overwrites only elements that it has read.
    pub(super) fn dying_buffer(
        &mut self,
        (init, param): (Value, Value),
        at: Inst,
    ) -> Result<Option<gpu::Buffer>, CompileError> {
        let block = self.uses.block_of(at);
        let mut open = vec![init];
        let (mut tree, mut seen) = (Vec::new(), BTreeSet::new());
        let mut leaf = None;
        while let Some(v) = open.pop() {
            if !seen.insert(v)
                || self.tile.ty(v).shape != self.tile.ty(init).shape
                || *self.placement.home(v) == Home::Anywhere
            {
                continue;
            }
            match self.tile.def_op(v) {
                Some((_, Op::Load { .. })) if matches!(self.placement.home(v), Home::Copied(_)) => {
                    if leaf.is_some_and(|l| l != v) {
                        return Ok(None);
                    }
                    leaf = Some(v);
                }
                Some((inst, op)) if op.is_elementwise() && self.uses.block_of(inst) == block => {
                    tree.push(inst);
                    op.visit_operands(|o| open.push(o));
                }
                _ => return Ok(None),
            }
        }
        let Some(leaf) = leaf else { return Ok(None) };
        // What is made on the way serves this loop alone, once; what else reads the loaded tile is over before, for it
        // ends in reductions, which are made where they stand.
        let before = |u: &Use| Some(u.block) == block && self.feeds_earlier_folds_only(u.inst, at);
        let serves = |u: &Use| tree.contains(&u.inst) || before(u);
        let once = self.uses.get(init).iter().filter(|u| u.inst == at).count() == 1;
        // What the tree is made of may be made again where it is used, also as what another tile starts as.
        let made = tree.iter().flat_map(|&i| &self.tile.results[i]);
        let own = made.into_iter().all(|&r| self.uses.get(r).iter().all(|u| serves(u) || (r == init && u.inst == at)));
        // A tile from outside the block is there again for the next iteration of a loop around it.
        let here = self.tile.def_op(leaf).is_some_and(|(i, _)| self.uses.block_of(i) == block);
        let early = here && self.uses.get(leaf).iter().all(|u| tree.contains(&u.inst) || before(u));
        let used_again = (!once || !own) && !is_planted(Mutation::InitTaken);
        if used_again || !early || self.tile.ty(leaf).dtype != self.tile.ty(init).dtype {
            return Ok(None);
        }
        let Some(Resident { buffer, .. }) = self.residents[leaf] else { return Ok(None) };
        // A pipelined loop has several stages of it.
        let around = block.and_then(|b| self.uses.loop_of(b));
        if around.is_some_and(|l| self.runs_ahead(l)) {
            return Ok(None);
        }
        let wanted = self.placement.buffer_layout(self.tile, param);
        Ok((self.k.buffers[buffer].layout == wanted).then_some(buffer))
    }

    /// True if everything that an instruction computes ends in reductions that come before `at` in its block.
    fn feeds_earlier_folds_only(&self, inst: Inst, at: Inst) -> bool {
        let Some(block) = self.uses.block_of(at) else { return false };
        let place = |i: Inst| self.tile.blocks[block].insts.iter().position(|&x| x == i);
        let (mut open, mut seen) = (vec![inst], BTreeSet::new());
        while let Some(inst) = open.pop() {
            if !seen.insert(inst) {
                continue;
            }
            match &self.tile.insts[inst] {
                _ if self.uses.block_of(inst) != Some(block) => return false,
                Op::Reduce { .. } if place(inst) < place(at) => {}
                op if op.is_elementwise() => {
                    let results = &self.tile.results[inst];
                    open.extend(results.iter().flat_map(|&r| self.uses.get(r)).map(|u| u.inst));
                }
                _ => return false,
            }
        }
        true
    }
}
