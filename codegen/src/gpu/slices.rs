//! What a place is computed from: the scalars that copies and loads need, and how they are copied or moved along.

use super::{Block, Inst, Kernel, Mover, Op, Ring, Type, Value, ValueDef};
use std::collections::{BTreeMap, BTreeSet};

/// True for an operation on scalars that may be computed anywhere, any number of times.
pub(crate) fn is_plain(k: &Kernel, inst: Inst) -> bool {
    let of_scalars = matches!(
        k.insts[inst],
        Op::Const(_)
            | Op::DimSize(_)
            | Op::DimTiles(..)
            | Op::CtaNumber
            | Op::CtaCount
            | Op::SplitNumber
            | Op::SplitCount
            | Op::Unsigned(..)
            | Op::Coordinate(..)
            | Op::ScalarParam(_)
            | Op::TableGet(..)
            | Op::Unary(..)
            | Op::Binary(..)
            | Op::Compare(..)
            | Op::Select(..)
            | Op::Fma(..)
            | Op::Cast(_)
    );
    of_scalars && k.results[inst].iter().all(|&v| is_scalar(k, v))
}

/// True for a fragment of rank 0.
pub(crate) fn is_scalar(k: &Kernel, v: Value) -> bool {
    matches!(&k.values[v].ty, Type::Fragment { layout, .. } if layout.shape.is_empty())
}

/// True for a guarded block that copies.
pub(crate) fn is_guarded_copy(k: &Kernel, inst: Inst) -> bool {
    let Op::If(_, block, _) = k.insts[inst] else { return false };
    k.blocks[block].insts.iter().any(|&i| matches!(k.insts[i], Op::Copy { .. }))
}

/// The ring of a guarded block that fills a stage by the copy engine, and commits it.
pub(crate) fn guarded_engine_fill(k: &Kernel, inst: Inst) -> Option<Ring> {
    let Op::If(_, block, _) = k.insts[inst] else { return None };
    let acquired = |&i: &Inst| if let Op::Acquire(ring, _) = k.insts[i] { Some(ring) } else { None };
    let ring = k.blocks[block].insts.iter().find_map(acquired)?;
    (k.rings[ring].filled_by == Mover::Engine).then_some(ring)
}

/// Instructions of a guarded fill at a place of a block: the guard, and the commit behind it unless the engine fills. `None` if
/// no such fill begins there.
pub(crate) fn guarded_fill(k: &Kernel, insts: &[Inst], at: usize) -> Option<(Ring, usize)> {
    if let Some(ring) = guarded_engine_fill(k, insts[at]) {
        return Some((ring, 1));
    }
    let Op::Commit(ring, None) = k.insts[*insts.get(at + 1)?] else { return None };
    is_guarded_copy(k, insts[at]).then_some((ring, 2))
}

/// Calls `f` on every operand of an instruction, and of what stands in its blocks.
pub(crate) fn visit_deep(k: &Kernel, inst: Inst, f: &mut dyn FnMut(Value)) {
    k.insts[inst].visit_operands(&mut *f);
    if let Some(body) = k.insts[inst].body() {
        for &i in &k.blocks[body].insts {
            visit_deep(k, i, f);
        }
    }
}

/// The instructions among `of` that some values are computed from, whatever they are, in the order of `of`.
pub(crate) fn slice(k: &Kernel, of: &[Inst], values: impl IntoIterator<Item = Value>) -> Vec<Inst> {
    let there: BTreeSet<Inst> = of.iter().copied().collect();
    let (mut open, mut found): (Vec<Value>, BTreeSet<Inst>) = (values.into_iter().collect(), BTreeSet::new());
    while let Some(v) = open.pop() {
        let ValueDef::Result(inst, _) = k.values[v].def else { continue };
        if there.contains(&inst) && found.insert(inst) {
            visit_deep(k, inst, &mut |o| open.push(o));
        }
    }
    of.iter().copied().filter(|i| found.contains(i)).collect()
}

/// A copy of an instruction that reads other values, and whose results take the place of the old ones.
pub(crate) fn copy(k: &mut Kernel, inst: Inst, values: &mut BTreeMap<Value, Value>) -> Inst {
    let mut op = k.insts[inst].clone();
    op.replace_operands(|v| values.get(&v).copied().unwrap_or(v));
    let types = k.results[inst].iter().map(|&v| k.values[v].ty.clone()).collect();
    let (loc, old) = (k.locs[inst], k.results[inst].clone());
    let made = k.new_inst(op, types, loc);
    values.extend(old.into_iter().zip(k.results[made].iter().copied()));
    made
}

/// Instructions, each followed by those in its body.
pub(crate) fn with_bodies(k: &Kernel, insts: &[Inst]) -> Vec<Inst> {
    let mut all = Vec::new();
    for &inst in insts {
        all.push(inst);
        if let Some(body) = k.insts[inst].body() {
            all.extend(with_bodies(k, &k.blocks[body].insts));
        }
    }
    all
}

/// Takes out of a block what nothing reads, of the operations that may go.
pub(crate) fn remove_unread(k: &mut Kernel, block: Block, may_go: impl Fn(&Kernel, Inst) -> bool) {
    let mut read = BTreeSet::new();
    let mut kept = Vec::new();
    for inst in std::mem::take(&mut k.blocks[block].insts).into_iter().rev() {
        if may_go(k, inst) && !k.results[inst].iter().any(|v| read.contains(v)) {
            continue;
        }
        visit_deep(k, inst, &mut |v| {
            read.insert(v);
        });
        kept.push(inst);
    }
    kept.reverse();
    k.blocks[block].insts = kept;
}
