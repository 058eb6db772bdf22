//! The sum over the CTAs of a cluster, through their shared memory.

use super::engine::CLUSTER;
use super::{Emitter, R, Regs};
use crate::error::CompileError;
use crate::gpu::{Buffer, Inst, SUM_VECTOR_BYTES, Value};
use inkwell::types::{BasicTypeEnum, VectorType};
use inkwell::values::{BasicValue, BasicValueEnum, IntValue, PointerValue, VectorValue};
use inkwell::{AddressSpace, IntPredicate};

impl<'c> Emitter<'c, '_> {
    /// Adds a fragment over the CTAs of the cluster, in the order of their ranks.
    ///
    /// Threads of one number hold the same elements in every CTA, so each thread passes vectors of registers to the threads of its
    /// number, and layouts do not matter. A vector is added up by the CTA whose rank is its row modulo the CTAs, which leaves the sum
    /// where the vector was, in every CTA. Nobody else touches that place between the two barriers of the cluster.
    ///
    /// Each barrier orders what all threads of the cluster wrote before it against what they read behind it. All CTAs are there while
    /// one accesses another's memory, because that happens between two barriers that they all pass.
    pub(super) fn sum_cluster(&mut self, inst: Inst, value: Value, buffer: Buffer) -> R<()> {
        let own = self.regs(value)?.clone();
        let (dtype, _) = self.k.tile(value);
        let in_vector = SUM_VECTOR_BYTES / dtype.bytes();
        let offset = self.k.buffers[buffer].offset.ok_or_else(|| CompileError::bug("a buffer without an offset"))?;
        let first = self.own_vectors(offset)?;
        let Some(element) = own.first().map(|r| r.get_type()) else { return Ok(()) };
        let vector = match element {
            BasicTypeEnum::FloatType(ty) => ty.vec_type(in_vector),
            _ => return Err(CompileError::bug("a sum over a cluster of other than floats")),
        };
        let rows = (own.len() as u32).div_ceil(in_vector);
        for (row, some) in (0..rows).zip(own.chunks(in_vector as usize)) {
            let mut whole = vector.const_zero();
            for (i, &x) in (0..).zip(some) {
                whole = self.b.build_insert_element(whole, x, self.i32(i), "")?;
            }
            let at = self.row_of(first, self.i32(i64::from(row)))?;
            self.store_vector(at, whole)?;
        }
        self.cluster_barrier()?;
        self.add_up(first, rows, vector)?;
        self.cluster_barrier()?;
        let mut sums: Regs<'c> = Vec::new();
        for row in 0..rows {
            let at = self.row_of(first, self.i32(i64::from(row)))?;
            let whole = self.load_vector(at, vector)?;
            for i in 0..i64::from(in_vector) {
                sums.push(self.b.build_extract_element(whole, self.i32(i), "")?);
            }
        }
        sums.truncate(own.len());
        self.values[self.k.results[inst][0]] = Some(sums);
        Ok(())
    }

    /// Adds the rows of this CTA's share, and leaves the sums in all CTAs.
    fn add_up(&mut self, first: IntValue<'c>, rows: u32, vector: VectorType<'c>) -> R<()> {
        let ctas = self.k.cluster.0 * self.k.cluster.1;
        let rank = self.call("llvm.nvvm.read.ptx.sreg.cluster.ctarank", self.i32_type().into(), &[])?.into_int_value();
        let whole = rows / ctas;
        // Loads of all rows come before the stores, which the assembler would not let them pass.
        let mut sums = Vec::new();
        for turn in 0..whole {
            sums.push(self.sum_of_row(first, self.row_of_rank(turn, rank)?, vector)?);
        }
        for (places, sum) in sums {
            places.into_iter().try_for_each(|at| self.store_vector(at, sum))?;
        }
        if rows.is_multiple_of(ctas) {
            return Ok(());
        }
        let row = self.row_of_rank(whole, rank)?;
        let is_there = self.b.build_int_compare(IntPredicate::ULT, row, self.i32(i64::from(rows)), "")?;
        self.only_where(is_there, |e| {
            let (places, sum) = e.sum_of_row(first, row, vector)?;
            places.into_iter().try_for_each(|at| e.store_vector(at, sum))
        })
    }

    /// The row that a rank adds up in a turn.
    fn row_of_rank(&self, turn: u32, rank: IntValue<'c>) -> R<IntValue<'c>> {
        let ctas = self.k.cluster.0 * self.k.cluster.1;
        Ok(self.b.build_int_add(rank, self.i32(i64::from(turn * ctas)), "")?)
    }

    /// The places of a row's vectors in all CTAs, and their sum.
    fn sum_of_row(
        &mut self,
        first: IntValue<'c>,
        row: IntValue<'c>,
        vector: VectorType<'c>,
    ) -> R<(Vec<PointerValue<'c>>, VectorValue<'c>)> {
        let own = self.row_of(first, row)?;
        let remote = self.cx.ptr_type(AddressSpace::from(CLUSTER));
        let (mut places, mut sum) = (Vec::new(), None);
        for rank in 0..self.k.cluster.0 * self.k.cluster.1 {
            let args = [own.into(), self.i32(i64::from(rank)).into()];
            let at = self.call("llvm.nvvm.mapa.shared.cluster", remote.into(), &args)?.into_pointer_value();
            let part = self.load_vector(at, vector)?;
            sum = Some(match sum {
                None => part,
                Some(sum) => self.b.build_float_add(sum, part, "")?,
            });
            places.push(at);
        }
        Ok((places, sum.ok_or_else(|| CompileError::bug("a cluster without CTAs"))?))
    }

    /// The offset of this thread's first vector in its CTA's shared memory.
    fn own_vectors(&self, offset: u32) -> R<IntValue<'c>> {
        let own = self.b.build_int_mul(self.coords.tid, self.i32(i64::from(SUM_VECTOR_BYTES)), "")?;
        Ok(self.b.build_int_add(own, self.i32(i64::from(offset)), "")?)
    }

    /// The address of this thread's vector in a row.
    fn row_of(&mut self, first: IntValue<'c>, row: IntValue<'c>) -> R<PointerValue<'c>> {
        let before = self.b.build_int_mul(row, self.i32(i64::from(SUM_VECTOR_BYTES * self.k.threads)), "")?;
        let at = self.b.build_int_add(first, before, "")?;
        self.shared_address(at)
    }

    fn store_vector(&self, at: PointerValue<'c>, vector: VectorValue<'c>) -> R<()> {
        let store = self.b.build_store(at, vector)?;
        store.set_alignment(SUM_VECTOR_BYTES).map_err(|e| CompileError::bug(e.to_string()))
    }

    fn load_vector(&self, at: PointerValue<'c>, vector: VectorType<'c>) -> R<VectorValue<'c>> {
        let load: BasicValueEnum<'c> = self.b.build_load(vector, at, "")?;
        if let Some(load) = load.as_instruction_value() {
            load.set_alignment(SUM_VECTOR_BYTES).map_err(|e| CompileError::bug(e.to_string()))?;
        }
        Ok(load.into_vector_value())
    }

    /// All threads of the cluster meet. What they wrote to shared memory before is visible behind it.
    fn cluster_barrier(&self) -> R<()> {
        self.call_void("llvm.nvvm.barrier.cluster.arrive.aligned", &[])?;
        self.call_void("llvm.nvvm.barrier.cluster.wait.aligned", &[])
    }
}
