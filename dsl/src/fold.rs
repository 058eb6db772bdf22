//! Constant folding through element-wise operations, by type: what is known of a result on which every device agrees.
//!
//! The compiler asks this about elements that no kernel computes on purpose, such as the padding of a layout. So an answer may
//! only be given if every implementation that the language allows gives the same one. `exp(0)` is 1 on all of them, but
//! `exp(1)` differs. The sign of a zero is not kept.

use crate::op::{BinaryOp, Predicate, UnaryOp};
use crate::rounding::{to_bf16, to_f16};
use crate::types::DType;
use atlas_vocabulary::{multiply_high, shift_left, shift_right, shift_right_logical};
use half::{bf16, f16};

/// What is known of an element of a type.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Known {
    /// Exactly this value, which the type can hold; a bool is 0 or 1. Never NaN; may be infinite.
    Exact(f64),
    /// Some value that is neither infinite nor NaN.
    Finite,
}

use Known::{Exact, Finite};

/// The largest magnitude below which f64 holds every whole number.
const WHOLE: f64 = 9_007_199_254_740_992.0;

impl Known {
    /// A constant in a type, rounded to it. `None` for NaN and for values that the type cannot hold.
    pub fn constant(dtype: DType, x: f64) -> Option<Known> {
        match dtype {
            DType::Bool => Some(Exact(f64::from(u8::from(x != 0.0)))),
            dtype if dtype.is_whole() => integer(x).filter(|&i| dtype.low_bits(i) == i).and_then(|_| exact(x)),
            float => exact(round(float, x)),
        }
    }

    /// True if the value is neither infinite nor NaN.
    fn is_finite(self) -> bool {
        match self {
            Exact(x) => x.is_finite(),
            Finite => true,
        }
    }

    fn is(self, x: f64) -> bool {
        self == Exact(x)
    }

    /// What is known of a value that is one of two.
    pub fn join(self, other: Known) -> Option<Known> {
        match (self, other) {
            (a, b) if a == b => Some(a),
            (a, b) => (a.is_finite() && b.is_finite()).then_some(Finite),
        }
    }
}

/// What is known of `op x`, for an `x` of type `dtype`.
pub fn unary(op: UnaryOp, dtype: DType, x: Known) -> Option<Known> {
    match (op, x) {
        (UnaryOp::Neg | UnaryOp::Abs | UnaryOp::Not | UnaryOp::Popcount, _) if dtype.is_int() => {
            one_integer(op, dtype, x)
        }
        (op, Exact(x)) if op.row().exact => op.of_number(x).and_then(exact),
        (op, Finite) if op.row().exact => Some(Finite),
        // A half of it may be computed by approximate instructions.
        (UnaryOp::Sigmoid, Exact(0.0)) => Some(Finite),
        (op, Exact(0.0)) => op.row().at_zero.and_then(exact),
        _ => None,
    }
}

/// `-x` wraps at the smallest number. `abs` of it differs among devices.
fn one_integer(op: UnaryOp, dtype: DType, x: Known) -> Option<Known> {
    let Exact(value) = x else { return Some(Finite) };
    match op {
        UnaryOp::Neg => wrap(dtype, -i128::from(integer(value)?)),
        UnaryOp::Not => wrap(dtype, i128::from(!integer(value)?)),
        UnaryOp::Popcount if dtype == DType::I32 => exact(f64::from((value as i32).count_ones())),
        UnaryOp::Popcount => exact(f64::from(integer(value)?.count_ones())),
        _ if dtype == DType::I32 && value == f64::from(i32::MIN) => None,
        _ => exact(value.abs()),
    }
}

/// What is known of `x op y`, for operands of type `dtype`.
pub fn binary(op: BinaryOp, dtype: DType, x: Known, y: Known) -> Option<Known> {
    match dtype {
        DType::Bool => logical(op, x, y),
        DType::I32 | DType::I64 => integers(op, dtype, x, y),
        _ => floats(op, dtype, x, y),
    }
}

fn logical(op: BinaryOp, x: Known, y: Known) -> Option<Known> {
    let decides = match op {
        BinaryOp::And => 0.0,
        BinaryOp::Or => 1.0,
        BinaryOp::BitAnd => 0.0,
        BinaryOp::BitOr => 1.0,
        BinaryOp::BitXor => {
            return Some(match (x, y) {
                (Exact(x), Exact(y)) => Exact(f64::from(u8::from(x != y))),
                _ => Finite,
            });
        }
        _ => return None,
    };
    Some(match (x, y) {
        (a, b) if a.is(decides) || b.is(decides) => Exact(decides),
        (Exact(_), Exact(_)) => Exact(1.0 - decides),
        _ => Finite,
    })
}

