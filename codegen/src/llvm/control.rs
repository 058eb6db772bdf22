//! Loops and branches.

use super::coords::ThreadCoords;
use super::{Emitter, R, Regs};
use crate::error::CompileError;
use crate::gpu::slices::{is_scalar, visit_deep};
use crate::gpu::{Block, Buffer, Inst, Op, Value, ValueDef};
use atlas_dsl::DType;
use inkwell::IntPredicate;
use inkwell::basic_block::BasicBlock;
use inkwell::values::{BasicValueEnum, IntValue};
use std::collections::BTreeSet;

/// The most buffers whose addresses a loop keeps in registers. The loops of products and of attention use at most five. Some
/// loops with more of them spill.
const MANY_BUFFERS: usize = 6;

impl<'c> Emitter<'c, '_> {
    pub(super) fn emit_loop(&mut self, inst: Inst) -> R<()> {
        let Op::Loop { lo, hi, ref inits, body, .. } = self.k.insts[inst] else {
            return Err(CompileError::bug("not a loop"));
        };
        let inits = inits.clone();
        let (lo, hi) = (self.loop_bound(body, lo)?, self.loop_bound(body, hi)?);
        let before = self.current()?;
        let head = self.cx.append_basic_block(self.function, "loop");
        let inside = self.cx.append_basic_block(self.function, "body");
        let after = self.cx.append_basic_block(self.function, "done");
        self.b.build_unconditional_branch(head)?;

        self.b.position_at_end(head);
        let index = self.b.build_phi(self.i32_type(), "i")?;
        index.add_incoming(&[(&lo, before)]);
        let mut phis = Vec::new();
        for &v in &inits {
            let mut regs = Vec::new();
            for r in self.regs(v)?.clone() {
                let phi = self.b.build_phi(r.get_type(), "")?;
                phi.add_incoming(&[(&r, before)]);
                regs.push(phi);
            }
            phis.push(regs);
        }
        let i = index.as_basic_value().into_int_value();
        let more = self.b.build_int_compare(IntPredicate::SLT, i, hi, "")?;
        self.b.build_conditional_branch(more, inside, after)?;

        self.b.position_at_end(inside);
        let params = self.k.blocks[body].params.clone();
        self.values[params[0]] = Some(vec![i.into()]);
        let carried: Vec<Regs<'c>> = phis.iter().map(|p| p.iter().map(|p| p.as_basic_value()).collect()).collect();
        for (p, regs) in params[1..].iter().zip(&carried) {
            self.values[*p] = Some(regs.clone());
        }
        self.loops += 1;
        let next = if self.is_long(body) { self.long_body(body)? } else { self.block(body)? };
        self.loops -= 1;
        let end = self.current()?;
        let step = self.b.build_int_add(i, self.i32(1), "")?;
        self.b.build_unconditional_branch(head)?;
        index.add_incoming(&[(&step, end)]);
        for (phis, regs) in phis.iter().zip(next) {
            for (phi, r) in phis.iter().zip(regs) {
                phi.add_incoming(&[(&r, end)]);
            }
        }

        self.b.position_at_end(after);
        for (&result, regs) in self.k.results[inst].iter().zip(carried) {
            self.values[result] = Some(regs);
        }
        self.number_anew()
    }

    /// A bound of a loop. All threads have the same one.
    fn loop_bound(&mut self, body: Block, bound: Value) -> R<IntValue<'c>> {
        let value = self.int(bound)?;
        match self.is_known_uniform(bound) || !self.has_asynchronous_products(body) {
            true => Ok(value),
            false => self.of_first_lane(value),
        }
    }

    /// The one number that a reduction gives, of which bounds of loops may be made, as [`Emitter::of_first_lane`] says.
    pub(super) fn uniform_where_products_need_it(&mut self, result: Option<Value>, regs: Regs<'c>) -> R<Regs<'c>> {
        let is_number = result.is_some_and(|v| {
            let (dtype, layout) = self.k.tile(v);
            dtype == DType::I32 && layout.shape.iter().all(|&n| n == 1)
        });
        match regs[..] {
            [value] if is_number && self.k.insts.values().any(Op::is_asynchronous) => {
                Ok(vec![self.of_first_lane(value.into_int_value())?.into()])
            }
            _ => Ok(regs),
        }
    }

    /// A number that all threads have, read from the first lane. If it comes from memory, the assembler does not know that it is
    /// the same for all. Then it keeps nothing in uniform registers in a loop to such a number, and moves the descriptors of
    /// `wgmma` there before each one.
    pub(super) fn of_first_lane(&mut self, value: IntValue<'c>) -> R<IntValue<'c>> {
        let args: [BasicValueEnum<'c>; 4] =
            [self.i32(-1).into(), value.into(), self.i32(0).into(), self.i32(31).into()];
        Ok(self.call("llvm.nvvm.shfl.sync.idx.i32", self.i32_type().into(), &args)?.into_int_value())
    }

    fn has_asynchronous_products(&self, block: Block) -> bool {
        let of = |&inst: &Inst| {
            let op = &self.k.insts[inst];
            op.is_asynchronous() || op.body().is_some_and(|body| self.has_asynchronous_products(body))
        };
        self.k.blocks[block].insts.iter().any(of)
    }

    /// True if a scalar is computed from sizes, numbers of the caller, coordinates and reductions alone.
    fn is_known_uniform(&self, scalar: Value) -> bool {
        let (mut open, mut seen) = (vec![scalar], BTreeSet::new());
        while let Some(v) = open.pop() {
            if !seen.insert(v) {
                continue;
            }
            let ValueDef::Result(inst, _) = self.k.values[v].def else { return false };
            let op = &self.k.insts[inst];
            if matches!(
                op,
                Op::LoadGlobal { .. } | Op::LoadShared(_) | Op::SumCluster(..) | Op::Loop { .. } | Op::If(..)
            ) {
                return false;
            }
            if !matches!(op, Op::Reduce { .. } | Op::Scan { .. }) {
                op.visit_operands(|operand| open.push(operand));
            }
        }
        true
    }

    /// A long body. The numbers of threads and programs are computed again in each iteration and after each inner loop.
    /// Otherwise, invariant addresses would be hoisted out of the loop, or kept across an inner loop, and each would take
    /// registers throughout. The same holds for values that are loaded again so that they need not be kept.
    fn long_body(&mut self, body: Block) -> R<Vec<Regs<'c>>> {
        let mut read = BTreeSet::new();
        self.k.blocks[body].insts.iter().for_each(|&i| visit_deep(self.k, i, &mut |v| _ = read.insert(v)));
        let is_number = |v: &Value| {
            let one = self.values[*v].as_deref();
            is_scalar(self.k, *v)
                && matches!(one, Some([BasicValueEnum::IntValue(n)]) if n.get_type() == self.i32_type() && !n.is_const())
        };
        let numbers: Vec<Value> = read.into_iter().filter(is_number).collect();
        let before: Vec<Option<Regs<'c>>> = numbers.iter().map(|&v| self.values[v].clone()).collect();
        let outer_numbers = self.numbers.replace(numbers);
        let (block, tid) = (self.current()?, self.coords.tid);
        let outer_coords = std::mem::replace(&mut self.coords, ThreadCoords::new(block, tid));
        self.number_anew()?;
        let next = self.block(body)?;
        let coords = std::mem::replace(&mut self.coords, outer_coords);
        self.leave(coords)?;
        if let Some(numbers) = std::mem::replace(&mut self.numbers, outer_numbers) {
            numbers.into_iter().zip(before).for_each(|(v, number)| self.values[v] = number);
        }
        Ok(next)
    }

    /// Computes the numbers of this thread and of the values around a long body again, and continues in a new block.
    fn number_anew(&mut self) -> R<()> {
        let Some(numbers) = self.numbers.clone() else { return Ok(()) };
        for v in numbers {
            if let Some([BasicValueEnum::IntValue(number)]) = self.values[v].as_deref() {
                let same = self.opaque(*number)?;
                self.values[v] = Some(vec![same.into()]);
            }
        }
        let tid = self.opaque(self.coords.tid)?;
        let block = self.current()?;
        let coords = std::mem::replace(&mut self.coords, ThreadCoords::new(block, tid));
        let rest = self.cx.append_basic_block(self.function, "rest");
        self.coords.rest = Some(rest);
        self.leave(coords)?;
        self.b.position_at_end(rest);
        Ok(())
    }

    /// Ends the block in which coordinates were computed.
    fn leave(&self, coords: ThreadCoords<'c>) -> R<()> {
        if let Some(rest) = coords.rest {
            let here = self.current()?;
            self.b.position_at_end(coords.block);
            self.b.build_unconditional_branch(rest)?;
            self.b.position_at_end(here);
        }
        Ok(())
    }

    /// True for a body with loops inside, or with many buffers of shared memory.
    fn is_long(&self, body: Block) -> bool {
        let mut buffers = BTreeSet::new();
        let has_loops = self.collect(body, &mut buffers);
        has_loops || buffers.len() > MANY_BUFFERS
    }

    /// Adds the buffers that a block uses; true if it has loops.
    fn collect(&self, block: Block, buffers: &mut BTreeSet<Buffer>) -> bool {
        let mut has_loops = false;
        for &inst in &self.k.blocks[block].insts {
            let op = &self.k.insts[inst];
            let (read, written) = op.buffers();
            buffers.extend(read.into_iter().chain(written));
            has_loops |= matches!(op, Op::Loop { .. });
            has_loops |= op.body().is_some_and(|inner| self.collect(inner, buffers));
        }
        has_loops
    }

    /// Runs a body for an index from `first` in steps of `step` while it is below `end`, at least once, and carries registers.
    pub(super) fn repeat(
        &mut self,
        name: &str,
        (first, step, end): (IntValue<'c>, u32, u32),
        carried: Regs<'c>,
        body: impl FnOnce(&mut Self, IntValue<'c>, Regs<'c>) -> R<Regs<'c>>,
    ) -> R<Regs<'c>> {
        let before = self.current()?;
        let head = self.cx.append_basic_block(self.function, name);
        let after = self.cx.append_basic_block(self.function, "done");
        self.b.build_unconditional_branch(head)?;
        self.b.position_at_end(head);
        let index = self.b.build_phi(self.i32_type(), name)?;
        index.add_incoming(&[(&first, before)]);
        let mut phis = Vec::new();
        for r in &carried {
            let phi = self.b.build_phi(r.get_type(), "")?;
            phi.add_incoming(&[(r, before)]);
            phis.push(phi);
        }
        let at = index.as_basic_value().into_int_value();
        let out = body(self, at, phis.iter().map(|p| p.as_basic_value()).collect())?;
        let next = self.b.build_int_add(at, self.i32(i64::from(step)), "")?;
        let more = self.b.build_int_compare(IntPredicate::ULT, next, self.i32(i64::from(end)), "")?;
        let last = self.current()?;
        self.b.build_conditional_branch(more, head, after)?;
        index.add_incoming(&[(&next, last)]);
        for (p, r) in phis.iter().zip(&out) {
            p.add_incoming(&[(r, last)]);
        }
        self.b.position_at_end(after);
        Ok(out)
    }

    /// Runs a body on a condition. The results are the values that it yields, or the other values.
    pub(super) fn emit_if(&mut self, cond: Value, body: Block, others: &[Value], results: &[Value]) -> R<()> {
        let cond = self.int(cond)?;
        let before = self.current()?;
        let plain = others.iter().map(|&v| self.regs(v).cloned()).collect::<R<Vec<_>>>()?;
        let inside = self.cx.append_basic_block(self.function, "then");
        let after = self.cx.append_basic_block(self.function, "join");
        self.b.build_conditional_branch(cond, inside, after)?;
        self.b.position_at_end(inside);
        // What is numbered anew here is not there behind the branch.
        let numbers = self.numbers.take();
        let yielded = self.block(body)?;
        self.numbers = numbers;
        let end = self.current()?;
        self.b.build_unconditional_branch(after)?;
        // What matrix instructions take is in words where it was loaded: so must the other be, made before the branch.
        let branch = before.get_terminator().ok_or_else(|| CompileError::bug("a branch that is not there"))?;
        self.b.position_before(&branch);
        let mut otherwise = Vec::new();
        for (regs, (made, &other)) in plain.into_iter().zip(yielded.iter().zip(others)) {
            let paired = made.len() != regs.len();
            otherwise.push(if paired { self.operand_words(other)? } else { regs });
        }
        self.b.position_at_end(after);
        for ((&result, made), regs) in results.iter().zip(yielded).zip(otherwise) {
            let mut joined = Vec::new();
            for (a, b) in made.into_iter().zip(regs) {
                let phi = self.b.build_phi(a.get_type(), "")?;
                phi.add_incoming(&[(&a, end), (&b, before)]);
                joined.push(phi.as_basic_value());
            }
            self.values[result] = Some(joined);
        }
        Ok(())
    }

    pub(super) fn current(&self) -> R<BasicBlock<'c>> {
        self.b.get_insert_block().ok_or_else(|| CompileError::bug("no insertion point"))
    }
}
