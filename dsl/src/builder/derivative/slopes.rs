//! The derivative of each operation. Both modes of differentiation use it.

use crate::builder::{Builder, Operand};
use crate::entity::Value;
use crate::ir::Loc;
use crate::op::{BinaryOp, Predicate, UnaryOp};
use crate::types::DType;
use std::f64::consts::{FRAC_2_SQRT_PI, LN_2, LOG2_E, PI};

/// Builds derivatives at one source location.
pub(super) struct Slopes<'b> {
    pub(super) b: &'b mut Builder,
    pub(super) loc: Loc,
}

/// An operand of a function of two.
#[derive(Clone, Copy)]
pub(super) enum OperandSide {
    /// The left one.
    First,
    /// The right one.
    Second,
}

impl Slopes<'_> {
    pub(super) fn times(&mut self, x: Operand, y: Operand) -> Operand {
        match (x.number(), y.number()) {
            (Some(1.0), _) => y,
            (_, Some(1.0)) => x,
            // Zero times an infinity that nothing depends on is nothing.
            (Some(0.0), _) | (_, Some(0.0)) => Operand::Literal(0.0),
            _ => self.b.binary(self.loc, BinaryOp::Mul, x, y),
        }
    }

    pub(super) fn as_tile(&mut self, x: Operand, dtype: DType) -> Operand {
        match x.number() {
            Some(x) => self.b.splat(self.loc, x, dtype, &[]),
            None => x,
        }
    }

    pub(super) fn of(&mut self, op: UnaryOp, x: impl Into<Operand>) -> Operand {
        self.b.unary(self.loc, op, x)
    }

    pub(super) fn mul(&mut self, x: impl Into<Operand>, y: impl Into<Operand>) -> Operand {
        self.b.binary(self.loc, BinaryOp::Mul, x, y)
    }

    /// The derivative of an operation at `x`, where the operation gives `y`.
    pub(super) fn slope(&mut self, op: UnaryOp, x: Value, y: Value) -> Operand {
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
            UnaryOp::Log2 => self.b.binary(loc, BinaryOp::Div, LOG2_E, x),
            UnaryOp::Log1p => {
                let shifted = self.b.binary(loc, BinaryOp::Add, x, 1.0);
                self.b.binary(loc, BinaryOp::Div, 1.0, shifted)
            }
            // Far below 0, `y + 1` would have lost it.
            UnaryOp::Expm1 => self.of(UnaryOp::Exp, x),
            UnaryOp::Tanh => {
                let square = self.mul(y, y);
                self.b.binary(loc, BinaryOp::Sub, 1.0, square)
            }
            UnaryOp::Tan => {
                let square = self.mul(y, y);
                self.b.binary(loc, BinaryOp::Add, square, 1.0)
            }
            UnaryOp::Atan => {
                let square = self.mul(x, x);
                let size = self.b.binary(loc, BinaryOp::Add, square, 1.0);
                self.b.binary(loc, BinaryOp::Div, 1.0, size)
            }
            UnaryOp::Sinh => self.of(UnaryOp::Cosh, x),
            UnaryOp::Cosh => self.of(UnaryOp::Sinh, x),
            UnaryOp::Erf | UnaryOp::Erfc => {
                // Past 40 the density is 0 in every type. The derivative of an infinite square would be infinity times 0. NaN is
                // neither above nor below, and stays.
                let (above, below) =
                    (self.b.compare(loc, Predicate::Gt, x, 40.0), self.b.compare(loc, Predicate::Lt, x, -40.0));
                let x = self.b.select(loc, below, -40.0, x);
                let x = self.b.select(loc, above, 40.0, x);
                let square = self.mul(x, x);
                let minus = self.of(UnaryOp::Neg, square);
                let density = self.of(UnaryOp::Exp, minus);
                self.mul(density, if op == UnaryOp::Erf { FRAC_2_SQRT_PI } else { -FRAC_2_SQRT_PI })
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
            UnaryOp::Softplus => self.of(UnaryOp::Sigmoid, x),
            UnaryOp::Silu => self.slope_of_silu(x, y),
            UnaryOp::Gelu => self.of(UnaryOp::GeluSlope, x),
            UnaryOp::GeluSlope => self.bend_of_gelu(x),
            UnaryOp::Floor | UnaryOp::Ceil | UnaryOp::Trunc | UnaryOp::Round => 0.0.into(),
            UnaryOp::Popcount | UnaryOp::Not => 0.0.into(),
        }
    }

    /// `s + y (1 - s)`, where `s` is the logistic function, and `y` is `x s`. From 100 on, `1 - s` is 0, and `y` may be infinite.
    fn slope_of_silu(&mut self, x: Value, y: Value) -> Operand {
        let loc = self.loc;
        let gate = self.of(UnaryOp::Sigmoid, x);
        let rest = self.b.binary(loc, BinaryOp::Sub, 1.0, gate);
        let y = self.b.binary(loc, BinaryOp::Min, y, 100.0);
        let bend = self.mul(y, rest);
        self.b.binary(loc, BinaryOp::Add, gate, bend)
    }

    /// `phi(x) (2 - x²)`, where `phi` is the density of the standard normal distribution. It is even, and 0 from 20 on.
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

    /// The derivative of `result = x / y` by `y`, times `along`: `-along result / y`.
    pub(super) fn by_divisor(&mut self, y: Value, result: Value, along: Operand) -> Operand {
        let loc = self.loc;
        // What is divided by less than 1 is divided last, and by more first, so that nothing between is too large.
        let size = self.of(UnaryOp::Abs, y);
        let is_small = self.b.compare(loc, Predicate::Lt, size, 1.0);
        let dtype = self.b.kernel.ty(y).dtype;
        let one = self.as_tile(1.0.into(), dtype);
        let before = self.b.select(loc, is_small, result, one);
        let after = self.b.select(loc, is_small, one, result);
        let above = self.mul(before, along);
        let quotient = self.b.binary(loc, BinaryOp::Div, above, y);
        let quotient = self.mul(quotient, after);
        self.of(UnaryOp::Neg, quotient)
    }

    /// The derivative by one operand of a function of two, which gives `result`.
    pub(super) fn slope_of_two(
        &mut self,
        op: BinaryOp,
        (x, y): (Value, Value),
        result: Value,
        side: OperandSide,
    ) -> Operand {
        match (op, side) {
            (BinaryOp::Pow, OperandSide::First) => self.power_by_base(x, y),
            (BinaryOp::Pow, OperandSide::Second) => self.power_by_exponent(x, y, result),
            (BinaryOp::Atan2, side) => self.angle_by(x, y, side),
            _ => 0.0.into(),
        }
    }

    /// `y x^(y - 1)`, and 0 where `y` is, also at an `x` of 0.
    fn power_by_base(&mut self, x: Value, y: Value) -> Operand {
        let loc = self.loc;
        let less = self.b.binary(loc, BinaryOp::Sub, y, 1.0);
        let power = self.b.binary(loc, BinaryOp::Pow, x, less);
        let slope = self.mul(y, power);
        let is_constant = self.b.compare(loc, Predicate::Eq, y, 0.0);
        self.b.select(loc, is_constant, 0.0, slope)
    }

    /// `x^y log(x)`, and 0 where the power is, and where `x` and `y` are. The logarithm is infinite there.
    fn power_by_exponent(&mut self, x: Value, y: Value, result: Value) -> Operand {
        let loc = self.loc;
        let rate = self.of(UnaryOp::Log, x);
        let slope = self.mul(result, rate);
        let [none, x, y] = [result, x, y].map(|v| self.b.compare(loc, Predicate::Eq, v, 0.0));
        let both = self.b.binary(loc, BinaryOp::And, x, y);
        let is_flat = self.b.binary(loc, BinaryOp::Or, none, both);
        self.b.select(loc, is_flat, 0.0, slope)
    }

    /// `x / (x² + y²)` by `y`, and `-y / (x² + y²)` by `x`, without squares that leave the range. 0 at the origin, which has no
    /// angle, and at infinity.
    fn angle_by(&mut self, y: Value, x: Value, side: OperandSide) -> Operand {
        let loc = self.loc;
        let (size_x, size_y) = (self.of(UnaryOp::Abs, x), self.of(UnaryOp::Abs, y));
        let size = self.b.binary(loc, BinaryOp::Max, size_x, size_y);
        let [x, y] = [x, y].map(|v| self.b.binary(loc, BinaryOp::Div, v, size));
        let (squared_x, squared_y) = (self.mul(x, x), self.mul(y, y));
        let square = self.b.binary(loc, BinaryOp::Add, squared_x, squared_y);
        let across = match side {
            OperandSide::First => x,
            OperandSide::Second => self.of(UnaryOp::Neg, y),
        };
        let slope = self.b.binary(loc, BinaryOp::Div, across, square);
        let slope = self.b.binary(loc, BinaryOp::Div, slope, size);
        let [least, most] = [0.0, f64::INFINITY].map(|end| self.b.compare(loc, Predicate::Eq, size, end));
        let is_flat = self.b.binary(loc, BinaryOp::Or, least, most);
        self.b.select(loc, is_flat, 0.0, slope)
    }

    /// The condition under which `max(x, y)` or `min(x, y)` follows `x`.
    pub(super) fn follows_first(&mut self, op: BinaryOp, x: Value, y: Value) -> Operand {
        let predicate = if op == BinaryOp::Max { Predicate::Gt } else { Predicate::Lt };
        self.b.compare(self.loc, predicate, x, y)
    }
}
