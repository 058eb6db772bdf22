//! Loops: rings for the loads that run ahead, buffers for tiles carried in shared memory.

use super::{Lower, Resident};
use crate::analysis::{Home, is_place_known};
use crate::error::CompileError;
use crate::gpu::{self, BlockData, Op as GpuOp, Type};
use atlas_dsl::op::{BinaryOp, LoopKind};
use atlas_dsl::{Block, DType, Inst, Op};

impl Lower<'_> {
    pub(super) fn lower_loop(&mut self, inst: Inst) -> Result<(), CompileError> {
        let Op::Loop { kind, lo, hi, ref inits, body } = self.tile.insts[inst] else {
            return Err(CompileError::bug("not a loop"));
        };
        let inits = inits.clone();
        let scalar = self.scalar_layout();
        let params = self.tile.blocks[body].params.clone();
        let results = self.tile.results[inst].clone();
        let lo = self.fragment(lo, &scalar)?;
        let hi = self.fragment(hi, &scalar)?;

        // Tiles carried in shared memory: the first iteration's is stored before the loop.
        let mut carried_fragments = Vec::new();
        for (k, &init) in inits.iter().enumerate() {
            let param = params[k + 1];
            if *self.placement.home(param) == Home::Carried {
                let buffer = match self.dying_buffer((init, param), inst)? {
                    Some(buffer) => {
                        self.residents[param] = Some(Resident { buffer, token: None });
                        buffer
                    }
                    None => self.resident_buffer(param, init)?,
                };
                self.residents[results[k]] = Some(Resident { buffer, token: None });
                let first = self.held_in(init, param)?;
                self.store_shared(first, buffer);
            } else {
                let layout = self.layout_of(results[k])?;
                carried_fragments.push((k, self.fragment(init, &layout)?, layout));
            }
        }

        // Loads that go through shared memory share a ring. It is filled before anything that an iteration computes: what reads
        // where an iteration says is filled where it stands.
        let mut loads = self.staged_loads(body);
        let carried = !self.runs_ahead(inst);
        loads.retain(|&load| is_place_known(self.tile, &self.uses, load, body, carried));
        let outer = self.fragments.clone();
        // One ring for the loads of each path, for their waits differ.
        let (by_engine, by_threads): (Vec<Inst>, Vec<Inst>) = loads.into_iter().partition(|&l| self.paths.by_engine(l));
        let mut rings = Vec::new();
        for loads in [by_threads, by_engine].into_iter().filter(|loads| !loads.is_empty()) {
            rings.push((self.new_ring(&loads)?, loads));
        }

        let outside = self.at;
        let inside = self.k.blocks.push(BlockData::default());
        let int = self.k.scalar_type(DType::I32);
        let index = self.k.push_block_param(inside, int);
        self.at = inside;
        self.fragments.insert(params[0], index);
        for (k, init, layout) in &carried_fragments {
            let dtype = self.k.tile(*init).0;
            let p = self.k.push_block_param(inside, Type::fragment(dtype, layout.clone()));
            self.fragments.insert(params[k + 1], p);
        }
        let mut tokens = Vec::new();
        for (ring, loads) in rings {
            let n = self.int_op(BinaryOp::Sub, index, lo);
            tokens.push(self.fill(&loads, ring, n)?);
        }
        let outer_reads = std::mem::take(&mut self.read_here);
        self.block(body)?;

        let Some(&last) = self.tile.blocks[body].insts.last() else {
            return Err(CompileError::bug("a loop without a body"));
        };
        let Op::Yield(yields) = self.tile.insts[last].clone() else {
            return Err(CompileError::bug("a loop without a yield"));
        };
        self.loc = self.tile.locs[last];
        // Registers first: every read of a carried buffer comes before it is overwritten.
        let mut next = Vec::new();
        for (k, _, layout) in &carried_fragments {
            next.push(self.fragment(yields[*k], layout)?);
        }
        self.store_carried(&yields, &params[1..])?;
        // The next iteration fills them again.
        for read in tokens.into_iter().chain(std::mem::replace(&mut self.read_here, outer_reads)) {
            self.push_effect(GpuOp::Release(read));
        }
        self.push_effect(GpuOp::Yield(next));

        self.at = outside;
        self.loc = self.tile.locs[inst];
        self.fragments = outer;
        let values: Vec<gpu::Value> = carried_fragments.iter().map(|c| c.1).collect();
        let types = values.iter().map(|&v| self.k.values[v].ty.clone()).collect();
        let out = self.push(GpuOp::Loop { kind, lo, hi, inits: values, body: inside }, types);
        for ((k, _, _), v) in carried_fragments.iter().zip(out) {
            self.fragments.insert(results[*k], v);
        }
        Ok(())
    }

    /// The loads of a block that are kept in shared memory.
    pub(super) fn staged_loads(&self, body: Block) -> Vec<Inst> {
        let staged = |&i: &Inst| {
            matches!(self.tile.insts[i], Op::Load { .. })
                && matches!(self.placement.home(self.tile.results[i][0]), Home::Copied(_))
                && !self.uses.get(self.tile.results[i][0]).is_empty()
        };
        self.tile.blocks[body].insts.iter().copied().filter(staged).collect()
    }

    /// True if the rings of a loop will have several stages.
    pub(super) fn runs_ahead(&self, inst: Inst) -> bool {
        matches!(self.tile.insts[inst], Op::Loop { kind: LoopKind::Pipeline, .. }) && self.schedule.stages > 1
    }
}
