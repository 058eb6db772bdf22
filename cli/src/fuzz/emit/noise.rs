//! Errors as large as those of a device.

use super::{Emitter, OF_SUMS, R};
use crate::fuzz::recipe::Expr;
use atlas_dsl::op::{BinaryOp, Op, UnaryOp, Update};
use atlas_dsl::{DType, Value};

impl Emitter<'_> {
    /// What a store combines with, as a term of a sum whose order is not known.
    pub(super) fn in_any_order(&mut self, update: Update, e: &Expr) -> R<Value> {
        let mut v = self.expr(e)?;
        let is_inexact = update.depends_on_order(self.kernel.ty(v).dtype);
        if is_inexact && self.noise.is_some() {
            let size = self.push(Op::Unary(UnaryOp::Abs, v))?;
            v = self.add_noise(v, size, 4.0 * OF_SUMS)?;
        }
        Ok(if is_inexact { self.marked(v) } else { v })
    }

    /// `v + size * noise`, with noise of at most `most`, different for each element.
    pub(super) fn add_noise(&mut self, v: Value, size: Value, most: f64) -> R<Value> {
        let shape = self.kernel.ty(v).shape.clone();
        let sign = self.noise.map_or(1.0, |n| n.sign);
        let phase = self.rng.unit() * 6.0;
        let mut phase = self.splat(phase, &shape)?;
        for axis in 0..shape.len() as u8 {
            let i = self.push(Op::Iota { shape: shape.clone(), axis })?;
            let i = self.push(Op::Cast(DType::F32, i))?;
            let step = 1.0 + self.rng.unit() * 4.0;
            let step = self.splat(step, &shape)?;
            let i = self.push(Op::Binary(BinaryOp::Mul, i, step))?;
            phase = self.push(Op::Binary(BinaryOp::Add, phase, i))?;
        }
        let wave = self.push(Op::Unary(UnaryOp::Sin, phase))?;
        let most = self.splat(sign * most, &shape)?;
        let wave = self.push(Op::Binary(BinaryOp::Mul, wave, most))?;
        let noise = self.push(Op::Binary(BinaryOp::Mul, size, wave))?;
        self.push(Op::Binary(BinaryOp::Add, v, noise))
    }
}
