//! What starts first: loads of inputs, and the first stages of pipelined loops, before anything that waits.

use super::Lower;
use crate::error::CompileError;
use crate::gpu;
use atlas_dsl::ir::ValueDef;
use atlas_dsl::op::LoopKind;
use atlas_dsl::{Block, Inst, Op, Value};

/// 32-bit registers of one thread that loads issued ahead of their use may hold.
const AHEAD_BUDGET: u32 = 64;

impl Lower<'_> {
    /// Starts the loads of a block that need nothing the block computes but scalars.
    pub(super) fn start_loads(&mut self, block: Block) -> Result<(), CompileError> {
        let insts = self.tile.blocks[block].insts.clone();
        let mut held = 0;
        for &inst in &insts {
            if !self.can_start(inst, &[block]) {
                continue;
            }
            let v = self.tile.results[inst][0];
            let ty = self.tile.ty(v);
            let words = match self.placement.home(v) {
                crate::analysis::Home::Registers => {
                    self.placement.layout(v).map_or(0, |l| (l.reg_count() * ty.dtype.bytes()).div_ceil(4))
                }
                _ => 0,
            };
            if held + words <= AHEAD_BUDGET && !self.lazy[v] {
                held += words;
                self.loc = self.tile.locs[inst];
                self.lower_load(inst)?;
            }
        }
        for &inst in &insts {
            let Op::Loop { kind: LoopKind::Pipeline, lo, hi, body, .. } = self.tile.insts[inst] else { continue };
            let loads = self.staged_loads(body);
            let ready = loads.iter().all(|&l| self.can_start(l, &[body, block]))
                && [lo, hi].iter().all(|&v| self.is_scalar_of_outside(v, &[block]));
            if ready && !loads.is_empty() && self.schedule.stages > 1 {
                self.loc = self.tile.locs[inst];
                let scalar = self.scalar_layout();
                let saved = self.fragments.clone();
                let lo = self.fragment(lo, None, &scalar)?;
                let hi = self.fragment(hi, None, &scalar)?;
                let ring = self.start_ring(inst, body, &loads, lo, hi)?;
                self.fragments = saved;
                self.started[inst] = Some(ring);
            }
            // One loop's stages are enough in flight.
            break;
        }
        Ok(())
    }

    /// Makes a pipelined loop's ring and fills all its stages but one.
    pub(super) fn start_ring(
        &mut self,
        inst: Inst,
        body: Block,
        loads: &[Inst],
        lo: gpu::Value,
        hi: gpu::Value,
    ) -> Result<gpu::Ring, CompileError> {
        let pipelined = matches!(self.tile.insts[inst], Op::Loop { kind: LoopKind::Pipeline, .. });
        let stages = if pipelined { self.schedule.stages } else { 1 };
        let ring = self.new_ring(loads, stages)?;
        let index = self.tile.blocks[body].params[0];
        for s in 0..stages - 1 {
            let s = self.int(i64::from(s));
            self.produce_if_below(loads, ring, index, (lo, s), s, hi)?;
        }
        Ok(ring)
    }

    /// True if a load reads an input at coordinates that only scalars of `blocks` or of outside decide.
    fn can_start(&self, inst: Inst, blocks: &[Block]) -> bool {
        let Op::Load { param, .. } = &self.tile.insts[inst] else { return false };
        let mut ready = self.tile.params[*param].kind.is_read_only();
        self.tile.insts[inst].visit_operands(|v| ready &= self.is_scalar_of_outside(v, blocks));
        ready
    }

    /// True if a scalar is a coordinate, the index of a loop, defined outside the blocks, or computed from
    /// such by integer operations.
    fn is_scalar_of_outside(&self, v: Value, blocks: &[Block]) -> bool {
        match self.tile.values[v].def {
            ValueDef::Grid(_) => true,
            // Of what a loop's body is given only the index is known before the iterate.
            ValueDef::BlockParam(of, n) => n == 0 || of != blocks[0],
            ValueDef::Result(inst, _) => {
                if !blocks.iter().any(|&b| self.uses.block_of(inst) == Some(b)) {
                    return true;
                }
                let op = &self.tile.insts[inst];
                let simple = matches!(
                    op,
                    Op::Splat { .. }
                        | Op::DimSize(_)
                        | Op::DimTiles { .. }
                        | Op::ScalarParam(_)
                        | Op::Unary(..)
                        | Op::Binary(..)
                ) && self.tile.ty(v).rank() == 0;
                let mut ready = simple;
                op.visit_operands(|o| ready &= self.is_scalar_of_outside(o, blocks));
                ready
            }
        }
    }
}
