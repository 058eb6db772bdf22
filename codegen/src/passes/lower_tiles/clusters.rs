//! Sums over the CTAs of a cluster, and what one CTA does for all.

use super::Lower;
use crate::analysis::is_of_one_cta;
use crate::error::CompileError;
use crate::gpu::{self, BufferData, Op as GpuOp, Owner, SUM_VECTOR_BYTES, Type};
use crate::layout::{Fragment, SharedLayout, Swizzle};
use atlas_dsl::op::{Predicate, Update};
use atlas_dsl::{DType, Inst, Op};

impl Lower<'_> {
    /// The sum of what the programs of a cluster have.
    pub(super) fn lower_cluster_sum(&mut self, inst: Inst) -> Result<(), CompileError> {
        let Op::ClusterSum(value) = self.tile.insts[inst] else { return Err(CompileError::bug("not a sum")) };
        let v = self.tile.results[inst][0];
        let dtype = self.tile.ty(v).dtype;
        let layout = self.layout_of(v)?;
        let own = self.fragment(value, &layout)?;
        let sum = match self.k.cluster {
            (1, 1) => own,
            _ => {
                let buffer = self.exchange_buffer(dtype, &layout);
                self.push_tile(GpuOp::SumCluster(own, buffer), dtype, &layout)
            }
        };
        self.fragments.insert(v, sum);
        if *self.placement.home(v) == crate::analysis::Home::Stored {
            self.store_resident(v)?;
        }
        Ok(())
    }

    /// A buffer with room for a fragment: a row for each vector of a thread, in which the threads' vectors stand one after the other.
    fn exchange_buffer(&mut self, dtype: DType, layout: &Fragment) -> gpu::Buffer {
        let in_vector = SUM_VECTOR_BYTES / dtype.bytes();
        let cols = self.k.threads * in_vector;
        let rows = layout.reg_count().div_ceil(in_vector);
        let pitch = cols * dtype.bytes();
        let layout = SharedLayout { rows, cols, panel: cols, pitch, swizzle: Swizzle::NONE };
        let name = format!("sums{}", self.k.buffers.len());
        self.k.buffers.push(BufferData { name, dtype, stages: 1, layout, owner: Owner::Cta, offset: None })
    }

    /// True for a store that all programs of a cluster make alike: the first of them makes it.
    pub(super) fn is_store_of_cluster(&self, inst: Inst) -> bool {
        let Op::Store { slices, update: Update::Replace, .. } = &self.tile.insts[inst] else { return false };
        self.k.cluster != (1, 1) && is_of_one_cta(self.tile, slices)
    }

    /// Puts an effect into a branch of the first CTA of a cluster.
    pub(super) fn push_effect_of_first(&mut self, op: GpuOp) -> Result<(), CompileError> {
        let Some(axis) = self.tile.grid.last() else { return Err(CompileError::bug("a cluster without an axis")) };
        let scalar = self.scalar_layout();
        let coord = self.fragment(axis.coord, &scalar)?;
        let zero = self.push_tile(GpuOp::Const(0.0), DType::I32, &scalar);
        let is_first = self.push_tile(GpuOp::Compare(Predicate::Eq, coord, zero), DType::Bool, &scalar);
        let body = self.k.blocks.push(gpu::BlockData::default());
        self.push(GpuOp::If(is_first, body, Vec::new()), Vec::<Type>::new());
        let around = std::mem::replace(&mut self.at, body);
        self.push_effect(op);
        self.at = around;
        Ok(())
    }
}
