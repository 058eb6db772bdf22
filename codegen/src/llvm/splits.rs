//! The sum over the CTAs that share a program, through global memory.

use super::{Emitter, GLOBAL, R, Regs};
use crate::error::CompileError;
use crate::gpu::partial_tiles::{LOADS_AT_ONCE, REGISTERS_AT_ONCE, STEP_BYTES};
use crate::gpu::{Inst, Value};
use crate::image::ARRIVAL_BYTES;
use inkwell::types::VectorType;
use inkwell::values::{BasicValue, BasicValueEnum, IntValue, PointerValue, VectorValue};
use inkwell::{AddressSpace, InlineAsmDialect, IntPredicate};

/// The addresses that a thread uses.
struct Place<'c> {
    /// The program's arrivals.
    arrivals: PointerValue<'c>,
    /// This thread's first bytes of the first CTA's partial tiles.
    partials: PointerValue<'c>,
    /// This CTA's number among those of its program.
    number: IntValue<'c>,
}

impl<'c> Emitter<'c, '_> {
    /// The number of this CTA among those that share its program.
    pub(super) fn split_number(&mut self) -> R<IntValue<'c>> {
        let cta = self.call("llvm.nvvm.read.ptx.sreg.ctaid.x", self.i32_type().into(), &[])?.into_int_value();
        let splits = self.i32(i64::from(self.k.index_map.splits));
        Ok(self.b.build_int_unsigned_rem(cta, splits, "")?)
    }

    /// Leaves this CTA's partial tiles in memory. The CTA that arrives last goes on with the sums. All others end here.
    ///
    /// Each thread reads what the threads of its number wrote, in every CTA: layouts do not matter. A CTA's stores are ordered before
    /// its arrival by the barrier and by the release of one thread, and the others' before its loads by the acquire of that thread
    /// and by the barrier behind it.
    pub(super) fn sum_splits(&mut self, inst: Inst, values: &[Value]) -> R<()> {
        let mut own = Vec::new();
        for &v in values {
            own.extend(self.regs(v)?.iter().map(|r| r.into_float_value()));
        }
        let place = self.place_of_partials()?;
        let steps = self.k.partial_steps(values);
        own.resize((steps * REGISTERS_AT_ONCE) as usize, self.cx.f32_type().const_zero());
        let i64t = self.cx.i64_type();
        let number = self.b.build_int_z_extend(place.number, i64t, "")?;
        let bytes = i64t.const_int(u64::from(steps * self.step_bytes()), false);
        let mine = self.offset(place.partials, self.b.build_int_mul(number, bytes, "")?)?;
        for (step, four) in (0..).zip(own.chunks(REGISTERS_AT_ONCE as usize)) {
            let mut vector = self.fours().get_undef();
            for (i, &x) in (0..).zip(four) {
                vector = self.b.build_insert_element(vector, x, self.i32(i), "")?;
            }
            let store = self.b.build_store(self.at_step(mine, step)?, vector)?;
            store.set_alignment(STEP_BYTES).map_err(|e| CompileError::bug(e.to_string()))?;
        }
        self.barrier()?;
        self.go_on_if_last(place.arrivals)?;
        let mut sums: Vec<BasicValueEnum<'c>> = Vec::new();
        for sum in self.sum_of_parts(place.partials, steps)? {
            for i in 0..i64::from(REGISTERS_AT_ONCE) {
                sums.push(self.b.build_extract_element(sum, self.i32(i), "")?);
            }
        }
        let mut sums = sums.into_iter();
        for (&v, &result) in values.iter().zip(&self.k.results[inst]) {
            let regs: Regs<'c> = sums.by_ref().take(self.k.tile(v).1.reg_count() as usize).collect();
            self.values[result] = Some(regs);
        }
        Ok(())
    }

    /// The sums of what all CTAs left, in the order of their numbers.
    ///
    /// The assembler moves all loads of a block to its head, as many as there are, and spills. So a block has no more of them than
    /// hide the latency of L2, and a loop goes over the CTAs.
    fn sum_of_parts(&mut self, partials: PointerValue<'c>, steps: u32) -> R<Vec<VectorValue<'c>>> {
        let splits = self.k.index_map.splits;
        let at_once = (1..=splits).rev().find(|n| splits.is_multiple_of(*n) && n * steps <= LOADS_AT_ONCE).unwrap_or(1);
        if at_once == splits {
            return self.add_parts(partials, steps, at_once, None);
        }
        // What is added to -0 stays as it is.
        let none = VectorType::const_vector(&vec![self.cx.f32_type().const_float(-0.0); REGISTERS_AT_ONCE as usize]);
        let (ptr, i32t) = (partials.get_type(), self.i32_type());
        let of_group = u64::from(at_once * steps * self.step_bytes());
        let of_group = self.cx.i64_type().const_int(of_group, false);
        let (before, fours) = (self.current()?, self.fours());
        let [group, done] = ["parts", "sums"].map(|name| self.cx.append_basic_block(self.function, name));
        self.b.build_unconditional_branch(group)?;
        self.b.position_at_end(group);
        let left = self.b.build_phi(i32t, "")?;
        let at = self.b.build_phi(ptr, "")?;
        let carried = (0..steps).map(|_| self.b.build_phi(fours, "")).collect::<Result<Vec<_>, _>>()?;
        let so_far = carried.iter().map(|phi| phi.as_basic_value().into_vector_value()).collect();
        let here = at.as_basic_value().into_pointer_value();
        let sums = self.add_parts(here, steps, at_once, Some(so_far))?;
        let next = self.offset(here, of_group)?;
        let fewer = self.b.build_int_sub(left.as_basic_value().into_int_value(), self.i32(1), "")?;
        let goes_on = self.b.build_int_compare(IntPredicate::NE, fewer, self.i32(0), "")?;
        self.b.build_conditional_branch(goes_on, group, done)?;
        left.add_incoming(&[(&self.i32(i64::from(splits / at_once)), before), (&fewer, group)]);
        at.add_incoming(&[(&partials, before), (&next, group)]);
        for (phi, sum) in carried.iter().zip(&sums) {
            phi.add_incoming(&[(&none, before), (sum, group)]);
        }
        self.b.position_at_end(done);
        Ok(sums)
    }

    /// Adds the partial tiles of `count` CTAs, the first of which lie at `from`, to `sums`, or to each other.
    fn add_parts(
        &mut self,
        from: PointerValue<'c>,
        steps: u32,
        count: u32,
        sums: Option<Vec<VectorValue<'c>>>,
    ) -> R<Vec<VectorValue<'c>>> {
        let mut sums: Vec<Option<VectorValue<'c>>> =
            sums.map_or_else(|| vec![None; steps as usize], |sums| sums.into_iter().map(Some).collect());
        for (step, sum) in (0..).zip(&mut sums) {
            for part in 0..count {
                let load = self.b.build_load(self.fours(), self.at_step(from, part * steps + step)?, "")?;
                if let Some(load) = load.as_instruction_value() {
                    load.set_alignment(STEP_BYTES).map_err(|e| CompileError::bug(e.to_string()))?;
                }
                let part = load.into_vector_value();
                *sum = Some(match *sum {
                    None => part,
                    Some(sum) => self.b.build_float_add(sum, part, "")?,
                });
            }
        }
        sums.into_iter().map(|sum| sum.ok_or_else(|| CompileError::bug("programs that no CTA shares"))).collect()
    }

    /// What a thread stores or loads at once.
    fn fours(&self) -> VectorType<'c> {
        self.cx.f32_type().vec_type(REGISTERS_AT_ONCE)
    }

    /// Bytes that all threads store at once.
    fn step_bytes(&self) -> u32 {
        self.k.threads * STEP_BYTES
    }

    /// The address of a thread's n-th step.
    fn at_step(&self, from: PointerValue<'c>, n: u32) -> R<PointerValue<'c>> {
        let bytes = u64::from(n) * u64::from(self.step_bytes());
        self.offset(from, self.cx.i64_type().const_int(bytes, false))
    }

    fn place_of_partials(&mut self) -> R<Place<'c>> {
        let (Some(arrivals), Some(partials)) = (self.arrivals, self.partials) else {
            return Err(CompileError::bug("a sum over CTAs without their memory"));
        };
        let i64t = self.cx.i64_type();
        let splits = self.k.index_map.splits;
        let cta = self.call("llvm.nvvm.read.ptx.sreg.ctaid.x", self.i32_type().into(), &[])?.into_int_value();
        let program = self.b.build_int_unsigned_div(cta, self.i32(i64::from(splits)), "")?;
        let number = self.split_number()?;
        let program = self.b.build_int_z_extend(program, i64t, "")?;
        let before = self.b.build_int_mul(program, i64t.const_int(self.k.partial_bytes(), false), "")?;
        let tid = self.b.build_int_z_extend(self.coords.tid, i64t, "")?;
        let each = i64t.const_int(STEP_BYTES.into(), false);
        let own = self.b.build_int_mul(tid, each, "")?;
        let offset = self.b.build_int_add(before, own, "")?;
        let arrivals =
            self.offset(arrivals, self.b.build_int_mul(program, i64t.const_int(ARRIVAL_BYTES, false), "")?)?;
        Ok(Place { arrivals, partials: self.offset(partials, offset)?, number })
    }

    fn offset(&self, from: PointerValue<'c>, bytes: IntValue<'c>) -> R<PointerValue<'c>> {
        // SAFETY: the launcher allocates the bytes of every program.
        Ok(unsafe { self.b.build_in_bounds_gep(self.cx.i8_type(), from, &[bytes], "")? })
    }

    /// One thread counts the arrival. The count is zero again after the last one. Goes on in a block of the last CTA.
    fn go_on_if_last(&mut self, arrivals: PointerValue<'c>) -> R<()> {
        let (i32t, i1t) = (self.i32_type(), self.cx.bool_type());
        let last = self.i32(i64::from(self.k.index_map.splits) - 1);
        let before = self.current()?;
        let [arrives, meets, ends, goes_on] =
            ["arrives", "meets", "ends", "last"].map(|name| self.cx.append_basic_block(self.function, name));
        let is_first = self.b.build_int_compare(IntPredicate::EQ, self.coords.tid, self.i32(0), "")?;
        self.b.build_conditional_branch(is_first, arrives, meets)?;
        self.b.position_at_end(arrives);
        let ty = i32t.fn_type(&[self.cx.ptr_type(AddressSpace::from(GLOBAL)).into(), i32t.into()], false);
        // LLVM has no scope narrower than the system in what inkwell builds, and no increment that wraps.
        let text = "atom.acq_rel.gpu.global.inc.u32 $0, [$1], $2;".to_owned();
        let dialect = Some(InlineAsmDialect::ATT);
        let asm = self.cx.create_inline_asm(ty, text, "=r,l,r,~{memory}".to_owned(), true, false, dialect, false);
        let call = self.b.build_indirect_call(ty, asm, &[arrivals.into(), last.into()], "")?;
        let found = call.try_as_basic_value().unwrap_basic().into_int_value();
        let is_last = self.b.build_int_compare(IntPredicate::EQ, found, last, "")?;
        self.b.build_unconditional_branch(meets)?;
        self.b.position_at_end(meets);
        let phi = self.b.build_phi(i1t, "")?;
        phi.add_incoming(&[(&i1t.const_zero(), before), (&is_last, arrives)]);
        let args = [self.i32(0).into(), phi.as_basic_value()];
        let any = self.call("llvm.nvvm.barrier.cta.red.or.aligned.all", i1t.into(), &args)?.into_int_value();
        self.b.build_conditional_branch(any, goes_on, ends)?;
        self.b.position_at_end(ends);
        self.b.build_return(None)?;
        self.b.position_at_end(goes_on);
        Ok(())
    }
}
