//! `split_reductions`: several CTAs share the iterations of a program's loop, and add their sums.
//!
//! Needs: whole loops, as `lower_tiles` makes them. Establishes: if the schedule says so, a loop over this CTA's part of the
//! iterations, and a `sum.splits` of what the loop carries behind it. Never: changes a kernel whose schedule does not ask for it.
//! Refuses: a kernel whose loop carries something other than sums in f32. Constructs: removes nothing; adds splits.
//!
//! A product of few tiles and a long K leaves most multiprocessors idle if each tile has one CTA.
//!
//! # Promise
//! Each iteration is run once, by one of the CTAs of the program. What the program stores is computed from the sum over all of
//! them, added in the order of the CTAs' numbers, and is stored once.
//!
//! # Argument
//! CTA s of S runs the iterations `lo + s c .. lo + (s + 1) c`, cut off at `hi`, where c = ceil((hi - lo) / S). Each carried value
//! is its initial value plus terms that do not depend on it, so the sum over the iterations is the sum of the parts' sums. The first
//! CTA begins with the initial value, and the others with a zero. Only the first loads it, if nothing else reads what is loaded: no
//! store stands before the loop, so the load may stand directly before it. A tile that iterations hand on in shared memory is refused.
//!
//! Behind `sum.splits` only the CTA that arrives last runs on. All others have read whatever they read before they arrive, so it may
//! overwrite tensors that the loop reads. `start_loads` starts no copy before the sum that is waited for behind it, for a CTA must
//! not end while copies into its shared memory are in flight.
//!
//! # Breaks it
//! - Fewer iterations than CTAs, none, and a carried value that begins as a tile: tests/agreement/split.rs.
//! - A carried value that is no sum: the refusals in tests/agreement/split.rs.

use crate::context::Cx;
use crate::error::CompileError;
use crate::gpu::slices::{remove_unread, visit_deep, with_bodies};
use crate::gpu::{At, Block, BlockData, Buffer, Effects, Inst, Kernel, Op, Type, Value, ValueDef};
use crate::gpu_ops;
use crate::passes::lower_programs::replace;
use crate::passes::lower_rings::scalars::{binary, int, push};
use atlas_dsl::DType;
use atlas_dsl::op::{BinaryOp, Predicate};
use std::collections::{BTreeMap, BTreeSet};

/// Splits the loop of a kernel whose schedule asks for it.
pub fn split_reductions(k: &mut Kernel, cx: &mut Cx<'_>) -> Result<(), CompileError> {
    let splits = cx.schedule.split_k;
    if splits == 1 {
        return Ok(());
    }
    let refused = |why: &str| CompileError::refusal(format!("split_k={splits}: {why}; use split_k=1"));
    let Some(body) = k.roles.values().map(|r| r.body).next() else { return Ok(()) };
    let at = the_loop(k, body).map_err(refused)?;
    let inst = k.blocks[body].insts[at];
    let Op::Loop { lo, hi, ref inits, body: iteration, .. } = k.insts[inst] else { return Ok(()) };
    let index = k.blocks[iteration].params[0];
    let inits = inits.clone();
    if let Some(n) = (0..inits.len()).find(|&n| !is_sum(k, iteration, n)) {
        return Err(refused(&match inner_loop(k, iteration, n) {
            Some(inner) => format!(
                "the sum runs through a loop inside of the program's loop{}, and CTAs share the iterations of one loop",
                range_text(k, inner)
            ),
            None => {
                "what the loop carries is not a sum in f32, such as `acc += ..`, that nothing else in the loop reads"
                    .to_owned()
            }
        }));
    }
    let loc = k.locs[inst];
    let mut head = Vec::new();
    let out = &mut head;
    let (zero, one) = (int(k, 0, inst, out), int(k, 1, inst, out));
    let [int_type, bool] = [DType::I32, DType::Bool].map(|dtype| k.scalar_type(dtype));
    let number = push(k, Op::SplitNumber, int_type.clone(), inst, out);
    let count = push(k, Op::SplitCount, int_type.clone(), inst, out);
    // The difference of far ends overflows where there is no iteration.
    let any = push(k, Op::Compare(Predicate::Lt, lo, hi), bool, inst, out);
    let all = binary(k, BinaryOp::Sub, hi, lo, inst, out);
    let all = push(k, Op::Select(any, all, zero), int_type, inst, out);
    let most = binary(k, BinaryOp::Sub, count, one, inst, out);
    let up = binary(k, BinaryOp::Add, all, most, inst, out);
    let part = binary(k, BinaryOp::Div, up, count, inst, out);
    let next = binary(k, BinaryOp::Add, number, one, inst, out);
    let [first, end] = [number, next].map(|n| {
        let before = binary(k, BinaryOp::Mul, n, part, inst, out);
        let before = binary(k, BinaryOp::Min, before, all, inst, out);
        binary(k, BinaryOp::Add, lo, before, inst, out)
    });
    let place = LoopAt { inst, body };
    let inits: Vec<Value> = inits.into_iter().map(|v| of_first(k, place, v, (number, zero), out)).collect();
    number_stages(k, iteration, (index, lo), first);
    if let Op::Loop { lo, hi, inits: own, .. } = &mut k.insts[inst] {
        (*lo, *hi, *own) = (first, end, inits);
    }
    let partial = k.results[inst].to_vec();
    let types = partial.iter().map(|&v| k.values[v].ty.clone()).collect();
    let sum = k.new_inst(Op::SumSplits(partial.clone()), types, loc);
    let sums: BTreeMap<Value, Value> = partial.into_iter().zip(k.results[sum].clone()).collect();
    let at = k.blocks[body].insts.iter().position(|&i| i == inst).unwrap_or(0);
    let behind = k.blocks[body].insts.split_off(at + 1);
    let before = std::mem::replace(&mut k.blocks[body].insts, behind);
    replace(k, body, &sums);
    let split = before[..at].iter().copied().chain(head).chain([inst, sum]);
    k.blocks[body].insts.splice(..0, split);
    k.index_map.splits = splits;
    cx.notes.push("split", loc, || {
        (
            format!("{splits} CTAs share the iterations"),
            "the config; the last one adds their sums and stores".to_owned(),
        )
    });
    Ok(())
}

