//! The gradient of a function of tiles: what the function appended, walked backward (reverse-mode differentiation).
//!
//! The function is element-wise, so that an element of its result depends on one element of each argument, and a partial
//! derivative is a tile of the result's extents: an argument of extent 1 has one for each element that it is repeated to.
//! A partial has the element type of its argument. Where a function has no derivative, one of its sides is taken: that of
//! `abs` is 0 at 0, `max(x, y)` and `min(x, y)` follow `y` where both are equal (a ReLU is flat at 0), and `floor` and `round`
//! are flat.

use super::{Builder, Operand};
use crate::entity::{Inst, Value};
use crate::ir::Loc;
use crate::op::{BinaryOp, Op, Predicate, UnaryOp};
use crate::types::DType;
use std::collections::BTreeMap;
use std::f64::consts::{FRAC_2_SQRT_PI, LN_2, PI};

impl Builder {
    /// The partial derivatives of `f` by each of its arguments. A number among them has none, and gives 0.
    pub fn gradient<const N: usize>(
        &mut self,
        loc: Loc,
        args: [Operand; N],
        f: impl FnOnce(&mut Builder, [Operand; N]) -> Operand,
    ) -> [Operand; N] {
        let mut given: Vec<Value> = Vec::new();
        let args = args.map(|arg| match arg {
            // One tile that is given twice is two arguments.
            Operand::Value(v) if given.contains(&v) => {
                let shape = self.kernel.ty(v).shape.clone();
                self.reshape(loc, arg, &shape)
            }
            Operand::Value(v) => {
                given.push(v);
                arg
            }
            number => number,
        });
        let first = self.kernel.insts.len();
        let result = f(self, args);
        let end = self.kernel.insts.len();
        let Operand::Value(out) = result else {
            if result != Operand::Poison {
                self.error(121, loc, "the gradient of a number; what is differentiated gives a tile");
            }
            return [Operand::Poison; N];
        };
        let mut walk = Walk { b: self, loc, partials: BTreeMap::from([(out, Operand::Literal(1.0))]) };
        for inst in (first..end).rev().map(|i| Inst::from_u32(i as u32)) {
            walk.through(inst);
        }
        let partials = walk.partials;
        let shape = self.kernel.ty(out).shape.clone();
        args.map(|arg| match arg {
            Operand::Value(v) => {
                let dtype = self.kernel.ty(v).dtype;
                match partials.get(&v).copied().unwrap_or(Operand::Literal(0.0)) {
                    Operand::Value(p) => self.broadcast_value(loc, p, &shape).map_or(Operand::Poison, Operand::Value),
                    Operand::Poison => Operand::Poison,
                    number => self.splat(loc, number.number().unwrap_or(0.0), dtype, &shape),
                }
            }
            Operand::Poison => Operand::Poison,
            _ => Operand::Literal(0.0),
        })
    }
}

/// The walk backward: what the result's derivative by each value is, as far as it is known.
struct Walk<'b> {
    b: &'b mut Builder,
    loc: Loc,
    partials: BTreeMap<Value, Operand>,
}

