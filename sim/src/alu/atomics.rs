//! The operations of `atom`, `red`, bulk reductions and `redux` on two values.

use super::integer::Int;
use super::{Arithmetic, for_type, lookup, words};
use crate::program::{AluFn, AtomOp};
use crate::syntax::ast::Type;

/// The new value, from the old one and the operands.
pub(super) fn atom(op: AtomOp, ty: Type) -> Option<AluFn> {
    use Type::{B32, B64, Bf16, Bf16x2, F16, F16x2, F32, F64, S32, S64, U32, U64};
    match (op, ty) {
        (AtomOp::Exch, _) => for_type!(ty, exchange: B32 => u32, B64 => u64),
        (AtomOp::Cas, _) => for_type!(ty, compare_and_swap: B16 => u16, B32 => u32, B64 => u64),
        (AtomOp::And, B32 | B64) => function("and", ty),
        (AtomOp::Or, B32 | B64) => function("or", ty),
        (AtomOp::Xor, B32 | B64) => function("xor", ty),
        (AtomOp::Add, U32 | S32 | U64 | F32 | F64 | F16 | F16x2 | Bf16 | Bf16x2) => function("add", ty),
        (AtomOp::Inc, U32) => Some(increment),
        (AtomOp::Dec, U32) => Some(decrement),
        (AtomOp::Min, U32 | S32 | U64 | S64 | F16 | F16x2 | Bf16 | Bf16x2) => function("min", ty),
        (AtomOp::Max, U32 | S32 | U64 | S64 | F16 | F16x2 | Bf16 | Bf16x2) => function("max", ty),
        _ => None,
    }
}

/// The reduction of `redux.sync`.
pub(super) fn redux(op: &str, ty: Type) -> Option<AluFn> {
    match (op, ty) {
        ("add" | "min" | "max", Type::U32 | Type::S32) | ("and" | "or" | "xor", Type::B32) => function(op, ty),
        _ => None,
    }
}

fn function(opcode: &str, ty: Type) -> Option<AluFn> {
    lookup(opcode, &[words::name(ty)?], Arithmetic::Ieee).map(|form| form.f)
}

fn exchange<T: Int>(_: u64, b: u64, _: u64, _: u64) -> u64 {
    T::of(b).bits()
}

fn compare_and_swap<T: Int>(old: u64, expected: u64, new: u64, _: u64) -> u64 {
    if T::of(old) == T::of(expected) { T::of(new).bits() } else { T::of(old).bits() }
}

/// Wraps to zero past the limit.
fn increment(old: u64, limit: u64, _: u64, _: u64) -> u64 {
    let (old, limit) = (old as u32, limit as u32);
    if old >= limit { 0 } else { (old + 1).bits() }
}

/// Wraps to the limit below zero, and from above the limit.
fn decrement(old: u64, limit: u64, _: u64, _: u64) -> u64 {
    let (old, limit) = (old as u32, limit as u32);
    if old == 0 || old > limit { limit.bits() } else { (old - 1).bits() }
}
