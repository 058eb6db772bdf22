//! The fills of a ring go on from one program to the next.

use super::Turn;
use crate::gpu::slices::{copy, guarded_engine_fill, is_plain, slice, visit_deep};
use crate::gpu::{At, Block, Inst, Kernel, Op, Ring, Type, Value, ValueDef};
use crate::passes::lower_rings::scalars::{binary, int, push};
use atlas_dsl::DType;
use atlas_dsl::op::{BinaryOp, Predicate};
use std::collections::BTreeMap;

/// The rings that the engine fills ahead in the body of a loop, which waits for them. A loop around such a loop fills too: the
/// first stages.
pub(super) fn rings_filled_in(k: &Kernel, body: Block) -> Vec<Ring> {
    let insts = &k.blocks[body].insts;
    let waits = |ring: &Ring| insts.iter().any(|&i| matches!(k.insts[i], Op::Wait(r, _) if r == *ring));
    insts.iter().filter_map(|&i| guarded_engine_fill(k, i)).filter(waits).collect()
}

/// Has a ring's fills go on into the next program of the CTA. False if they cannot.
pub(super) fn run_on(k: &mut Kernel, turn: &Turn, ring: Ring, insts: &mut Vec<Inst>) -> bool {
    let Some(found) = AheadLoop::find(k, turn, ring, insts) else { return false };
    let (like, mut head, ahead) = (insts[found.at], Vec::new(), k.rings[ring].stages - 1);
    let out = &mut head;
    let trips = binary(k, BinaryOp::Sub, found.hi, found.lo, like, out);
    let base = binary(k, BinaryOp::Mul, turn.index, trips, like, out);
    let (ahead, one) = (int(k, ahead, like, out), int(k, 1, like, out));
    let enough = condition(k, Op::Compare(Predicate::Ge, trips, ahead), like, out);
    let short = condition(k, Op::Compare(Predicate::Lt, trips, ahead), like, out);
    let is_first = condition(k, Op::Compare(Predicate::Lt, turn.index, one), like, out);
    let fills_own = condition(k, Op::binary(BinaryOp::Or, is_first, short), like, out);
    let goes_on = condition(k, Op::binary(BinaryOp::And, turn.more, enough), like, out);
    // The first stages are filled before the loop, unless the program before has filled them.
    let before: Vec<Inst> = insts.drain(..found.at).collect();
    let (mut kept, mut is_behind_head) = (Vec::new(), false);
    for inst in before {
        if guarded_engine_fill(k, inst) == Some(ring) {
            if !std::mem::replace(&mut is_behind_head, true) {
                kept.append(&mut head);
            }
            narrow(k, inst, BinaryOp::And, fills_own, &mut kept);
        }
        kept.push(inst);
    }
    kept.append(&mut head);
    insts.splice(..0, kept);
    found.fill_next_program(k, turn, (goes_on, trips));
    for inst in insts.clone() {
        number_from(k, inst, ring, base);
    }
    true
}

/// A loop that fills a ring ahead.
struct AheadLoop {
    /// The loop's place in the program.
    at: usize,
    lo: Value,
    hi: Value,
    body: Block,
    /// The guarded fill in its body.
    fill: Inst,
    /// What the places of its copies are computed from, in order.
    places: Vec<Inst>,
}

impl AheadLoop {
    /// The loop that fills a ring, if its bounds are the same in all programs and its copies' places can be computed for the next.
    fn find(k: &Kernel, turn: &Turn, ring: Ring, insts: &[Inst]) -> Option<AheadLoop> {
        let mut loops = insts.iter().enumerate().filter_map(|(at, &inst)| {
            let Op::Loop { lo, hi, body, .. } = k.insts[inst] else { return None };
            rings_filled_in(k, body).contains(&ring).then_some((at, lo, hi, body))
        });
        let (Some((at, lo, hi, body)), None) = (loops.next(), loops.next()) else { return None };
        let of_bounds = slice(k, &insts[..at], [lo, hi]);
        let mut reads_coordinate = [lo, hi].iter().any(|v| turn.next_at.contains_key(v));
        of_bounds.iter().for_each(|&i| {
            k.insts[i].visit_operands(|v| reads_coordinate |= turn.next_at.contains_key(&v));
        });
        let mut filled = k.blocks[body].insts.iter().copied().filter(|&i| guarded_engine_fill(k, i) == Some(ring));
        let (Some(fill), None) = (filled.next(), filled.next()) else { return None };
        let Op::If(_, block, _) = k.insts[fill] else { return None };
        let all = [&insts[..at], &k.blocks[body].insts, &k.blocks[block].insts].concat();
        let copies = k.blocks[block].insts.iter().copied().filter(|&i| matches!(k.insts[i], Op::Copy { .. }));
        let mut read = Vec::new();
        copies.for_each(|i| k.insts[i].visit_operands(|v| read.push(v)));
        let places = slice(k, &all, read.iter().copied().filter(|&v| !matches!(k.values[v].ty, Type::Token(_))));
        // What a loop carries is not known in the program before.
        places.iter().for_each(|&i| visit_deep(k, i, &mut |v| read.push(v)));
        let is_carried = |&v: &Value| matches!(k.values[v].def, ValueDef::BlockParam(_, n) if n > 0);
        let is_known = of_bounds.iter().chain(&places).all(|&i| is_plain(k, i)) && !read.iter().any(is_carried);
        (is_known && !reads_coordinate).then_some(AheadLoop { at, lo, hi, body, fill, places })
    }

