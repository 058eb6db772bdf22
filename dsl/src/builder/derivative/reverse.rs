//! Reverse mode: a backward walk over the operations that the function appended gives a partial derivative for each argument.

use super::is_identity;
use super::slopes::{self, Slopes};
use crate::builder::{Builder, Operand};
use crate::entity::{Inst, Value};
use crate::ir::Loc;
use crate::op::{BinaryOp, Op, UnaryOp};
use std::collections::BTreeMap;

impl Builder {
    /// The partial derivatives of `f` by each of its arguments. An argument that is a number has none, and gives 0.
    pub fn gradient<const N: usize>(
        &mut self,
        loc: Loc,
        args: [Operand; N],
        f: impl FnOnce(&mut Builder, [Operand; N]) -> Operand,
    ) -> [Operand; N] {
        let args = self.distinct(loc, args);
        let Some((out, insts)) = self.traced(loc, args, f) else { return [Operand::Poison; N] };
        let has_or = insts.clone().any(|i| matches!(self.kernel.insts[Inst::from_u32(i as u32)], Op::Other { .. }));
        let first = Partial { of: Operand::Literal(1.0), chosen: Vec::new() };
        let mut walk = ReverseWalk {
            s: Slopes { b: self, loc },
            partials: BTreeMap::from([(out, first)]),
            cut: has_or.then_some(out),
        };
        for inst in insts.rev().map(|i| Inst::from_u32(i as u32)) {
            walk.through(inst);
        }
        let partials = args.map(|arg| match arg {
            Operand::Value(v) => walk.finished(v),
            _ => Operand::Literal(0.0),
        });
        let shape = self.kernel.ty(out).shape.clone();
        std::array::from_fn(|i| match args[i] {
            Operand::Value(v) => {
                let dtype = self.kernel.ty(v).dtype;
                let partial = match partials[i] {
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

/// A condition, and the side of it that is meant.
type Side = (Value, bool);

/// The result's derivative by a value, as far as the walk has come.
#[derive(Clone)]
struct Partial {
    of: Operand,
    /// Choices on the way to the result that took this value as one side. Where a choice took the other side, the partial is 0,
    /// whatever `of` is. They are applied at the end, because 0 times an infinite slope would be NaN.
    chosen: Vec<Side>,
}

/// The backward walk.
struct ReverseWalk<'b> {
    s: Slopes<'b>,
    partials: BTreeMap<Value, Partial>,
    /// The function's result, if there is an `or` on the way to it.
    cut: Option<Value>,
}

impl ReverseWalk<'_> {
    /// Hands the partial of an operation's result on to its operands.
    fn through(&mut self, inst: Inst) {
        let Some(&result) = self.s.b.kernel.results[inst].first() else { return };
        let Some(partial) = self.partials.get(&result).cloned() else { return };
        let Partial { of, chosen } = &partial;
        match self.s.b.kernel.insts[inst].clone() {
            Op::Unary(op, x) => {
                let slope = self.s.slope(op, x, result);
                self.give(x, slope, *of, chosen);
            }
            Op::Binary(op, x, y) => self.binary(op, (x, y), result, &partial),
            // A choice of one value gives it an edge, and is that value.
            Op::Select { on_true, on_false, .. } if on_true == on_false => self.give(on_true, 1.0.into(), *of, chosen),
            Op::Select { cond, on_true, on_false } => self.choose(cond, [on_true, on_false], &partial),
            Op::Fma(a, b, c) => {
                self.give(a, b.into(), *of, chosen);
                self.give(b, a.into(), *of, chosen);
                self.give(c, 1.0.into(), *of, chosen);
            }
            Op::Cast(to, x) => {
                let from = self.s.b.kernel.ty(x).dtype;
                if to.is_float() && from.is_float() {
                    let partial = match of {
                        Operand::Value(_) => self.s.b.cast(self.s.loc, from, *of),
                        number => *number,
                    };
                    self.give(x, 1.0.into(), partial, chosen);
                }
            }
            // Each element that a tile is repeated to has a partial of its own.
            Op::Broadcast { value, .. } => self.give(value, 1.0.into(), *of, chosen),
            Op::Reshape { value, axes } if is_identity(&self.s.b.kernel, value, &axes) => {
                self.give(value, 1.0.into(), *of, chosen);
            }
            // What stands past an edge is no argument.
            Op::Other { value, .. } => {
                let own = self.s.through_or(*of, value);
                self.give(value, 1.0.into(), own, chosen);
            }
            Op::Splat { .. } | Op::Iota { .. } | Op::Compare(..) | Op::TableGet { .. } => {}
            Op::DimSize(_) | Op::DimTiles { .. } | Op::ScalarParam(_) => {}
            _ => self.s.b.error(121, self.s.loc, "`grad` takes a function that works element by element"),
        }
    }

    /// Gives each side of a choice the partial where that side is taken.
    fn choose(&mut self, cond: Value, sides: [Value; 2], partial: &Partial) {
        for (v, is_taken) in sides.into_iter().zip([true, false]) {
            let chosen: Vec<Side> = partial.chosen.iter().copied().chain([(cond, is_taken)]).collect();
            self.give(v, 1.0.into(), partial.of, &chosen);
        }
    }

    /// `partials[v] += factor * partial`.
    fn give(&mut self, v: Value, factor: Operand, partial: Operand, chosen: &[Side]) {
        if !self.s.b.kernel.ty(v).dtype.is_float() {
            return;
        }
        let more = self.s.times(factor, partial);
        let more = Partial { of: self.cut(more), chosen: chosen.to_vec() };
        let sum = match self.partials.get(&v).cloned() {
            Some(before) => self.sum(v, before, more),
            None => more,
        };
        self.partials.insert(v, sum);
    }

    /// The sum of two partials by one value, with the pending choices that both share.
    fn sum(&mut self, v: Value, x: Partial, y: Partial) -> Partial {
        let common = x.chosen.iter().zip(&y.chosen).take_while(|(a, b)| a == b).count();
        let (mut chosen, [of_x, of_y]) = (x.chosen[..common].to_vec(), [&x.chosen[common..], &y.chosen[common..]]);
        let taken = self.either(of_x, of_y);
        let [x, y] = [(x.of, of_x), (y.of, of_y)].map(|(of, sides)| self.made(v, of, sides));
        chosen.extend(taken.map(|taken| (taken, true)));
        Partial { of: self.s.b.binary(self.s.loc, BinaryOp::Add, x, y), chosen }
    }

    /// True where one of two ways was taken; `None` if that is always so.
    fn either(&mut self, x: &[Side], y: &[Side]) -> Option<Value> {
        match (x, y) {
            ([], _) | (_, []) => None,
            ([(a, is_a)], [(b, is_b)]) if a == b && is_a != is_b => None,
            _ => {
                let [x, y] = [x, y].map(|sides| self.taken(sides));
                let (Some(x), Some(y)) = (x, y) else { return None };
                match self.s.b.binary(self.s.loc, BinaryOp::Or, x, y) {
                    Operand::Value(either) => Some(either),
                    _ => None,
                }
            }
        }
    }

    /// True where a way was taken: all of its sides.
    fn taken(&mut self, sides: &[Side]) -> Option<Operand> {
        let mut all = None;
        for &(cond, is_taken) in sides {
            let side = if is_taken { cond.into() } else { self.s.of(UnaryOp::Not, cond) };
            all = Some(match all {
                Some(all) => self.s.b.binary(self.s.loc, BinaryOp::And, all, side),
                None => side,
            });
        }
        all
    }

    /// A partial by a value after some choices are applied: 0 where the other side was taken.
    fn made(&mut self, v: Value, of: Operand, sides: &[Side]) -> Operand {
        if sides.is_empty() || of.number() == Some(0.0) {
            return of;
        }
        let dtype = self.s.b.kernel.ty(v).dtype;
        let [mut made, zero] = [of, 0.0.into()].map(|x| self.s.as_tile(x, dtype));
        for &(cond, is_taken) in sides {
            let (yes, no) = if is_taken { (made, zero) } else { (zero, made) };
            made = self.s.b.select(self.s.loc, cond.into(), yes, no);
        }
        self.cut(made)
    }

    /// The partial by a value, after all choices are applied.
    fn finished(&mut self, v: Value) -> Operand {
        match self.partials.get(&v).cloned() {
            Some(Partial { of, chosen }) => self.made(v, of, &chosen),
            None => Operand::Literal(0.0),
        }
    }

    /// The part that passes no `or` on the way to the result.
    fn cut(&mut self, x: Operand) -> Operand {
        match self.cut {
            Some(out) => self.s.cut_at_or(x, out),
            None => x,
        }
    }

    fn binary(&mut self, op: BinaryOp, (x, y): (Value, Value), result: Value, partial: &Partial) {
        let loc = self.s.loc;
        let Partial { of, chosen } = partial;
        match op {
            BinaryOp::Add => [x, y].into_iter().for_each(|v| self.give(v, 1.0.into(), *of, chosen)),
            BinaryOp::Sub => {
                self.give(x, 1.0.into(), *of, chosen);
                self.give(y, (-1.0).into(), *of, chosen);
            }
            BinaryOp::Mul => {
                self.give(x, y.into(), *of, chosen);
                self.give(y, x.into(), *of, chosen);
            }
            BinaryOp::Div => {
                let over = self.s.b.binary(loc, BinaryOp::Div, *of, y);
                self.give(x, 1.0.into(), over, chosen);
                let by_y = self.s.by_divisor(y, result, *of);
                self.give(y, 1.0.into(), by_y, chosen);
            }
            BinaryOp::Pow | BinaryOp::Atan2 => {
                for (v, side) in [(x, slopes::OperandSide::First), (y, slopes::OperandSide::Second)] {
                    let slope = self.s.slope_of_two(op, (x, y), result, side);
                    self.give(v, slope, *of, chosen);
                }
            }
            BinaryOp::Min | BinaryOp::Max => {
                if let Operand::Value(is_x) = self.s.follows_first(op, x, y) {
                    self.choose(is_x, [x, y], partial);
                }
            }
            // Of whole numbers and bits.
            _ => {}
        }
    }
}
