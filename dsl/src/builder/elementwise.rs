//! Element-wise operations, comparisons, choices and conversions.

use super::{Builder, Operand, fold_binary, fold_whole};
use crate::fold::round;
use crate::ir::Loc;
use crate::op::{BinaryOp, Op, Predicate, UnaryOp};
use crate::types::{DType, broadcast_shapes};
use atlas_vocabulary::number;

impl Builder {
    /// An element-wise operation of one operand. Literals fold.
    pub fn unary(&mut self, loc: Loc, op: UnaryOp, x: impl Into<Operand>) -> Operand {
        let x = x.into();
        match (x, op) {
            (Operand::Value(v), _) => self.push(loc, Op::Unary(op, v)),
            (Operand::Poison, _) => Operand::Poison,
            (Operand::Whole(n), UnaryOp::Neg) => Operand::Whole(n.saturating_neg()),
            (Operand::Whole(n), UnaryOp::Abs) => Operand::Whole(n.saturating_abs()),
            _ => match x.number().filter(|_| op != UnaryOp::Not).and_then(|x| op.of_number(x)) {
                Some(y) => Operand::Literal(y),
                None => {
                    self.error(104, loc, format!("`{}` does not apply to a literal", op.name()));
                    Operand::Poison
                }
            },
        }
    }

    /// An element-wise operation of two operands; literals adapt, extents of 1 broadcast.
    pub fn binary(&mut self, loc: Loc, op: BinaryOp, a: impl Into<Operand>, b: impl Into<Operand>) -> Operand {
        let (a, b) = (a.into(), b.into());
        if let (Operand::Whole(x), Operand::Whole(y)) = (a, b)
            && !matches!(op, BinaryOp::And | BinaryOp::Or)
            && !op.is_function()
        {
            return fold_whole(op, x, y).map_or_else(
                |why| {
                    self.error(117, loc, why);
                    Operand::Poison
                },
                Operand::Whole,
            );
        }
        if let (Some(x), Some(y)) = (a.number(), b.number())
            && let Some(z) = fold_binary(op, x, y)
        {
            return Operand::Literal(z);
        }
        match self.unify(loc, a, b) {
            Some((a, b)) => self.push(loc, Op::Binary(op, a, b)),
            None => Operand::Poison,
        }
    }

    /// An element-wise comparison.
    pub fn compare(&mut self, loc: Loc, p: Predicate, a: impl Into<Operand>, b: impl Into<Operand>) -> Operand {
        match self.unify(loc, a.into(), b.into()) {
            Some((a, b)) => self.push(loc, Op::Compare(p, a, b)),
            None => Operand::Poison,
        }
    }

    /// `a * b + c`, rounded once; literals adapt, extents of 1 broadcast.
    pub fn fma(&mut self, loc: Loc, a: Operand, b: Operand, c: Operand) -> Operand {
        if let (Some(a), Some(b), Some(c)) = (a.number(), b.number(), c.number()) {
            return Operand::Literal(a.mul_add(b, c));
        }
        self.fused(loc, [a, b, c]).unwrap_or(Operand::Poison)
    }

    fn fused(&mut self, loc: Loc, operands: [Operand; 3]) -> Option<Operand> {
        let like = operands.iter().find_map(|x| if let Operand::Value(v) = x { Some(*v) } else { None })?;
        let mut values = [like; 3];
        for (value, x) in values.iter_mut().zip(operands) {
            *value = match x {
                Operand::Value(v) => v,
                number => self.literal_like(loc, number.number()?, like)?,
            };
        }
        // The second pair has all the extents, which the third one hands on.
        let [a, b, c] = values.map(Operand::Value);
        let (a, _) = self.unify(loc, a, b)?;
        let (a, c) = self.unify(loc, a.into(), c)?;
        let (a, b) = self.unify(loc, a.into(), b)?;
        Some(self.push(loc, Op::Fma(a, b, c)))
    }

    /// `min(max(x, lo), hi)`: NaN if any of them is NaN, and `hi` if `lo` is above it.
    pub fn clamp(&mut self, loc: Loc, x: Operand, lo: Operand, hi: Operand) -> Operand {
        let above = self.binary(loc, BinaryOp::Max, x, lo);
        self.binary(loc, BinaryOp::Min, above, hi)
    }

