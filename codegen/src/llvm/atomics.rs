//! Atomic stores: an instruction where the target has one, and a loop of compare-and-swap elsewhere.

use super::{Emitter, R};
use crate::error::CompileError;
use crate::gpu::Accuracy;
use atlas_dsl::DType;
use atlas_dsl::op::BinaryOp;
use inkwell::values::{BasicValue, BasicValueEnum, IntValue, PointerValue};
use inkwell::{AtomicOrdering, InlineAsmDialect, IntPredicate};

/// An instruction that combines an element, or some neighbours.
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
                Some(i) => self.reduce_at(i.name, at, part, dtype, real)?,
                None => match real {
                    Some(real) => self.only_where(real, |e| e.swap_at(op, at, part[0], dtype))?,
                    None => self.swap_at(op, at, part[0], dtype)?,
                },
            }
        }
        Ok(())
    }

    /// The instruction for a run of elements, if the target has one.
    fn instruction(&self, op: BinaryOp, dtype: DType, run: usize) -> Option<Instruction> {
        let most = self.k.target.combined_at_once(op, dtype)? as usize;
        let elements = [8, 4, 2, 1].into_iter().find(|n| *n <= most && run.is_multiple_of(*n))?;
        let name = match (op, dtype, elements) {
            (BinaryOp::Add, DType::F32, 4) => "add.v4.f32",
            (BinaryOp::Add, DType::F32, 2) => "add.v2.f32",
            (BinaryOp::Add, DType::F32, _) => "add.f32",
            (BinaryOp::Add, DType::F64, _) => "add.f64",
            (BinaryOp::Add, DType::F16, 8) => "add.noftz.v4.f16x2",
            (BinaryOp::Add, DType::F16, 4) => "add.noftz.v2.f16x2",
            (BinaryOp::Add, DType::F16, 2) => "add.noftz.f16x2",
            (BinaryOp::Add, DType::F16, _) => "add.noftz.f16",
            (BinaryOp::Add, DType::Bf16, 8) => "add.noftz.v4.bf16x2",
            (BinaryOp::Add, DType::Bf16, 4) => "add.noftz.v2.bf16x2",
            (BinaryOp::Add, DType::Bf16, 2) => "add.noftz.bf16x2",
            (BinaryOp::Add, DType::Bf16, _) => "add.noftz.bf16",
            (BinaryOp::Add, DType::I32, _) => "add.u32",
            (BinaryOp::Add, DType::I64, _) => "add.u64",
            (BinaryOp::Max, DType::I32, _) => "max.s32",
            (BinaryOp::Max, DType::I64, _) => "max.s64",
            (BinaryOp::Min, DType::I32, _) => "min.s32",
            (BinaryOp::Min, DType::I64, _) => "min.s64",
            _ => return None,
        };
        Some(Instruction { name, elements })
    }

    /// An instruction without a result, by inline PTX: what LLVM makes of `atomicrmw` has no predicate, and of bf16 is a loop.
    fn reduce_at(
        &self,
        name: &str,
        at: PointerValue<'c>,
        part: &[BasicValueEnum<'c>],
        dtype: DType,
        real: Option<IntValue<'c>>,
    ) -> R<()> {
        let packed = self.pack(part, dtype)?;
        let (words, register) = match (dtype.bytes(), part.len()) {
            (8, _) => (vec![self.b.build_bit_cast(packed, self.cx.i64_type(), "")?.into_int_value()], "l"),
            (2, 1) => (self.words(packed, 2)?, "h"),
            (bytes, n) => (self.words(packed, bytes * n as u32)?, "r"),
        };
        self.write(&format!("red.global.{name}"), ["l", register], at, &words, real)
    }

    /// Exchanges the element that is there for what it and `value` become, until no other thread has come between. Nothing is
    /// exchanged where nothing changes.
    fn swap_at(&mut self, op: BinaryOp, at: PointerValue<'c>, value: BasicValueEnum<'c>, dtype: DType) -> R<()> {
        let (int, register) = match dtype.bytes() {
            2 => (self.cx.i16_type(), "h"),
            4 => (self.i32_type(), "r"),
            8 => (self.cx.i64_type(), "l"),
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
        let seen = self.swap_if(at, [expected, made], register)?;
        let is_mine = self.b.build_int_compare(IntPredicate::EQ, seen, expected, "")?;
        old.add_incoming(&[(&seen, self.current()?)]);
        self.b.build_conditional_branch(is_mine, done, test)?;
        self.b.position_at_end(done);
        Ok(())
    }

    /// What was there before, for which `new` is exchanged if it is `expected`. By inline PTX: LLVM would exchange 32 bits for an
    /// element of 16, and read them first in a way that races.
    fn swap_if(&self, at: PointerValue<'c>, [expected, new]: [IntValue<'c>; 2], register: &str) -> R<IntValue<'c>> {
        let text = format!("atom.global.cas.b{} $0, [$1], $2, $3;", expected.get_type().get_bit_width());
        let constraints = format!("={register},l,{register},{register},~{{memory}}");
        let int = expected.get_type();
        let ty = int.fn_type(&[at.get_type().into(), int.into(), int.into()], false);
        let asm = self.cx.create_inline_asm(ty, text, constraints, true, false, Some(InlineAsmDialect::ATT), false);
        let call = self.b.build_indirect_call(ty, asm, &[at.into(), expected.into(), new.into()], "")?;
        self.never_unwinds(call);
        Ok(call.try_as_basic_value().unwrap_basic().into_int_value())
    }
}
