//! Loops and branches.

use super::{Emitter, R, Regs};
use crate::error::CompileError;
use crate::gpu::{Block, Inst, Op, Value};
use inkwell::IntPredicate;
use inkwell::values::IntValue;

impl<'c> Emitter<'c, '_> {
    pub(super) fn emit_loop(&mut self, inst: Inst) -> R<()> {
        let Op::Loop { lo, hi, ref inits, body, .. } = self.k.insts[inst] else {
            return Err(CompileError::bug("not a loop"));
        };
        let inits = inits.clone();
        let (lo, hi) = (self.int(lo)?, self.int(hi)?);
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
        let next = self.block(body)?;
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
        Ok(())
    }

    /// Runs a body for an index from `first` on by `step` while it is below `end`, at least once, and carries registers.
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

    /// Runs a body on a condition; the results are what it yields or the other values.
    pub(super) fn emit_if(&mut self, cond: Value, body: Block, others: &[Value], results: &[Value]) -> R<()> {
        let cond = self.int(cond)?;
        let before = self.current()?;
        let plain = others.iter().map(|&v| self.regs(v).cloned()).collect::<R<Vec<_>>>()?;
        let inside = self.cx.append_basic_block(self.function, "then");
        let after = self.cx.append_basic_block(self.function, "join");
        self.b.build_conditional_branch(cond, inside, after)?;
        self.b.position_at_end(inside);
        let yielded = self.block(body)?;
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

    pub(super) fn current(&self) -> R<inkwell::basic_block::BasicBlock<'c>> {
        self.b.get_insert_block().ok_or_else(|| CompileError::bug("no insertion point"))
    }
}
