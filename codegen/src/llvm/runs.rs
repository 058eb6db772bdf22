//! Operations that compute each register of a result from the same registers of their operands, and runs of them.
//!
//! ptxas mixes what belongs to different registers as it likes, up to the most registers that a thread may have, and then
//! spills. So each register of a run depends on the one that is [`AT_ONCE`] before it, by a number that is always 0 and that
//! ptxas does not know. In a product of [128, 128] by 8 warps with dropout behind it, ptxas takes 158 registers instead of 255
//! and spills by that.

use super::elementwise::takes_pairs;
use super::{Emitter, R, Regs};
use crate::error::CompileError;
use crate::gpu::analysis::AT_ONCE;
use crate::gpu::{Inst, Kernel, Op, Value, ValueDef};
use crate::gpu_ops;
use atlas_dsl::DType;
use cranelift_entity::EntitySet;
use inkwell::values::{BasicValueEnum, IntValue};
use std::ops::Range;

/// How the registers of a run depend on one another: what each begins with, and what it ends with.
struct Link {
    first: Vec<Value>,
    last: Value,
}

impl<'c> Emitter<'c, '_> {
    /// Some registers of what an operation computes from the same registers of its operands.
    pub(super) fn computed(&mut self, op: &Op, dtype: DType, range: Range<usize>) -> R<Regs<'c>> {
        let of = |e: &Self, v: Value| {
            let regs =
                e.regs(v)?.get(range.clone()).ok_or_else(|| CompileError::bug(format!("{v} has too few registers")));
            regs.map(<[_]>::to_vec)
        };
        match op {
            Op::Unary(op, by, a) => of(self, *a)?.into_iter().map(|x| self.unary(*op, *by, dtype, x)).collect(),
            Op::Binary(op, by, a, b) => {
                let (a, b) = (of(self, *a)?, of(self, *b)?);
                a.into_iter().zip(b).map(|(x, y)| self.binary((*op, *by), dtype, x, y)).collect()
            }
            Op::Compare(p, a, b) => {
                let operand = self.k.tile(*a).0;
                let (a, b) = (of(self, *a)?, of(self, *b)?);
                a.into_iter().zip(b).map(|(x, y)| Ok(self.compare(*p, operand, x, y)?.into())).collect()
            }
            Op::Select(c, a, b) => {
                let (c, a, b) = (of(self, *c)?, of(self, *a)?, of(self, *b)?);
                c.into_iter()
                    .zip(a.into_iter().zip(b))
                    .map(|(c, (x, y))| Ok(self.b.build_select(c.into_int_value(), x, y, "")?))
                    .collect()
            }
            Op::Fma(a, b, c) => {
                let (a, b, c) = (of(self, *a)?, of(self, *b)?, of(self, *c)?);
                a.into_iter().zip(b).zip(c).map(|((x, y), z)| self.fused([x, y, z], dtype)).collect()
            }
            Op::Cast(a) => {
                let from = self.k.tile(*a).0;
                self.cast_all(&of(self, *a)?, from, dtype)
            }
            Op::Rematerialize(_)
            | Op::MaskInvalid { .. }
            | Op::Reduce { .. }
            | Op::Scan { .. }
            | Op::ConvertLayout(_)
            | gpu_ops!(sources views global shared clusters products rings orders control) => {
                Err(CompileError::bug("not computed register by register"))
            }
        }
    }

    /// Emits a run of operations for one register of its tiles after the other, and conversions to 16 bits for pairs of them.
    pub(super) fn elementwise_run(&mut self, run: &[Inst]) -> R<()> {
        let results: Vec<Value> = run.iter().filter_map(|&inst| self.k.results[inst].first().copied()).collect();
        let n = results.first().map_or(0, |&v| self.k.tile(v).1.reg_count() as usize);
        results.iter().for_each(|&v| self.values[v] = Some(Vec::with_capacity(n)));
        let ops: Vec<(Inst, Value)> = run.iter().copied().zip(results).collect();
        let k = self.k;
        let parts: Vec<_> = ops.split_inclusive(|&op| is_of_pairs(k, op)).collect();
        let step = if n.is_multiple_of(2) { 2 } else { 1 };
        let link = self.link(&ops)?;
        let first_values = link.iter().flat_map(|link| link.first.iter().copied());
        let unlinked: Vec<_> = first_values.map(|v| (v, self.values[v].clone())).collect();
        for first in (0..n).step_by(step) {
            for at in (first..first + step).filter(|&at| at >= AT_ONCE as usize) {
                link.as_ref().map_or(Ok(()), |link| self.join(link, at))?;
            }
            for part in &parts {
                let (pairs, single): (Vec<_>, Vec<_>) = part.iter().partition(|&&op| is_of_pairs(k, op));
                for at in first..first + step {
                    self.compute(&single, at..at + 1)?;
                }
                self.compute(&pairs, first..first + step)?;
            }
        }
        unlinked.into_iter().for_each(|(v, regs)| self.values[v] = regs);
        Ok(())
    }

    /// The link of a run: operands that are not computed in it, so many that each value with several uses is behind one of them,
    /// and the last result.
    fn link(&self, ops: &[(Inst, Value)]) -> R<Option<Link>> {
        let k = self.k;
        let is_word = |v: Value| matches!(k.tile(v).0.bytes(), 4 | 8);
        let mut of_run: EntitySet<Value> = EntitySet::new();
        of_run.extend(ops.iter().map(|&(_, v)| v));
        let (mut first, mut linked) = (Vec::new(), EntitySet::new());
        // Results of linked operands and of what is the same in all registers.
        let (mut alone, mut last_alone, mut last) = (EntitySet::new(), None, None);
        for &(inst, result) in ops {
            let mut operands = Vec::new();
            k.insts[inst].visit_operands(|v| operands.push(v));
            if !operands.iter().any(|&v| linked.contains(v)) {
                if !self.runs.is_behind_shared(result) {
                    continue;
                }
                // Registers that are equal stay so, and are computed once. What is constant stays constant.
                let fits = |v: Value| is_word(v) && !of_run.contains(v) && self.runs.is_all_different(k, result);
                let mut found = None;
                for &v in operands.iter().filter(|&&v| fits(v)) {
                    if found.is_none() && !self.regs(v)?.iter().any(is_constant) {
                        found = Some(v);
                    }
                }
                let Some(found) = found else { continue };
                linked.insert(found);
                alone.insert(found);
                first.push(found);
            }
            linked.insert(result);
            last = if is_word(result) { Some(result) } else { last };
            if operands.iter().all(|&v| alone.contains(v) || self.is_given(v)) {
                alone.insert(result);
                last_alone = if is_word(result) { Some(result) } else { last_alone };
            }
        }
        // What comes from outside of a loop may be moved there by LLVM, if the link is by nothing else.
        let here = k.blocks.values().find(|block| ops.first().is_some_and(|(inst, _)| block.insts.contains(inst)));
        let is_here = |v: &Value| match k.values[*v].def {
            ValueDef::Result(inst, _) => here.is_some_and(|block| block.insts.contains(&inst)),
            _ => true,
        };
        let last = if first.iter().any(is_here) { last } else { last_alone.or(last) };
        Ok(last.map(|last| Link { first, last }))
    }

    /// True for a constant, an index, or a repeated element.
    fn is_given(&self, v: Value) -> bool {
        let ValueDef::Result(inst, _) = self.k.values[v].def else { return false };
        matches!(self.k.insts[inst], gpu_ops!(sources) | Op::Broadcast(_))
    }

    /// Makes a register of a run depend on an earlier one. It stays the same, because no grid has CTAs along the third axis.
    fn join(&mut self, link: &Link, at: usize) -> R<()> {
        let zero = self.call("llvm.nvvm.read.ptx.sreg.ctaid.z", self.i32_type().into(), &[])?.into_int_value();
        let before = self.bits(self.regs(link.last)?[at - AT_ONCE as usize])?;
        let before = self.b.build_int_truncate_or_bit_cast(before, self.i32_type(), "")?;
        let none = self.b.build_and(before, zero, "")?;
        for &v in &link.first {
            let here = self.regs(v)?[at];
            let bits = self.bits(here)?;
            let none = self.b.build_int_z_extend_or_bit_cast(none, bits.get_type(), "")?;
            let same = self.b.build_xor(bits, none, "")?;
            let same = self.b.build_bit_cast(same, here.get_type(), "")?;
            if let Some(regs) = &mut self.values[v] {
                regs[at] = same;
            }
        }
        Ok(())
    }

    fn bits(&self, x: BasicValueEnum<'c>) -> R<IntValue<'c>> {
        let is_long = x.is_float_value() && x.into_float_value().get_type() == self.cx.f64_type();
        let ty = match x {
            BasicValueEnum::IntValue(x) => x.get_type(),
            _ if is_long => self.cx.i64_type(),
            _ => self.i32_type(),
        };
        Ok(self.b.build_bit_cast(x, ty, "")?.into_int_value())
    }

    /// Emits operations for some registers, behind those that are there.
    fn compute(&mut self, ops: &[(Inst, Value)], range: Range<usize>) -> R<()> {
        for &(inst, v) in ops {
            self.locate(inst);
            let regs = self.computed(&self.k.insts[inst], self.k.tile(v).0, range.clone())?;
            self.values[v].get_or_insert_default().extend(regs);
        }
        Ok(())
    }
}

/// True for a conversion of two registers at once.
fn is_of_pairs(k: &Kernel, (inst, result): (Inst, Value)) -> bool {
    matches!(k.insts[inst], Op::Cast(a) if takes_pairs(k.tile(a).0, k.tile(result).0))
}

fn is_constant(x: &BasicValueEnum<'_>) -> bool {
    match x {
        BasicValueEnum::IntValue(x) => x.is_const(),
        BasicValueEnum::FloatValue(x) => x.is_const(),
        _ => false,
    }
}
