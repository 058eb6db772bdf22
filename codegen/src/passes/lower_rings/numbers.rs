//! Numbers of iterations as sums: the index of a loop around, less its first one, plus a constant; behind what the turns of a
//! loop around have counted.

use crate::gpu::{Kernel, Op, Value, ValueDef};
use crate::gpu_ops;
use atlas_dsl::op::BinaryOp;

/// Sums and differences above each other that are followed; numbers of iterations have few.
const DEEPEST: u32 = 8;

/// A loop around a place: its index and its first one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Index {
    pub(super) index: Value,
    pub(super) lo: Value,
}

/// The index of a loop and what is subtracted from it, if there are such, and a constant.
type Offset = (Option<(Value, Option<Value>)>, i64);

/// A number as a constant beyond 0, or beyond the start of one of the loops around, of which it gives the place in `loops`.
pub(super) fn distance(k: &Kernel, loops: &[Index], n: Value) -> Option<(Option<usize>, u32)> {
    let (base, ahead) = offset(k, loops, n, DEEPEST)?;
    match base {
        None => Some((None, u32::try_from(ahead).ok()?)),
        Some((index, lo)) => {
            let at = loops.iter().position(|l| l.index == index && lo.is_none_or(|lo| lo == l.lo))?;
            // Without a subtraction the loop has to begin at 0.
            let begins_at_0 = matches!(offset(k, loops, loops[at].lo, DEEPEST), Some((None, 0)));
            (lo.is_some() || begins_at_0).then_some((Some(at), u32::try_from(ahead).ok()?))
        }
    }
}

/// A number as `index - lo + constant`, of a formula that is no deeper than so much.
fn offset(k: &Kernel, loops: &[Index], v: Value, deepest: u32) -> Option<Offset> {
    let deepest = deepest.checked_sub(1)?;
    let ValueDef::Result(inst, _) = k.values[v].def else {
        return loops.iter().any(|l| l.index == v).then_some((Some((v, None)), 0));
    };
    let of = |v: Value| offset(k, loops, v, deepest);
    match k.insts[inst] {
        Op::Const(x) => Some((None, x as i64)),
        Op::Binary(BinaryOp::Add, _, a, b) => match (of(a)?, of(b)?) {
            ((base, x), (None, y)) | ((None, x), (base, y)) => Some((base, x + y)),
            _ => None,
        },
        Op::Binary(BinaryOp::Sub, _, a, b) => {
            let (base, x) = of(a)?;
            match (base, of(b)) {
                (Some((index, None)), _) if loops.iter().any(|l| l.index == index && l.lo == b) => {
                    Some((Some((index, Some(b))), x))
                }
                (base, Some((None, y))) => Some((base, x - y)),
                _ => None,
            }
        }
        // The iterations of the programs before, in a loop over programs: the base of the ring is past them.
        Op::Binary(BinaryOp::Mul, _, turn, _) if loops.iter().any(|l| l.index == turn) => Some((None, 0)),
        Op::Iota { .. }
        | Op::DimSize(_)
        | Op::DimTiles(..)
        | Op::CtaNumber
        | Op::CtaCount
        | Op::SplitNumber
        | Op::SplitCount => None,
        Op::Unsigned(..) | Op::Coordinate(..) | Op::ScalarParam(_) | Op::TableGet(..) => None,
        gpu_ops!(elementwise views fragments global shared clusters products rings orders control) => None,
    }
}
