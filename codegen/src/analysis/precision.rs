//! Whether approximate instructions serve a kernel: its results are rounded to 16 bits, and nothing on the way magnifies
//! an error.
//!
//! Promise: if [`tolerates_approximation`] holds, an elementary function with a relative error of 2^-14 shows in what the
//! kernel writes as a relative error of about that size, below the 2^-9 or 2^-11 of a 16-bit result.
//!
//! Argument. exp, exp2, log, sqrt, rsqrt, sigmoid and division are off by what a rounding of their argument makes them be
//! off by, in either form; no use of them is judged. tanh, erf, sin and cos are off by up to 2^-14 of their value where the
//! precise form is off by 2^-22. Their results are followed to the roundings: products, quotients, choices, square roots
//! and changes of shape keep a relative error; a sum keeps it if its terms cannot cancel, that is, have no sign; 1 + erf
//! and 1 + tanh keep it too, since both are computed from their distance to 1. Anything else magnifies.
//!
//! What would break it: `1 - cos(x)`, `x - tanh(x)`, a sum of sines, a comparison or a conversion to an integer of any
//! of them (tests/agreement/wrong_code.rs).

use super::Uses;
use atlas_dsl::ir::{Access, Kernel, ParamKind, ValueDef};
use atlas_dsl::op::{BinaryOp, Op, ReduceOp, UnaryOp};
use atlas_dsl::reach::constant_float;
use atlas_dsl::{Inst, Value};
use std::collections::BTreeSet;

/// True if no written tensor has elements wider than 16 bits and no operation magnifies the error of a function.
pub fn tolerates_approximation(kernel: &Kernel, uses: &Uses) -> bool {
    let narrow = kernel.params.values().all(|p| match p.kind {
        ParamKind::Tensor { dtype, access: Access::Out, .. } => dtype.is_half(),
        _ => true,
    });
    let coarse = |op: &Op| matches!(op, Op::Unary(UnaryOp::Tanh | UnaryOp::Erf | UnaryOp::Sin | UnaryOp::Cos, _));
    narrow
        && kernel.insts.iter().filter(|&(inst, op)| uses.is_live(inst) && coarse(op)).all(|(inst, _)| {
            let mut seen = BTreeSet::new();
            kernel.results[inst].iter().all(|&v| Follow { kernel, uses, seen: &mut seen }.reaches_rounding(v))
        })
}

struct Follow<'a> {
    kernel: &'a Kernel,
    uses: &'a Uses,
    seen: &'a mut BTreeSet<Value>,
}

impl Follow<'_> {
    /// True if a relative error of `v` is rounded away before anything magnifies it.
    fn reaches_rounding(&mut self, v: Value) -> bool {
        let k = self.kernel;
        if k.ty(v).dtype.is_half() || !self.seen.insert(v) {
            return true;
        }
        let uses: Vec<Inst> = self.uses.get(v).iter().map(|u| u.inst).collect();
        uses.into_iter().all(|inst| {
            let kept = match &k.insts[inst] {
                Op::Cast(to, _) => to.is_float(),
                Op::Unary(UnaryOp::Neg | UnaryOp::Abs | UnaryOp::Sqrt | UnaryOp::Rsqrt, _) => true,
                Op::Unary(UnaryOp::Tanh | UnaryOp::Erf, _) => true,
                Op::Binary(op, a, b) => self.binary_keeps(*op, *a, *b),
                Op::Select { cond, .. } => *cond != v,
                Op::Reduce { op, value, .. } => *op != ReduceOp::Sum || self.has_no_sign(*value),
                Op::Broadcast { .. } | Op::Reshape { .. } | Op::Transpose(_) | Op::Other { .. } | Op::Store { .. } => {
                    true
                }
                Op::Loop { .. } | Op::Yield(_) => return self.carried(inst, v),
                _ => false,
            };
            kept && k.results[inst].clone().into_iter().all(|r| self.reaches_rounding(r))
        })
    }

    fn binary_keeps(&self, op: BinaryOp, a: Value, b: Value) -> bool {
        match op {
            BinaryOp::Mul | BinaryOp::Div | BinaryOp::Min | BinaryOp::Max => true,
            BinaryOp::Add if self.has_no_sign(a) && self.has_no_sign(b) => true,
            BinaryOp::Add | BinaryOp::Sub => {
                let saturates = |v| {
                    let v = self.seen_through(v);
                    matches!(self.kernel.def_op(v), Some((_, Op::Unary(UnaryOp::Erf | UnaryOp::Tanh, _))))
                };
                let one = |v| constant_float(self.kernel, self.seen_through(v)).is_some_and(|c| c.abs() == 1.0);
                (saturates(a) && one(b)) || (one(a) && saturates(b))
            }
            _ => false,
        }
    }

    /// A value behind broadcasts and reshapes.
    fn seen_through(&self, v: Value) -> Value {
        match self.kernel.def_op(v) {
            Some((_, &(Op::Broadcast { value, .. } | Op::Reshape { value, .. }))) => self.seen_through(value),
            _ => v,
        }
    }

    /// The same of a value that a loop carries, from where it enters the loop or its next iterate.
    fn carried(&mut self, inst: Inst, v: Value) -> bool {
        let k = self.kernel;
        let (owner, values) = match &k.insts[inst] {
            Op::Loop { inits, .. } => (Some(inst), inits),
            Op::Yield(values) => (self.uses.block_of(inst).and_then(|b| self.uses.loop_of(b)), values),
            _ => return false,
        };
        let Some(owner) = owner else { return false };
        let Op::Loop { body, lo, hi, .. } = &k.insts[owner] else { return false };
        if v == *lo || v == *hi {
            return false;
        }
        let places = values.iter().enumerate().filter(|(_, x)| **x == v).map(|(i, _)| i);
        places
            .collect::<Vec<_>>()
            .into_iter()
            .all(|i| self.reaches_rounding(k.blocks[*body].params[i + 1]) && self.reaches_rounding(k.results[owner][i]))
    }

    /// True if a value is never negative, by its own making; nothing is assumed of what is loaded or carried.
    fn has_no_sign(&self, v: Value) -> bool {
        let k = self.kernel;
        if constant_float(k, v).is_some_and(|c| c >= 0.0) {
            return true;
        }
        let ValueDef::Result(inst, _) = k.values[v].def else { return false };
        match &k.insts[inst] {
            Op::Unary(op, _) => matches!(
                op,
                UnaryOp::Exp | UnaryOp::Exp2 | UnaryOp::Sigmoid | UnaryOp::Abs | UnaryOp::Sqrt | UnaryOp::Rsqrt
            ),
            Op::Binary(BinaryOp::Mul, a, b) if a == b => true,
            Op::Binary(BinaryOp::Mul | BinaryOp::Div | BinaryOp::Add | BinaryOp::Min, a, b) => {
                self.has_no_sign(*a) && self.has_no_sign(*b)
            }
            Op::Binary(BinaryOp::Max, a, b) => self.has_no_sign(*a) || self.has_no_sign(*b),
            Op::Cast(_, a)
            | Op::Broadcast { value: a, .. }
            | Op::Reshape { value: a, .. }
            | Op::Transpose(a)
            | Op::Reduce { value: a, .. } => self.has_no_sign(*a),
            _ => false,
        }
    }
}