    /// Lets the fill in the loop go on into the next program, if there is one: at the index less the loop's trips.
    fn fill_next_program(&self, k: &mut Kernel, turn: &Turn, (goes_on, trips): (Value, Value)) {
        let Op::If(inside, block, _) = k.insts[self.fill] else { return };
        let insts = std::mem::take(&mut k.blocks[self.body].insts);
        let mut out = Vec::with_capacity(insts.len() + 1);
        for inst in insts {
            if inst == self.fill {
                narrow(k, inst, BinaryOp::Or, goes_on, &mut out);
            }
            out.push(inst);
        }
        k.blocks[self.body].insts = out;
        let index = k.blocks[self.body].params[0];
        let (like, mut made) = (self.fill, Vec::new());
        let less = binary(k, BinaryOp::Sub, index, trips, like, &mut made);
        let mut values = BTreeMap::new();
        for (own, next) in [(index, less)].into_iter().chain(turn.next_at.clone()) {
            let ty = k.scalar_type(DType::I32);
            values.insert(own, push(k, Op::Select(inside, own, next), ty, like, &mut made));
        }
        for &inst in &self.places {
            let mut differs = false;
            k.insts[inst].visit_operands(|v| differs |= values.contains_key(&v));
            if differs {
                let new = copy(k, inst, &mut values);
                made.push(new);
            }
        }
        let filled = std::mem::take(&mut k.blocks[block].insts);
        let first = filled.iter().position(|&i| matches!(k.insts[i], Op::Acquire(..))).unwrap_or(0);
        for &inst in &filled[first..] {
            if matches!(k.insts[inst], Op::Copy { .. }) {
                k.insts[inst].replace_operands(|v| values.get(&v).copied().unwrap_or(v));
            }
        }
        k.blocks[block].insts =
            filled[..first].iter().copied().chain(made).chain(filled[first..].iter().copied()).collect();
    }
}

/// Combines a guard's condition with another one.
fn narrow(k: &mut Kernel, guard: Inst, op: BinaryOp, with: Value, out: &mut Vec<Inst>) {
    let Op::If(old, ..) = k.insts[guard] else { return };
    let new = condition(k, Op::binary(op, old, with), guard, out);
    if let Op::If(condition, ..) = &mut k.insts[guard] {
        *condition = new;
    }
}

fn condition(k: &mut Kernel, op: Op, like: Inst, out: &mut Vec<Inst>) -> Value {
    let bool = k.scalar_type(DType::Bool);
    push(k, op, bool, like, out)
}

/// Adds a number to those of a ring's stages, in the blocks of an instruction.
fn number_from(k: &mut Kernel, inst: Inst, ring: Ring, base: Value) {
    let Some(body) = k.insts[inst].body() else { return };
    let mut out = Vec::new();
    for inst in std::mem::take(&mut k.blocks[body].insts) {
        if let Op::Acquire(r, At::Iteration(n)) | Op::Wait(r, At::Iteration(n)) = k.insts[inst]
            && r == ring
        {
            let number = binary(k, BinaryOp::Add, base, n, inst, &mut out);
            if let Op::Acquire(_, at) | Op::Wait(_, at) = &mut k.insts[inst] {
                *at = At::Iteration(number);
            }
        }
        number_from(k, inst, ring, base);
        out.push(inst);
    }
    k.blocks[body].insts = out;
}