fn integers(op: BinaryOp, dtype: DType, x: Known, y: Known) -> Option<Known> {
    let (Exact(a), Exact(b)) = (x, y) else { return unknown_integers(op, x, y) };
    let (a, b) = (i128::from(integer(a)?), i128::from(integer(b)?));
    match op {
        BinaryOp::Add => wrap(dtype, a + b),
        BinaryOp::Sub => wrap(dtype, a - b),
        BinaryOp::Mul => wrap(dtype, a * b),
        BinaryOp::Min => wrap(dtype, a.min(b)),
        BinaryOp::Max => wrap(dtype, a.max(b)),
        // By zero, and where the quotient does not fit, devices differ.
        BinaryOp::Div | BinaryOp::Rem if b == 0 || (b == -1 && dtype == DType::I32 && a == i128::from(i32::MIN)) => {
            None
        }
        BinaryOp::Div => wrap(dtype, a / b),
        BinaryOp::Rem => wrap(dtype, a % b),
        BinaryOp::BitAnd => wrap(dtype, a & b),
        BinaryOp::BitOr => wrap(dtype, a | b),
        BinaryOp::BitXor => wrap(dtype, a ^ b),
        BinaryOp::Shl => wrap(dtype, i128::from(shift_left(a as i64, b as i64))),
        BinaryOp::Shr => wrap(dtype, i128::from(shift_right(a as i64, b as i64))),
        BinaryOp::ShrLogical => wrap(dtype, i128::from(shift_right_logical(a as i64, b as i64, 8 * dtype.bytes()))),
        BinaryOp::MulHi => wrap(dtype, i128::from(multiply_high(a as i64, b as i64, 8 * dtype.bytes()))),
        BinaryOp::And | BinaryOp::Or | BinaryOp::Pow | BinaryOp::Atan2 => None,
    }
}

/// An integer is always finite. The question is whether there is one result.
fn unknown_integers(op: BinaryOp, x: Known, y: Known) -> Option<Known> {
    match op {
        BinaryOp::Mul | BinaryOp::MulHi | BinaryOp::BitAnd if x.is(0.0) || y.is(0.0) => Some(Exact(0.0)),
        BinaryOp::Add | BinaryOp::Sub | BinaryOp::Mul | BinaryOp::Min | BinaryOp::Max => Some(Finite),
        BinaryOp::BitAnd | BinaryOp::BitOr | BinaryOp::BitXor => Some(Finite),
        BinaryOp::Shl | BinaryOp::Shr | BinaryOp::ShrLogical | BinaryOp::MulHi => Some(Finite),
        BinaryOp::Div | BinaryOp::Rem => match y {
            Exact(y) if y != 0.0 && y != -1.0 => Some(Finite),
            _ => None,
        },
        BinaryOp::And | BinaryOp::Or | BinaryOp::Pow | BinaryOp::Atan2 => None,
    }
}

fn floats(op: BinaryOp, dtype: DType, x: Known, y: Known) -> Option<Known> {
    match (op, x, y) {
        // A reciprocal of less than the least normal single may be infinite.
        (BinaryOp::Div, Exact(0.0), Exact(y)) if y.is_finite() && y.abs() >= f64::from(f32::MIN_POSITIVE) => {
            Some(Exact(0.0))
        }
        (BinaryOp::Add, Exact(a), Exact(b)) => arithmetic(dtype, a, b, |a, b| a + b, |a, b| a + b),
        (BinaryOp::Sub, Exact(a), Exact(b)) => arithmetic(dtype, a, b, |a, b| a - b, |a, b| a - b),
        (BinaryOp::Mul, Exact(a), Exact(b)) => arithmetic(dtype, a, b, |a, b| a * b, |a, b| a * b),
        (BinaryOp::Min, Exact(a), Exact(b)) => exact(a.min(b)),
        (BinaryOp::Max, Exact(a), Exact(b)) => exact(a.max(b)),
        (BinaryOp::Min | BinaryOp::Max, a, b) => extreme(op, a, b),
        (BinaryOp::Add | BinaryOp::Sub, a, b) if a.is(0.0) || b.is(0.0) => a.join(b).map(|_| Finite),
        (BinaryOp::Mul, Exact(c), Finite) | (BinaryOp::Mul, Finite, Exact(c)) => match c {
            0.0 => Some(Exact(0.0)),
            c if c.abs() <= 1.0 => Some(Finite),
            _ => None,
        },
        _ => None,
    }
}

