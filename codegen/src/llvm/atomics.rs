//! Atomic stores: an instruction where the target has one, and a loop of compare-and-swap elsewhere.

use super::{Emitter, R};
use crate::arch::Capability;
use crate::error::CompileError;
use crate::gpu::Accuracy;
use atlas_dsl::DType;
use atlas_dsl::op::BinaryOp;
use inkwell::types::BasicMetadataTypeEnum;
use inkwell::values::{BasicMetadataValueEnum, BasicValue, BasicValueEnum, IntValue, PointerValue};
use inkwell::{AtomicOrdering, InlineAsmDialect, IntPredicate};

/// An instruction that combines one element, or two neighbours of 16 bits.
struct Instruction {
    /// What follows `red.global.`.
    name: &'static str,
    /// Elements that it combines.
    elements: usize,
}

impl<'c> Emitter<'c, '_> {
    /// Combines consecutive elements with those at an address, where `real` holds.
    pub(super) fn combine_run(
        &mut self,
        op: BinaryOp,
        at: PointerValue<'c>,
        values: &[BasicValueEnum<'c>],
        dtype: DType,
        real: Option<IntValue<'c>>,
    ) -> R<()> {
        let instruction = self.instruction(op, dtype, values.len());
        let step = instruction.as_ref().map_or(1, |i| i.elements);
        for (n, part) in values.chunks(step).enumerate() {
            let on = self.cx.i64_type().const_int((n * step) as u64, false);
            let at = self.offset_pointer(dtype, at, on)?;
            match &instruction {
                Some(i) => self.reduce_at(i.name, at, self.pack(part, dtype)?, dtype.bytes() * step as u32, real)?,
                None => match real {
                    Some(real) => self.only_where(real, |e| e.swap_at(op, at, part[0], dtype))?,
                    None => self.swap_at(op, at, part[0], dtype)?,
                },
            }
        }
        Ok(())
    }

    /// Sums of all types, and the greater and the less of integers. The instructions for floats give the other operand for NaN.
    fn instruction(&self, op: BinaryOp, dtype: DType, run: usize) -> Option<Instruction> {
        let is_pair = run.is_multiple_of(2);
        let (name, elements) = match (op, dtype) {
            (BinaryOp::Add, DType::F32) => ("add.f32", 1),
            (BinaryOp::Add, DType::F64) => ("add.f64", 1),
            (BinaryOp::Add, DType::F16) if is_pair => ("add.noftz.f16x2", 2),
            (BinaryOp::Add, DType::F16) => ("add.noftz.f16", 1),
            (BinaryOp::Add, DType::Bf16) if !self.k.target.has(Capability::AtomicBf16) => return None,
            (BinaryOp::Add, DType::Bf16) if is_pair => ("add.noftz.bf16x2", 2),
            (BinaryOp::Add, DType::Bf16) => ("add.noftz.bf16", 1),
            (BinaryOp::Add, DType::I32) => ("add.u32", 1),
            (BinaryOp::Add, DType::I64) => ("add.u64", 1),
            (BinaryOp::Max, DType::I32) => ("max.s32", 1),
            (BinaryOp::Max, DType::I64) => ("max.s64", 1),
            (BinaryOp::Min, DType::I32) => ("min.s32", 1),
            (BinaryOp::Min, DType::I64) => ("min.s64", 1),
            _ => return None,
        };
        Some(Instruction { name, elements })
    }

    /// An instruction without a result, by inline PTX: what LLVM makes of `atomicrmw` has no predicate, and of bf16 is a loop.
    fn reduce_at(
        &self,
        name: &str,
        at: PointerValue<'c>,
        value: BasicValueEnum<'c>,
        bytes: u32,
        real: Option<IntValue<'c>>,
    ) -> R<()> {
        let (bits, register) = self.bits(value, bytes)?;
        let (guard, first) = if real.is_some() { ("@$0 ", 1) } else { ("", 0) };
        let text = format!("{guard}red.global.{name} [${first}], ${};", first + 1);
        let predicate = if real.is_some() { "b," } else { "" };
        let constraints = format!("{predicate}l,{register},~{{memory}}");
        let mut args: Vec<BasicMetadataValueEnum<'c>> = real.into_iter().map(Into::into).collect();
        args.extend([BasicMetadataValueEnum::from(at), bits.into()]);
        let mut types: Vec<BasicMetadataTypeEnum<'c>> = real.iter().map(|p| p.get_type().into()).collect();
        types.extend([BasicMetadataTypeEnum::from(at.get_type()), bits.get_type().into()]);
        let ty = self.cx.void_type().fn_type(&types, false);
        let asm = self.cx.create_inline_asm(ty, text, constraints, true, false, Some(InlineAsmDialect::ATT), false);
        let call = self.b.build_indirect_call(ty, asm, &args, "")?;
        self.never_unwinds(call);
        Ok(())
    }

    /// Exchanges the element that is there for what it and `value` become, until no other thread has come between. Nothing is
    /// exchanged where nothing changes.
    fn swap_at(&mut self, op: BinaryOp, at: PointerValue<'c>, value: BasicValueEnum<'c>, dtype: DType) -> R<()> {
        let int = match dtype.bytes() {
            2 => self.cx.i16_type(),
            4 => self.cx.i32_type(),
            8 => self.cx.i64_type(),
            n => return Err(CompileError::bug(format!("an atomic of {n} bytes"))),
        };
        let found = self.load_aligned(int.into(), at, dtype.bytes())?;
        if let Some(load) = found.as_instruction_value() {
            let order = load.set_atomic_ordering(AtomicOrdering::Monotonic);
            order.map_err(|e| CompileError::bug(format!("an atomic load: {e}")))?;
        }
        let before = self.current()?;
        let [test, swap, done] = ["test", "swap", "done"].map(|name| self.cx.append_basic_block(self.function, name));
        self.b.build_unconditional_branch(test)?;
        self.b.position_at_end(test);
        let old = self.b.build_phi(int, "")?;
        old.add_incoming(&[(&found, before)]);
        let there = old.as_basic_value();
        let element = self.b.build_bit_cast(there, value.get_type(), "")?;
        let made = self.binary((op, Accuracy::Precise), dtype, element, value)?;
        let made = self.b.build_bit_cast(made, int, "")?.into_int_value();
        let same = self.b.build_int_compare(IntPredicate::EQ, made, there.into_int_value(), "")?;
        self.b.build_conditional_branch(same, done, swap)?;
        self.b.position_at_end(swap);
        let expected = there.into_int_value();
        let seen = self.swap_if(at, expected, made, dtype.bytes())?;
        let is_mine = self.b.build_int_compare(IntPredicate::EQ, seen, expected, "")?;
        old.add_incoming(&[(&seen, self.current()?)]);
        self.b.build_conditional_branch(is_mine, done, test)?;
        self.b.position_at_end(done);
        Ok(())
    }

    /// What was there before, for which `new` is exchanged if it is `expected`. By inline PTX: LLVM would exchange 32 bits for an
    /// element of 16, and read them first in a way that races.
    fn swap_if(&self, at: PointerValue<'c>, expected: IntValue<'c>, new: IntValue<'c>, bytes: u32) -> R<IntValue<'c>> {
        let (_, register) = self.bits(expected.into(), bytes)?;
        let text = format!("atom.global.cas.b{} $0, [$1], $2, $3;", 8 * bytes);
        let constraints = format!("={register},l,{register},{register},~{{memory}}");
        let int = expected.get_type();
        let ty = int.fn_type(&[at.get_type().into(), int.into(), int.into()], false);
        let asm = self.cx.create_inline_asm(ty, text, constraints, true, false, Some(InlineAsmDialect::ATT), false);
        let call = self.b.build_indirect_call(ty, asm, &[at.into(), expected.into(), new.into()], "")?;
        self.never_unwinds(call);
        Ok(call.try_as_basic_value().unwrap_basic().into_int_value())
    }

    /// The bits of an element, or of two, and the kind of register for them.
    fn bits(&self, value: BasicValueEnum<'c>, bytes: u32) -> R<(IntValue<'c>, &'static str)> {
        let (ty, register) = match bytes {
            2 => (self.cx.i16_type(), "h"),
            4 => (self.i32_type(), "r"),
            8 => (self.cx.i64_type(), "l"),
            n => return Err(CompileError::bug(format!("an atomic of {n} bytes"))),
        };
        Ok((self.b.build_bit_cast(value, ty, "")?.into_int_value(), register))
    }
}