impl Walk<'_> {
    /// Hands the partial of an operation's result on to its operands.
    fn through(&mut self, inst: Inst) {
        let Some(&result) = self.b.kernel.results[inst].first() else { return };
        let Some(&partial) = self.partials.get(&result) else { return };
        match self.b.kernel.insts[inst].clone() {
            Op::Unary(op, x) => {
                let slope = self.slope(op, x, result);
                self.give(x, slope, partial);
            }
            Op::Binary(op, x, y) => self.binary(op, (x, y), result, partial),
            Op::Select { cond, on_true, on_false } => {
                for (v, [yes, no]) in [(on_true, [partial, 0.0.into()]), (on_false, [0.0.into(), partial])] {
                    let dtype = self.b.kernel.ty(v).dtype;
                    let [yes, no] = [yes, no].map(|x| self.as_tile(x, dtype));
                    let chosen = self.b.select(self.loc, cond.into(), yes, no);
                    self.give(v, 1.0.into(), chosen);
                }
            }
            Op::Cast(to, x) => {
                let from = self.b.kernel.ty(x).dtype;
                if to.is_float() && from.is_float() {
                    let partial = match partial {
                        Operand::Value(_) => self.b.cast(self.loc, from, partial),
                        number => number,
                    };
                    self.give(x, 1.0.into(), partial);
                }
            }
            // Each element that a tile is repeated to has a partial of its own.
            Op::Broadcast { value, .. } => self.give(value, 1.0.into(), partial),
            Op::Reshape { value, .. } if self.b.kernel.ty(value) == self.b.kernel.ty(result) => {
                self.give(value, 1.0.into(), partial);
            }
            // What stands past an edge is no argument.
            Op::Other { value, .. } => {
                let dtype = self.b.kernel.ty(value).dtype;
                let own = self.as_tile(partial, dtype);
                self.give(value, 1.0.into(), own);
            }
            Op::Splat { .. } | Op::Iota { .. } | Op::Compare(..) | Op::TableGet { .. } => {}
            Op::DimSize(_) | Op::DimTiles { .. } | Op::ScalarParam(_) => {}
            _ => self.b.error(121, self.loc, "`grad` takes a function that works element by element"),
        }
    }

    /// `partials[v] += factor * partial`.
    fn give(&mut self, v: Value, factor: Operand, partial: Operand) {
        if !self.b.kernel.ty(v).dtype.is_float() {
            return;
        }
        let more = self.times(factor, partial);
        let sum = match self.partials.get(&v).copied() {
            Some(before) => self.b.binary(self.loc, BinaryOp::Add, before, more),
            None => more,
        };
        self.partials.insert(v, sum);
    }

    fn times(&mut self, x: Operand, y: Operand) -> Operand {
        match (x.number(), y.number()) {
            (Some(1.0), _) => y,
            (_, Some(1.0)) => x,
            // Zero times an infinity that nothing depends on is nothing.
            (Some(0.0), _) | (_, Some(0.0)) => Operand::Literal(0.0),
            _ => self.b.binary(self.loc, BinaryOp::Mul, x, y),
        }
    }

    fn as_tile(&mut self, x: Operand, dtype: DType) -> Operand {
        match x.number() {
            Some(x) => self.b.splat(self.loc, x, dtype, &[]),
            None => x,
        }
    }

    fn of(&mut self, op: UnaryOp, x: impl Into<Operand>) -> Operand {
        self.b.unary(self.loc, op, x)
    }

    fn mul(&mut self, x: impl Into<Operand>, y: impl Into<Operand>) -> Operand {
        self.b.binary(self.loc, BinaryOp::Mul, x, y)
    }

    /// The derivative of an operation at `x`, where it gives `y`.
    fn slope(&mut self, op: UnaryOp, x: Value, y: Value) -> Operand {
        let loc = self.loc;
        match op {
            UnaryOp::Neg => (-1.0).into(),
            UnaryOp::Abs => {
                let above = self.b.compare(loc, Predicate::Gt, x, 0.0);
                let below = self.b.compare(loc, Predicate::Lt, x, 0.0);
                let dtype = self.b.kernel.ty(x).dtype;
                let [one, zero, minus] = [1.0, 0.0, -1.0].map(|n| self.as_tile(n.into(), dtype));
                let rest = self.b.select(loc, below, minus, zero);
                self.b.select(loc, above, one, rest)
            }
            UnaryOp::Exp => y.into(),
            UnaryOp::Exp2 => self.mul(y, LN_2),
            UnaryOp::Log => self.b.binary(loc, BinaryOp::Div, 1.0, x),
            UnaryOp::Tanh => {
                let square = self.mul(y, y);
                self.b.binary(loc, BinaryOp::Sub, 1.0, square)
            }
            UnaryOp::Erf => {
                let square = self.mul(x, x);
                let minus = self.of(UnaryOp::Neg, square);
                let density = self.of(UnaryOp::Exp, minus);
                self.mul(density, FRAC_2_SQRT_PI)
            }
            UnaryOp::Sqrt => self.b.binary(loc, BinaryOp::Div, 0.5, y),
            UnaryOp::Rsqrt => {
                // A cube leaves the range of f16 before its half does.
                let square = self.mul(y, y);
                let half = self.mul(y, -0.5);
                self.mul(half, square)
            }
            UnaryOp::Sin => self.of(UnaryOp::Cos, x),
            UnaryOp::Cos => {
                let sine = self.of(UnaryOp::Sin, x);
                self.of(UnaryOp::Neg, sine)
            }
            UnaryOp::Sigmoid => {
                let rest = self.b.binary(loc, BinaryOp::Sub, 1.0, y);
                self.mul(y, rest)
            }
            UnaryOp::Gelu => self.of(UnaryOp::GeluSlope, x),
            UnaryOp::GeluSlope => self.bend_of_gelu(x),
            UnaryOp::Floor | UnaryOp::Round | UnaryOp::Not => 0.0.into(),
        }
    }

    /// `phi(x) (2 - x²)`, of the standard normal distribution, which is even, and 0 from 20 on.
    fn bend_of_gelu(&mut self, x: Value) -> Operand {
        let loc = self.loc;
        let size = self.of(UnaryOp::Abs, x);
        let x = self.b.binary(loc, BinaryOp::Min, size, 20.0);
        let square = self.mul(x, x);
        let scaled = self.mul(square, -0.5);
        let peak = self.of(UnaryOp::Exp, scaled);
        let density = self.mul(peak, 1.0 / (2.0 * PI).sqrt());
        let rest = self.b.binary(loc, BinaryOp::Sub, 2.0, square);
        self.mul(density, rest)
    }

    fn binary(&mut self, op: BinaryOp, (x, y): (Value, Value), result: Value, partial: Operand) {
        let loc = self.loc;
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
                let over = self.b.binary(loc, BinaryOp::Div, partial, y);
                self.give(x, 1.0.into(), over);
                // What is divided by less than 1 is divided last, and by more first, so that nothing between is too large.
                let size = self.of(UnaryOp::Abs, y);
                let is_small = self.b.compare(loc, Predicate::Lt, size, 1.0);
                let dtype = self.b.kernel.ty(y).dtype;
                let one = self.as_tile(1.0.into(), dtype);
                let before = self.b.select(loc, is_small, result, one);
                let after = self.b.select(loc, is_small, one, result);
                let above = self.mul(before, partial);
                let quotient = self.b.binary(loc, BinaryOp::Div, above, y);
                let quotient = self.mul(quotient, after);
                let by_y = self.of(UnaryOp::Neg, quotient);
                self.give(y, 1.0.into(), by_y);
            }
            BinaryOp::Min | BinaryOp::Max => {
                let first = if op == BinaryOp::Max { Predicate::Gt } else { Predicate::Lt };
                let is_x = self.b.compare(loc, first, x, y);
                let dtype = self.b.kernel.ty(x).dtype;
                let partial = self.as_tile(partial, dtype);
                let zero = self.as_tile(0.0.into(), dtype);
                let of_x = self.b.select(loc, is_x, partial, zero);
                let of_y = self.b.select(loc, is_x, zero, partial);
                self.give(x, 1.0.into(), of_x);
                self.give(y, 1.0.into(), of_y);
            }
            // Of whole numbers and bits.
            BinaryOp::Rem | BinaryOp::And | BinaryOp::Or => {}
        }
    }
}