/// Numbers the stages of rings by the iterations of this CTA: `index - first`, where it was `index - lo`.
fn number_stages(k: &mut Kernel, iteration: Block, (index, lo): (Value, Value), first: Value) {
    let is_number = |k: &Kernel, v: Value| match k.values[v].def {
        ValueDef::Result(inst, _) => k.insts[inst] == Op::binary(BinaryOp::Sub, index, lo),
        _ => false,
    };
    let mut steps = with_bodies(k, &k.blocks[iteration].insts);
    steps.retain(|&i| {
        let numbered = |n: Value| is_number(k, n);
        matches!(k.insts[i], Op::Acquire(_, At::Iteration(n)) | Op::Wait(_, At::Iteration(n)) if numbered(n))
    });
    let Some(&like) = steps.first() else { return };
    let mut head = Vec::new();
    let own = binary(k, BinaryOp::Sub, index, first, like, &mut head);
    for step in steps {
        if let Op::Acquire(_, at) | Op::Wait(_, at) = &mut k.insts[step] {
            *at = At::Iteration(own);
        }
    }
    k.blocks[iteration].insts.splice(..0, head);
    remove_unread(k, iteration, |k, inst| k.results[inst].iter().any(|&v| is_number(k, v)));
}

/// The place of the only loop that carries values, in the body of a kernel.
fn the_loop(k: &Kernel, body: Block) -> Result<usize, &'static str> {
    let insts = &k.blocks[body].insts;
    let mut loops = insts.iter().enumerate().filter(|&(_, &i)| matches!(k.insts[i], Op::Loop { .. }));
    let (Some((at, &inst)), None) = (loops.next(), loops.next()) else {
        return Err("the program is not one loop and what follows from it");
    };
    if carries_in_shared(k, body, at) {
        return Err("the loop carries a tile in shared memory, for a product or a transpose reads it there");
    }
    if k.results[inst].is_empty() {
        return Err("the loop carries no sum");
    }
    if with_bodies(k, &insts[..=at]).iter().any(|&i| k.insts[i].effects().any(Effects::WRITES_GLOBAL)) {
        return Err("the program stores before the loop's end");
    }
    Ok(at)
}

/// True if a loop writes shared memory that is used outside of it too, as that of a tile is which iterations hand on.
fn carries_in_shared(k: &Kernel, body: Block, at: usize) -> bool {
    let insts = &k.blocks[body].insts;
    let buffers = |insts: &[Inst]| with_bodies(k, insts).into_iter().map(|i| k.insts[i].buffers()).collect::<Vec<_>>();
    let written: BTreeSet<Buffer> = buffers(&insts[at..=at]).into_iter().flat_map(|(_, written)| written).collect();
    let outside = buffers(&[&insts[..at], &insts[at + 1..]].concat());
    outside.iter().any(|(read, wrote)| read.iter().chain(wrote).any(|b| written.contains(b)))
}