/// The result for two operands of which one is not known.
fn extreme(op: BinaryOp, a: Known, b: Known) -> Option<Known> {
    let least = if op == BinaryOp::Min { f64::NEG_INFINITY } else { f64::INFINITY };
    match (a, b) {
        (a, b) if a.is(least) || b.is(least) => Some(Exact(least)),
        // The other infinity never wins.
        (a, b) if a.is(-least) || b.is(-least) => Some(Finite),
        (a, b) => a.join(b).map(|_| Finite),
    }
}

/// Computes f64 in f64, and the other floats in f32, rounded once.
fn arithmetic(
    dtype: DType,
    a: f64,
    b: f64,
    wide: impl Fn(f64, f64) -> f64,
    single: impl Fn(f32, f32) -> f32,
) -> Option<Known> {
    let result = match dtype {
        DType::F64 => wide(a, b),
        dtype => round(dtype, f64::from(single(a as f32, b as f32))),
    };
    // What is below the least normal number may be flushed to zero.
    let flushed = |x: f64| x != 0.0 && x.abs() < least_normal(dtype);
    if [a, b, result].into_iter().any(flushed) { None } else { exact(result) }
}

/// What is known of a comparison of operands of type `dtype`.
pub fn compare(pred: Predicate, _dtype: DType, x: Known, y: Known) -> Option<Known> {
    let (Exact(x), Exact(y)) = (x, y) else { return Some(Finite) };
    Some(Exact(f64::from(u8::from(pred.holds(&x, &y)))))
}

/// What is known of a choice; the sides may be unknown.
pub fn select(cond: Option<Known>, on_true: Option<Known>, on_false: Option<Known>) -> Option<Known> {
    match cond {
        Some(Exact(0.0)) => on_false,
        Some(Exact(_)) => on_true,
        _ => on_true?.join(on_false?),
    }
}

/// What is known of a conversion.
pub fn cast(from: DType, to: DType, x: Known) -> Option<Known> {
    if from == to {
        return Some(x);
    }
    match (x, to) {
        (_, DType::Bool) => None,
        (Exact(x), to) if to.is_whole() && !from.is_float() => exact(to.low_bits(integer(x)?) as f64),
        (Exact(x), DType::I64) => integer(x.trunc()).and_then(|i| exact(i as f64)),
        (Exact(x), to) if to.is_whole() => exact(to.saturated(x) as f64),
        (Exact(x), float) => {
            let once = round(float, x);
            // A device may go through f32.
            if once == round(float, f64::from(x as f32)) { exact(once) } else { None }
        }
        (Finite, to) if to.is_whole() || to.is_fp8() => Some(Finite),
        (Finite, float) => (most(from) <= most(float)).then_some(Finite),
    }
}

/// The largest finite value of a type, or one below which all its values lie.
fn most(dtype: DType) -> f64 {
    match dtype {
        DType::Bool => 1.0,
        DType::I8 => 128.0,
        DType::U8 => 255.0,
        DType::I16 => 32_768.0,
        DType::U16 => 65_535.0,
        DType::F8E4M3 => 448.0,
        DType::F8E5M2 => 57_344.0,
        DType::I32 => 2_147_483_648.0,
        DType::I64 => 9_223_372_036_854_775_808.0,
        DType::F16 => f16::MAX.to_f64(),
        DType::Bf16 => bf16::MAX.to_f64(),
        DType::F32 => f64::from(f32::MAX),
        DType::F64 => f64::MAX,
    }
}

fn least_normal(dtype: DType) -> f64 {
    match dtype {
        DType::F16 => f16::MIN_POSITIVE.to_f64(),
        DType::F64 => f64::MIN_POSITIVE,
        _ => f64::from(f32::MIN_POSITIVE),
    }
}

/// `x` as a value of a float type, rounded once.
pub(crate) fn round(dtype: DType, x: f64) -> f64 {
    match dtype {
        DType::F16 => to_f16(x).to_f64(),
        DType::Bf16 => to_bf16(x).to_f64(),
        DType::F32 => f64::from(x as f32),
        dtype => dtype.fp8().map_or(x, |fp8| fp8.round(x)),
    }
}

fn exact(x: f64) -> Option<Known> {
    // Adding 0 drops the sign of a zero.
    (!x.is_nan()).then_some(Exact(x + 0.0))
}

/// A whole number that f64 holds exactly.
fn integer(x: f64) -> Option<i64> {
    (x.fract() == 0.0 && x.abs() < WHOLE).then_some(x as i64)
}

fn wrap(dtype: DType, x: i128) -> Option<Known> {
    let wrapped = dtype.low_bits(x as i64);
    integer(wrapped as f64).filter(|&i| i == wrapped).and_then(|i| exact(i as f64))
}
