//! The values that an operation reads, in one list for looking and for replacing.

use super::{At, Op, Operand, Slice, Valid, Value};

/// Calls `$f` on a reference to each operand of a slice.
macro_rules! on_slice {
    ($slice:expr, $f:ident) => {
        match $slice {
            Slice::At { coord: v, .. } | Slice::Tile { index: v, .. } | Slice::Span { start: v, .. } => $f(v),
            Slice::Whole { .. } => {}
        }
    };
}

/// The same for an operation; `$iter` is `iter` or `iter_mut`.
macro_rules! on_operands {
    ($op:expr, $f:ident, $iter:ident) => {
        match $op {
            Op::Const(_)
            | Op::Iota { .. }
            | Op::DimSize(_)
            | Op::DimTiles(..)
            | Op::CtaNumber
            | Op::CtaCount
            | Op::ScalarParam(_)
            | Op::ZeroShared(_)
            | Op::Drain(_)
            | Op::Barrier
            | Op::CopyWait(_)
            | Op::Fence(_)
            | Op::Programs(_) => {}
            Op::TableGet(_, v) | Op::Yield(v) => v.$iter().for_each(&mut $f),
            Op::Unary(_, _, v)
            | Op::Coordinate(v, _)
            | Op::Cast(v)
            | Op::Again(v)
            | Op::Broadcast(v)
            | Op::Reshape(v)
            | Op::Transpose(v)
            | Op::Reduce { value: v, .. }
            | Op::Convert(v)
            | Op::Part { value: v, .. }
            | Op::WaitMma(v, _)
            | Op::Acquire(_, At::Iteration(v) | At::Slot(v))
            | Op::Wait(_, At::Iteration(v) | At::Slot(v))
            | Op::Release(v) => $f(v),
            Op::If(condition, _, others) => {
                $f(condition);
                others.$iter().for_each(&mut $f);
            }
            Op::Commit(_, token) => token.$iter().for_each(&mut $f),
            Op::Binary(_, _, a, b) | Op::Compare(_, a, b) | Op::Unsigned(_, a, b) => {
                $f(a);
                $f(b);
            }
            Op::Select(c, a, b) => {
                $f(c);
                $f(a);
                $f(b);
            }
            Op::Refill { value, valid, .. } => {
                $f(value);
                for edge in valid.$iter() {
                    let Valid { slice, .. } = edge;
                    on_slice!(slice, $f);
                }
            }
            Op::LoadGlobal { slices, .. } => slices.$iter().for_each(|s| on_slice!(s, $f)),
            Op::StoreGlobal { slices, value, .. } => {
                slices.$iter().for_each(|s| on_slice!(s, $f));
                $f(value);
            }
            Op::Copy { slices, to, .. } => {
                slices.$iter().for_each(|s| on_slice!(s, $f));
                to.token.$iter().for_each(&mut $f);
            }
            Op::LoadShared(from) => from.token.$iter().for_each(&mut $f),
            Op::LoadMatrix { from, further, .. } => {
                from.token.$iter().for_each(&mut $f);
                for (v, _) in further.$iter() {
                    $f(v);
                }
            }
            Op::StoreShared { to, value } => {
                to.token.$iter().for_each(&mut $f);
                $f(value);
            }
            Op::Mma { a, b, acc, accumulate, .. } => {
                for operand in [a, b] {
                    match operand {
                        Operand::Shared(from) => from.token.$iter().for_each(&mut $f),
                        Operand::Fragment(v) => $f(v),
                    }
                }
                acc.$iter().for_each(&mut $f);
                accumulate.$iter().for_each(&mut $f);
            }
            Op::Loop { lo, hi, inits, .. } => {
                $f(lo);
                $f(hi);
                inits.$iter().for_each(&mut $f);
            }
        }
    };
}

impl Op {
    /// Calls `f` on every value operand.
    pub fn visit_operands(&self, mut f: impl FnMut(Value)) {
        let mut f = |v: &Value| f(*v);
        on_operands!(self, f, iter);
    }

    /// Replaces every value operand.
    pub fn replace_operands(&mut self, mut f: impl FnMut(Value) -> Value) {
        let mut f = |v: &mut Value| *v = f(*v);
        on_operands!(self, f, iter_mut);
    }
}