    /// True where an element is NaN, the one number that is not equal to itself.
    pub fn is_nan(&mut self, loc: Loc, x: Operand) -> Operand {
        let Operand::Value(v) = x else {
            if x != Operand::Poison {
                self.error(104, loc, "`is_nan` does not apply to a literal");
            }
            return Operand::Poison;
        };
        let ty = self.kernel.ty(v);
        if !ty.dtype.is_float() {
            let message = format!("`is_nan` does not apply to {ty}");
            self.error(104, loc, message);
            return Operand::Poison;
        }
        self.compare(loc, Predicate::Ne, v, v)
    }

    /// `cond ? on_true : on_false`, with broadcasting and adapting literals.
    pub fn select(
        &mut self,
        loc: Loc,
        cond: Operand,
        on_true: impl Into<Operand>,
        on_false: impl Into<Operand>,
    ) -> Operand {
        let Operand::Value(c) = cond else { return Operand::Poison };
        let (t, f) = (on_true.into(), on_false.into());
        // Two literals choose an f32 tile.
        let t = match (t.number(), f.number()) {
            (Some(x), Some(_)) => self.splat(loc, x, DType::F32, &[]),
            _ => t,
        };
        let Some((t, f)) = self.unify(loc, t, f) else { return Operand::Poison };
        let Some(shape) = broadcast_shapes(&self.kernel.ty(c).shape, &self.kernel.ty(t).shape) else {
            let message = format!("`select` of {} by a condition {}", self.kernel.ty(t), self.kernel.ty(c));
            self.error(107, loc, message);
            return Operand::Poison;
        };
        let [c, t, f] = [c, t, f].map(|v| self.broadcast_value(loc, v, &shape));
        match (c, t, f) {
            (Some(cond), Some(on_true), Some(on_false)) => self.push(loc, Op::Select { cond, on_true, on_false }),
            _ => Operand::Poison,
        }
    }

    /// Conversion to another element type. Appends nothing if the operand has that type already.
    pub fn cast(&mut self, loc: Loc, dtype: DType, x: impl Into<Operand>) -> Operand {
        match x.into() {
            Operand::Value(v) if self.kernel.ty(v).dtype == dtype => Operand::Value(v),
            Operand::Value(v) => self.push(loc, Op::Cast(dtype, v)),
            Operand::Whole(n) => self.splat(loc, n as f64, dtype, &[]),
            // As of a tile: truncated and saturated, or rounded.
            Operand::Literal(x) if dtype.is_whole() => self.splat(loc, dtype.saturated(x) as f64, dtype, &[]),
            Operand::Literal(x) => self.splat(loc, round(dtype, x), dtype, &[]),
            Operand::Poison => Operand::Poison,
        }
    }

    /// Conversion to the element type of another tile.
    pub fn cast_like(&mut self, loc: Loc, x: Operand, like: Operand) -> Operand {
        match like {
            Operand::Value(v) => {
                let dtype = self.kernel.ty(v).dtype;
                self.cast(loc, dtype, x)
            }
            Operand::Poison => Operand::Poison,
            _ => {
                self.error(106, loc, "`cast_like` takes the element type of a tile, found a number");
                Operand::Poison
            }
        }
    }

    /// The tile with a number where an element is not valid: `load(x[n, d]).or(0.0)`.
    pub fn other(&mut self, loc: Loc, x: Operand, other: impl Into<Operand>) -> Operand {
        let other = other.into();
        match (x, other.number()) {
            (Operand::Poison, _) => Operand::Poison,
            (Operand::Value(value), Some(other)) => {
                let dtype = self.kernel.ty(value).dtype;
                match dtype.overflow(other) {
                    None => {
                        let axes = (0..self.kernel.ty(value).rank() as u8).collect();
                        self.push(loc, Op::Other { value, other, axes })
                    }
                    Some(why) => {
                        self.error(117, loc, format!("the number {} meets {dtype}, but {why}", number(other)));
                        Operand::Poison
                    }
                }
            }
            (Operand::Value(_), None) => {
                if other != Operand::Poison {
                    self.error(120, loc, "what stands past an edge is a number that is known when the kernel is built");
                }
                Operand::Poison
            }
            (Operand::Literal(_) | Operand::Whole(_), _) => {
                self.error(104, loc, "`or` needs a tile, found a number");
                Operand::Poison
            }
        }
    }
}