/// True if the n-th value that a loop carries is a tile of f32 to which each iteration adds terms, and which nothing else reads.
fn is_sum(k: &Kernel, iteration: Block, n: usize) -> bool {
    let insts = &k.blocks[iteration].insts;
    let Some(Op::Yield(yielded)) = insts.last().map(|&i| &k.insts[i]) else { return false };
    let (Some(&param), Some(&last)) = (k.blocks[iteration].params.get(n + 1), yielded.get(n)) else { return false };
    if k.values[param].ty.tile().is_none_or(|(dtype, _)| dtype != DType::F32) {
        return false;
    }
    let mut sum = param;
    while sum != last {
        let mut readers = insts.iter().copied().filter(|&i| reads(k, i, sum) > 0);
        let (Some(reader), None) = (readers.next(), readers.next()) else { return false };
        let op = &k.insts[reader];
        let adds = matches!(*op, Op::Mma { acc: Some(acc), .. } if acc == sum)
            || matches!(*op, Op::Binary(BinaryOp::Sub, _, a, _) if a == sum)
            || matches!(
                op,
                Op::Binary(BinaryOp::Add, ..) | Op::WaitMma(..) | Op::ConvertLayout(_) | Op::Rematerialize(_)
            );
        if !adds || reads(k, reader, sum) != 1 {
            return false;
        }
        sum = k.results[reader][0];
    }
    insts.iter().map(|&i| reads(k, i, last)).sum::<usize>() == 1
}

/// The loop in a loop's body that carries on the n-th value of that.
fn inner_loop(k: &Kernel, iteration: Block, n: usize) -> Option<Inst> {
    let param = *k.blocks[iteration].params.get(n + 1)?;
    let carries = |&inst: &Inst| matches!(&k.insts[inst], Op::Loop { inits, .. } if inits.contains(&param));
    k.blocks[iteration].insts.iter().copied().find(carries)
}

/// What a loop runs over, if a dim says it: `, over tiles(K, 64)`.
fn range_text(k: &Kernel, inst: Inst) -> String {
    let Op::Loop { hi, .. } = k.insts[inst] else { return String::new() };
    let ValueDef::Result(end, _) = k.values[hi].def else { return String::new() };
    if let Op::DimTiles(dim, size) = k.insts[end] {
        return format!(", over tiles({}, {size})", k.dims[dim].name);
    }
    let Op::DimSize(dim) = k.insts[end] else { return String::new() };
    format!(", up to size({})", k.dims[dim].name)
}

/// How often an instruction reads a value, with its body.
fn reads(k: &Kernel, inst: Inst, value: Value) -> usize {
    let mut times = 0;
    visit_deep(k, inst, &mut |v| times += usize::from(v == value));
    times
}

/// What a loop begins with: a value in the first CTA of a program, and zero in the others, which do not load it.
fn of_first(k: &mut Kernel, at: LoopAt, value: Value, (number, none): (Value, Value), out: &mut Vec<Inst>) -> Value {
    let is_zero = |op: &Op| matches!(op, Op::Const(x) if *x == 0.0);
    if let ValueDef::Result(inst, _) = k.values[value].def
        && is_zero(&k.insts[inst])
    {
        return value;
    }
    let ty = k.values[value].ty.clone();
    let Some((_, layout)) = ty.tile() else { return value };
    let of_all = Type::fragment(DType::Bool, layout.clone());
    let bool = k.scalar_type(DType::Bool);
    let is_first = push(k, Op::Compare(Predicate::Eq, number, none), bool, at.inst, out);
    // What changes no number that it is added to, not even the sign of a zero.
    let zero = push(k, Op::Const(-0.0), ty.clone(), at.inst, out);
    let mut loaded = loaded_for(k, at, value);
    if loaded.is_empty() {
        let is_first = push(k, Op::Broadcast(is_first), of_all, at.inst, out);
        return push(k, Op::Select(is_first, value, zero), ty, at.inst, out);
    }
    k.blocks[at.body].insts.retain(|i| !loaded.contains(i));
    loaded.push(k.new_inst(Op::Yield(vec![value]), vec![], k.locs[at.inst]));
    let body = k.blocks.push(BlockData { insts: loaded, ..BlockData::default() });
    push(k, Op::If(is_first, body, vec![zero]), ty, at.inst, out)
}

/// A loop, and the block in which it stands.
#[derive(Clone, Copy)]
struct LoopAt {
    inst: Inst,
    body: Block,
}

/// The instructions that only serve to load what a loop begins with, in their order; none if nothing is loaded.
fn loaded_for(k: &Kernel, at: LoopAt, value: Value) -> Vec<Inst> {
    let insts = &k.blocks[at.body].insts;
    let mut own = BTreeSet::new();
    for &inst in insts.iter().rev().skip_while(|&&i| i != at.inst).skip(1) {
        let Some(&v) = k.results[inst].first() else { continue };
        let mut readers = insts.iter().copied().filter(|&i| reads(k, i, v) > 0).peekable();
        let serves = match v == value {
            true => readers.all(|i| i == at.inst && reads(k, i, v) == 1),
            false => readers.peek().is_some() && readers.all(|i| own.contains(&i)),
        };
        let may_move =
            matches!(k.insts[inst], gpu_ops!(elementwise views) | Op::MaskInvalid { .. } | Op::LoadGlobal { .. });
        if serves && may_move {
            own.insert(inst);
        }
    }
    match own.iter().any(|&i| matches!(k.insts[i], Op::LoadGlobal { .. })) {
        true => insts.iter().copied().filter(|i| own.contains(i)).collect(),
        false => Vec::new(),
    }
}
