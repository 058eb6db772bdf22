//! Conditions in loops: in which trips the work that they guard is done, and whether loads go on into the next program.

use crate::gpu::{Block, Inst, Kernel, Op, Ring, UnsignedOp, Value, ValueDef};
use atlas_dsl::op::{BinaryOp, Predicate};

/// The loop around a block.
#[derive(Clone, Copy)]
pub(super) struct EnclosingLoop {
    /// The number of trips by which its loads run ahead, if they do.
    pub(super) ahead: Option<f64>,
    pub(super) index: Value,
    pub(super) hi: Value,
}

/// A condition in a loop.
#[derive(Clone, Copy, Default)]
pub(super) struct Guard {
    /// The number of last trips in which it does not hold, if it is of that form.
    pub(super) but_last: Option<f64>,
    /// Of `own or next`, by which fills go on into the next program: the first part, which has that form.
    pub(super) own: Option<Value>,
    /// By what it holds besides, in all trips.
    pub(super) other: Option<Value>,
}

impl Guard {
    /// The parts of a condition.
    pub(super) fn of(k: &Kernel, condition: Value, around: Option<EnclosingLoop>) -> Guard {
        let but_last = |v: Value| around.and_then(|l| but_last(k, v, l));
        if let Some(last) = but_last(condition) {
            return Guard { but_last: Some(last), ..Guard::default() };
        }
        if let Some(&Op::Binary(BinaryOp::Or, _, own, next)) = made_by(k, condition)
            && let Some(last) = but_last(own)
        {
            return Guard { but_last: Some(last), own: Some(own), other: Some(next) };
        }
        Guard { other: Some(condition), ..Guard::default() }
    }
}

/// The share of a loop's trips in which guarded work is done; `None` if nothing is known of it. What is not known of a condition
/// is taken not to hold in the last trips.
pub(super) fn share_of_trips(of_loop: f64, but_last: Option<f64>, other: Option<f64>) -> Option<f64> {
    let holds = other.filter(|x| !x.is_nan());
    match but_last {
        Some(last) => Some(holds.unwrap_or(0.0).max((of_loop - last).max(0.0) / of_loop.max(1.0))),
        None => holds,
    }
}

/// True if the loads of a loop go on into the next program of the CTA: those of every ring of several stages that it waits for.
pub(super) fn goes_on(k: &Kernel, body: Block, around: EnclosingLoop) -> bool {
    let insts = &k.blocks[body].insts;
    let waited = insts.iter().filter_map(|&i| if let Op::Wait(ring, _) = k.insts[i] { Some(ring) } else { None });
    let mut rings = waited.filter(|&ring| k.rings[ring].stages > 1).peekable();
    let is_ahead = |ring: Ring| {
        insts.iter().any(|&i| {
            let Op::If(condition, fill, _) = k.insts[i] else { return false };
            Guard::of(k, condition, Some(around)).own.is_some() && acquires(k, fill, ring)
        })
    };
    rings.peek().is_some() && rings.all(is_ahead)
}

/// True if a block, or one in it, fills a stage of a ring.
fn acquires(k: &Kernel, block: Block, ring: Ring) -> bool {
    let fills = |&i: &Inst| {
        let is_acquire = matches!(k.insts[i], Op::Acquire(r, _) if r == ring);
        is_acquire || k.insts[i].body().is_some_and(|body| acquires(k, body, ring))
    };
    k.blocks[block].insts.iter().any(fills)
}

/// The number of last trips of a loop in which a condition does not hold: 3 for `3 < hi - index`, `index + 3 < hi`, and
/// `3 < umin(hi - index, 4)`.
fn but_last(k: &Kernel, condition: Value, around: EnclosingLoop) -> Option<f64> {
    let constant = |v: Value| match made_by(k, v) {
        Some(Op::Const(x)) if *x >= 0.0 => Some(*x),
        _ => None,
    };
    let Some(Op::Compare(Predicate::Lt, a, b)) = made_by(k, condition) else { return None };
    let b = match made_by(k, *b) {
        Some(Op::Unsigned(UnsignedOp::Min, left, _)) => left,
        _ => b,
    };
    match (made_by(k, *a), made_by(k, *b)) {
        (_, Some(Op::Binary(BinaryOp::Sub, _, hi, index))) if (*index, *hi) == (around.index, around.hi) => {
            constant(*a)
        }
        (Some(Op::Binary(BinaryOp::Add, _, index, step)), _) if (*index, *b) == (around.index, around.hi) => {
            constant(*step)
        }
        _ => None,
    }
}

fn made_by(k: &Kernel, v: Value) -> Option<&Op> {
    match k.values[v].def {
        ValueDef::Result(inst, _) => Some(&k.insts[inst]),
        _ => None,
    }
}
