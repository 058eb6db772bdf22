//! Element-wise operations of constants.

use crate::op::{BinaryOp, UnaryOp};

/// The value of an element-wise operation of a constant, in f64; `None` where it has none.
pub fn fold_unary(op: UnaryOp, x: f64) -> Option<f64> {
    Some(match op {
        UnaryOp::Neg => -x,
        UnaryOp::Abs => x.abs(),
        UnaryOp::Exp => x.exp(),
        UnaryOp::Exp2 => x.exp2(),
        UnaryOp::Log => x.ln(),
        UnaryOp::Tanh => x.tanh(),
        UnaryOp::Sqrt => x.sqrt(),
        UnaryOp::Rsqrt => 1.0 / x.sqrt(),
        UnaryOp::Sin => x.sin(),
        UnaryOp::Cos => x.cos(),
        UnaryOp::Sigmoid => 1.0 / (1.0 + (-x).exp()),
        UnaryOp::Erf if x == 0.0 => 0.0,
        UnaryOp::Erf | UnaryOp::Not => return None,
    })
}

/// The value of an element-wise operation of two constants, in f64; `None` where it has none.
pub fn fold_binary(op: BinaryOp, x: f64, y: f64) -> Option<f64> {
    Some(match op {
        BinaryOp::Add => x + y,
        BinaryOp::Sub => x - y,
        BinaryOp::Mul => x * y,
        BinaryOp::Div => x / y,
        BinaryOp::Rem => x % y,
        BinaryOp::Min => x.min(y),
        BinaryOp::Max => x.max(y),
        BinaryOp::And | BinaryOp::Or => return None,
    })
}
