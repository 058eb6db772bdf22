//! Reverse mode: what the function appended, walked backward, gives a partial derivative for each argument.

use super::slopes::Slopes;
use crate::builder::{Builder, Operand};
use crate::entity::{Inst, Value};
use crate::ir::Loc;
use crate::op::{BinaryOp, Op};
use std::collections::BTreeMap;

impl Builder {
    /// The partial derivatives of `f` by each of its arguments. A number among them has none, and gives 0.
    pub fn gradient<const N: usize>(
        &mut self,
        loc: Loc,
        args: [Operand; N],
        f: impl FnOnce(&mut Builder, [Operand; N]) -> Operand,
    ) -> [Operand; N] {
        let args = self.distinct(loc, args);
        let Some((out, insts)) = self.traced(loc, args, f) else { return [Operand::Poison; N] };
        let has_or = insts.clone().any(|i| matches!(self.kernel.insts[Inst::from_u32(i as u32)], Op::Other { .. }));
        let partials = BTreeMap::from([(out, Operand::Literal(1.0))]);
        let mut walk = Walk { s: Slopes { b: self, loc }, partials, cut: has_or.then_some(out) };
        for inst in insts.rev().map(|i| Inst::from_u32(i as u32)) {
            walk.through(inst);
        }
        let partials = walk.partials;
        let shape = self.kernel.ty(out).shape.clone();
        args.map(|arg| match arg {
            Operand::Value(v) => {
                let dtype = self.kernel.ty(v).dtype;
                let partial = match partials.get(&v).copied().unwrap_or(Operand::Literal(0.0)) {
                    Operand::Value(p) => self.broadcast_value(loc, p, &shape).map_or(Operand::Poison, Operand::Value),
                    Operand::Poison => Operand::Poison,
                    number => self.splat(loc, number.number().unwrap_or(0.0), dtype, &shape),
                };
                Slopes { b: self, loc }.valid_with(partial, out)
            }
            Operand::Poison => Operand::Poison,
            _ => Operand::Literal(0.0),
        })
    }
}

/// The walk backward: what the result's derivative by each value is, as far as it is known.
struct Walk<'b> {
    s: Slopes<'b>,
    partials: BTreeMap<Value, Operand>,
    /// The function's result, if an `or` stands on the way to it.
    cut: Option<Value>,
}

impl Walk<'_> {
    /// Hands the partial of an operation's result on to its operands.
    fn through(&mut self, inst: Inst) {
        let Some(&result) = self.s.b.kernel.results[inst].first() else { return };
        let Some(&partial) = self.partials.get(&result) else { return };
        match self.s.b.kernel.insts[inst].clone() {
            Op::Unary(op, x) => {
                let slope = self.s.slope(op, x, result);
                self.give(x, slope, partial);
            }
            Op::Binary(op, x, y) => self.binary(op, (x, y), result, partial),
            // A choice of one value gives it an edge, and is that value.
            Op::Select { on_true, on_false, .. } if on_true == on_false => self.give(on_true, 1.0.into(), partial),
            Op::Select { cond, on_true, on_false } => {
                for (v, [yes, no]) in [(on_true, [partial, 0.0.into()]), (on_false, [0.0.into(), partial])] {
                    let dtype = self.s.b.kernel.ty(v).dtype;
                    let [yes, no] = [yes, no].map(|x| self.s.as_tile(x, dtype));
                    let chosen = self.s.b.select(self.s.loc, cond.into(), yes, no);
                    self.give(v, 1.0.into(), chosen);
                }
            }
            Op::Cast(to, x) => {
                let from = self.s.b.kernel.ty(x).dtype;
                if to.is_float() && from.is_float() {
                    let partial = match partial {
                        Operand::Value(_) => self.s.b.cast(self.s.loc, from, partial),
                        number => number,
                    };
                    self.give(x, 1.0.into(), partial);
                }
            }
            // Each element that a tile is repeated to has a partial of its own.
            Op::Broadcast { value, .. } => self.give(value, 1.0.into(), partial),
            // What stands past an edge is no argument.
            Op::Other { value, .. } => {
                let own = self.s.through_or(partial, value);
                self.give(value, 1.0.into(), own);
            }
            Op::Splat { .. } | Op::Iota { .. } | Op::Compare(..) | Op::TableGet { .. } => {}
            Op::DimSize(_) | Op::DimTiles { .. } | Op::ScalarParam(_) => {}
            _ => self.s.b.error(121, self.s.loc, "`grad` takes a function that works element by element"),
        }
    }

    /// `partials[v] += factor * partial`.
    fn give(&mut self, v: Value, factor: Operand, partial: Operand) {
        if !self.s.b.kernel.ty(v).dtype.is_float() {
            return;
        }
        let mut more = self.s.times(factor, partial);
        if let Some(out) = self.cut {
            more = self.s.cut_at_or(more, out);
        }
        let sum = match self.partials.get(&v).copied() {
            Some(before) => self.s.b.binary(self.s.loc, BinaryOp::Add, before, more),
            None => more,
        };
        self.partials.insert(v, sum);
    }

    fn binary(&mut self, op: BinaryOp, (x, y): (Value, Value), result: Value, partial: Operand) {
        let loc = self.s.loc;
        match op {
            BinaryOp::Add => [x, y].into_iter().for_each(|v| self.give(v, 1.0.into(), partial)),
            BinaryOp::Sub => {
                self.give(x, 1.0.into(), partial);
                self.give(y, (-1.0).into(), partial);
            }
            BinaryOp::Mul => {
                self.give(x, y.into(), partial);
                self.give(y, x.into(), partial);
            }
            BinaryOp::Div => {
                let over = self.s.b.binary(loc, BinaryOp::Div, partial, y);
                self.give(x, 1.0.into(), over);
                let by_y = self.s.by_divisor(y, result, partial);
                self.give(y, 1.0.into(), by_y);
            }
            BinaryOp::Min | BinaryOp::Max => {
                let is_x = self.s.follows_first(op, x, y);
                let dtype = self.s.b.kernel.ty(x).dtype;
                let [partial, zero] = [partial, 0.0.into()].map(|p| self.s.as_tile(p, dtype));
                let of_x = self.s.b.select(loc, is_x, partial, zero);
                let of_y = self.s.b.select(loc, is_x, zero, partial);
                self.give(x, 1.0.into(), of_x);
                self.give(y, 1.0.into(), of_y);
            }
            // Of whole numbers and bits.
            BinaryOp::Rem | BinaryOp::And | BinaryOp::Or => {}
        }
    }
}
