//! Forward mode: a walk over the operations that the function appended, in order, gives the derivative along a direction.

use super::is_identity;
use super::slopes::{OperandSide, Slopes};
use crate::builder::{Builder, Operand};
use crate::entity::{Inst, Value};
use crate::ir::Loc;
use crate::op::{BinaryOp, Op};
use std::collections::BTreeMap;

impl Builder {
    /// The derivative of `f` at `args` along `tangents`, `sum_i df/darg_i tangent_i` (a product of the Jacobian and a vector).
    /// A tangent has the element type of its argument and broadcasts with it; it may be a number, and is 0 for an argument that
    /// does not change.
    pub fn jvp<const N: usize>(
        &mut self,
        loc: Loc,
        args: [Operand; N],
        tangents: [Operand; N],
        f: impl FnOnce(&mut Builder, [Operand; N]) -> Operand,
    ) -> Operand {
        let args = self.distinct(loc, args);
        let Some((out, insts)) = self.traced(loc, args, f) else { return Operand::Poison };
        let along = args.iter().zip(tangents).filter_map(|(arg, tangent)| match arg {
            Operand::Value(v) => Some((*v, tangent)),
            _ => None,
        });
        let mut walk = ForwardWalk { tangents: along.collect(), s: Slopes { b: self, loc } };
        for inst in insts.map(|i| Inst::from_u32(i as u32)) {
            walk.through(inst);
        }
        let tangent = walk.along(out);
        let ty = self.kernel.ty(out).clone();
        let along = match tangent {
            Operand::Poison => Operand::Poison,
            Operand::Value(v) => self.broadcast_value(loc, v, &ty.shape).map_or(Operand::Poison, Operand::Value),
            number => self.splat(loc, number.number().unwrap_or(0.0), ty.dtype, &ty.shape),
        };
        Slopes { b: self, loc }.valid_with(along, out)
    }
}

/// The forward walk: how fast each value changes that depends on an argument.
struct ForwardWalk<'b> {
    s: Slopes<'b>,
    tangents: BTreeMap<Value, Operand>,
}

impl ForwardWalk<'_> {
    fn along(&self, v: Value) -> Operand {
        self.tangents.get(&v).copied().unwrap_or(Operand::Literal(0.0))
    }

    /// The tangent of an operation's result, from those of its operands.
    fn through(&mut self, inst: Inst) {
        let Some(&result) = self.s.b.kernel.results[inst].first() else { return };
        let loc = self.s.loc;
        let tangent = match self.s.b.kernel.insts[inst].clone() {
            Op::Unary(op, x) => match self.along(x) {
                still if is_zero(still) => still,
                tangent => {
                    let slope = self.s.slope(op, x, result);
                    self.s.times(slope, tangent)
                }
            },
            Op::Binary(op, x, y) => self.binary(op, (x, y), result),
            Op::Select { cond, on_true, on_false } => {
                let dtype = self.s.b.kernel.ty(result).dtype;
                match [on_true, on_false].map(|v| self.along(v)) {
                    [yes, no] if on_true == on_false || is_zero(yes) && is_zero(no) => yes,
                    sides => {
                        let [yes, no] = sides.map(|t| self.s.as_tile(t, dtype));
                        self.s.b.select(loc, cond.into(), yes, no)
                    }
                }
            }
            Op::Fma(a, b, c) => {
                let [by_a, by_b, by_c] = [a, b, c].map(|v| self.along(v));
                let (first, second) = (self.s.times(by_a, b.into()), self.s.times(a.into(), by_b));
                let both = self.plus(first, second);
                self.plus(both, by_c)
            }
            Op::Cast(to, x) if to.is_float() => match self.along(x) {
                Operand::Value(_) => {
                    let tangent = self.along(x);
                    self.s.b.cast(loc, to, tangent)
                }
                number => number,
            },
            Op::Broadcast { value, .. } => {
                let shape = self.s.b.kernel.ty(result).shape.clone();
                match self.along(value) {
                    Operand::Value(v) => {
                        self.s.b.broadcast_value(loc, v, &shape).map_or(Operand::Poison, Operand::Value)
                    }
                    number => number,
                }
            }
            // What stands past an edge stands still.
            Op::Other { value, .. } => {
                let tangent = self.along(value);
                self.s.along_or(tangent, value)
            }
            Op::Reshape { value, axes } if is_identity(&self.s.b.kernel, value, &axes) => self.along(value),
            Op::Cast(..) | Op::Splat { .. } | Op::Iota { .. } | Op::Compare(..) | Op::TableGet { .. } => return,
            Op::DimSize(_) | Op::DimTiles { .. } | Op::ScalarParam(_) => return,
            _ => {
                self.s.b.error(121, loc, "`jvp` takes a function that works element by element");
                return;
            }
        };
        if !is_zero(tangent) {
            self.tangents.insert(result, tangent);
        }
    }

    fn binary(&mut self, op: BinaryOp, (x, y): (Value, Value), result: Value) -> Operand {
        let loc = self.s.loc;
        let (by_x, by_y) = (self.along(x), self.along(y));
        match op {
            BinaryOp::Add => self.plus(by_x, by_y),
            BinaryOp::Sub => {
                let minus = self.s.times((-1.0).into(), by_y);
                self.plus(by_x, minus)
            }
            BinaryOp::Mul => {
                let (first, second) = (self.s.times(by_x, y.into()), self.s.times(x.into(), by_y));
                self.plus(first, second)
            }
            BinaryOp::Div => {
                let first = if is_zero(by_x) { by_x } else { self.s.b.binary(loc, BinaryOp::Div, by_x, y) };
                let second = if is_zero(by_y) { by_y } else { self.s.by_divisor(y, result, by_y) };
                self.plus(first, second)
            }
            BinaryOp::Pow | BinaryOp::Atan2 => {
                let mut sum = Operand::Literal(0.0);
                for (along, side) in [(by_x, OperandSide::First), (by_y, OperandSide::Second)] {
                    if !is_zero(along) {
                        let slope = self.s.slope_of_two(op, (x, y), result, side);
                        let term = self.s.times(slope, along);
                        sum = self.plus(sum, term);
                    }
                }
                sum
            }
            BinaryOp::Min | BinaryOp::Max if is_zero(by_x) && is_zero(by_y) => by_x,
            BinaryOp::Min | BinaryOp::Max => {
                let is_x = self.s.follows_first(op, x, y);
                let dtype = self.s.b.kernel.ty(x).dtype;
                let [by_x, by_y] = [by_x, by_y].map(|t| self.s.as_tile(t, dtype));
                self.s.b.select(loc, is_x, by_x, by_y)
            }
            // Of whole numbers and bits.
            _ => Operand::Literal(0.0),
        }
    }

    fn plus(&mut self, x: Operand, y: Operand) -> Operand {
        if is_zero(x) {
            y
        } else if is_zero(y) {
            x
        } else {
            self.s.b.binary(self.s.loc, BinaryOp::Add, x, y)
        }
    }
}

/// True if nothing changes. Such a term is dropped: zero times an infinity that nothing depends on must not give NaN.
fn is_zero(tangent: Operand) -> bool {
    tangent.number() == Some(0.0)
}
