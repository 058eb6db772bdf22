//! Comparisons into predicates, and tests of a float's class.

use super::float::{Brain, Double, Float, Half, Single};
use super::integer::Int;
use crate::program::CompareFn;
use crate::syntax::ast::Type;
use std::cmp::Ordering;

/// The outcomes for which a comparison holds: less, equal, greater, unordered.
const LT: u8 = 1;
const EQ: u8 = 2;
const GT: u8 = 4;
const NAN: u8 = 8;

/// Chooses an instance by its outcomes.
macro_rules! with_outcomes {
    ($outcomes:expr, $f:ident::<$ty:ty>: $($n:literal)+) => {
        match $outcomes {
            $($n => Some($f::<$ty, $n> as CompareFn),)+
            _ => None,
        }
    };
}
macro_rules! ordered {
    ($outcomes:expr, $int:ty) => {
        with_outcomes!($outcomes, integers::<$int>: 1 2 3 4 5 6)
    };
}
macro_rules! partial {
    ($outcomes:expr, $f:ident::<$float:ty>) => {
        with_outcomes!($outcomes, $f::<$float>: 1 2 3 4 5 6 7 8 9 10 11 12 13 14)
    };
}

/// The function of `setp`, `set` or a comparison operator on a type; `None` where the ISA has none.
pub fn compare(cmp: &str, ty: Type, ftz: bool) -> Option<CompareFn> {
    let outcomes = match cmp {
        "eq" => EQ,
        "ne" => LT | GT,
        "lt" | "lo" => LT,
        "le" | "ls" => LT | EQ,
        "gt" | "hi" => GT,
        "ge" | "hs" => GT | EQ,
        "equ" => EQ | NAN,
        "neu" => LT | GT | NAN,
        "ltu" => LT | NAN,
        "leu" => LT | EQ | NAN,
        "gtu" => GT | NAN,
        "geu" => GT | EQ | NAN,
        "num" => LT | EQ | GT,
        "nan" => NAN,
        _ => return None,
    };
    let unsigned_only = matches!(cmp, "lo" | "ls" | "hi" | "hs");
    let equality = matches!(cmp, "eq" | "ne");
    match ty {
        Type::F32 if !unsigned_only && ftz => partial!(outcomes, flushed::<Single>),
        Type::F16 if !unsigned_only && ftz => partial!(outcomes, flushed::<Half>),
        _ if ftz => None,
        Type::F32 if !unsigned_only => partial!(outcomes, floats::<Single>),
        Type::F64 if !unsigned_only => partial!(outcomes, floats::<Double>),
        Type::F16 if !unsigned_only => partial!(outcomes, floats::<Half>),
        Type::Bf16 if !unsigned_only => partial!(outcomes, floats::<Brain>),
        Type::B16 if equality => ordered!(outcomes, u16),
        Type::B32 if equality => ordered!(outcomes, u32),
        Type::B64 if equality => ordered!(outcomes, u64),
        Type::U16 => ordered!(outcomes, u16),
        Type::U32 => ordered!(outcomes, u32),
        Type::U64 => ordered!(outcomes, u64),
        Type::S16 if !unsigned_only => ordered!(outcomes, i16),
        Type::S32 if !unsigned_only => ordered!(outcomes, i32),
        Type::S64 if !unsigned_only => ordered!(outcomes, i64),
        _ => None,
    }
}

/// `testp`: a test of the first argument's class.
pub fn testp(kind: &str, ty: Type) -> Option<CompareFn> {
    match ty {
        Type::F32 => class::<Single>(kind),
        Type::F64 => class::<Double>(kind),
        _ => None,
    }
}

fn class<F: Float>(kind: &str) -> Option<CompareFn> {
    Some(match kind {
        "finite" => |a, _| magnitude::<F>(a) < F::FORMAT.infinity(),
        "infinite" => |a, _| magnitude::<F>(a) == F::FORMAT.infinity(),
        "number" => |a, _| !F::FORMAT.is_nan(a),
        "notanumber" => |a, _| F::FORMAT.is_nan(a),
        // The ISA counts zeros among the normal numbers.
        "normal" => |a, _| magnitude::<F>(a) < F::FORMAT.infinity() && !subnormal::<F>(a),
        "subnormal" => |a, _| subnormal::<F>(a),
        _ => return None,
    })
}

fn magnitude<F: Float>(a: u64) -> u64 {
    a & (F::FORMAT.sign() - 1)
}

fn subnormal<F: Float>(a: u64) -> bool {
    a & F::FORMAT.infinity() == 0 && magnitude::<F>(a) != 0
}

fn integers<T: Int, const OUTCOMES: u8>(a: u64, b: u64) -> bool {
    OUTCOMES & outcome(Some(T::of(a).cmp(&T::of(b)))) != 0
}

fn floats<F: Float, const OUTCOMES: u8>(a: u64, b: u64) -> bool {
    if F::FORMAT.is_nan(a) || F::FORMAT.is_nan(b) {
        return OUTCOMES & NAN != 0;
    }
    OUTCOMES & outcome(Some(key::<F>(a).cmp(&key::<F>(b)))) != 0
}

fn flushed<F: Float, const OUTCOMES: u8>(a: u64, b: u64) -> bool {
    floats::<F, OUTCOMES>(F::FORMAT.flush(a), F::FORMAT.flush(b))
}

/// A number's rank in the order. Both zeros have the same.
fn key<F: Float>(a: u64) -> i64 {
    let magnitude = magnitude::<F>(a) as i64;
    if a & F::FORMAT.sign() != 0 { -magnitude } else { magnitude }
}

fn outcome(order: Option<Ordering>) -> u8 {
    match order {
        Some(Ordering::Less) => LT,
        Some(Ordering::Equal) => EQ,
        Some(Ordering::Greater) => GT,
        None => NAN,
    }
}
