//! The tensors of which a launch reads each element at most once.
//!
//! # Promise
//! No two programs read the same element of a tensor that [`read_once`] names, and no program reads one twice. Tensors that it
//! does not name may be read once all the same. It speaks of kernels whose coordinates still come from the index map, which is
//! so before `persist_programs`. Only hints depend on it, so a wrong answer costs time and changes no value.
//!
//! # Argument
//! A read is made once for each program and each iteration of the loops around it. Two of these differ in a coordinate of the
//! grid or in a loop's index. Each such number must decide the position of the read along some axis: the index of its tile, or its
//! coordinate, is the number itself, times a constant or plus what is the same in the whole launch. Tiles of one axis are
//! disjoint, so different numbers then mean different elements. A span may begin anywhere, so a number tells nothing there. An
//! axis of the grid that certainly has one program needs no position. Of the CTAs that share a program, each runs its own
//! iterations, and only the last one runs what follows their sum. What precedes the loop is read by all of them.
//!
//! Several reads of one tensor must stand in the same loops and have the same indices, and be disjoint parts of the same tile,
//! such as the panels that the copy engine brings. An axis of stride 0 has one element for all positions, so such a tensor is
//! never named.
//!
//! # Breaks it
//! - Operands that other programs read, loops that read a tile again, spans, indices of which two programs have the same:
//!   tests/cases/passes/select_cache_hints/.

use crate::gpu::{Block, Kernel, Op, Slice, Value, ValueDef};
use atlas_dsl::Param;
use atlas_dsl::ir::{DimSize, GridExtent, ParamKind, Stride};
use atlas_dsl::op::BinaryOp;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// The read-only tensors of which a launch reads each element at most once.
pub fn read_once(k: &Kernel) -> BTreeSet<Param> {
    let mut reads = BTreeMap::new();
    for role in k.roles.values() {
        let mut walk = ReadWalk { k, loops: Vec::new(), by_each_split: k.index_map.splits > 1, reads: &mut reads };
        walk.block(role.body);
    }
    reads.into_iter().filter(|(param, reads)| is_once(k, *param, reads)).map(|(param, _)| param).collect()
}

/// A read of a part of a tensor.
struct TensorRead<'k> {
    slices: &'k [Slice],
    /// The indices of the loops around it.
    loops: Vec<Value>,
    /// True if each of the CTAs that share a program makes it.
    by_each_split: bool,
}

struct ReadWalk<'k, 'r> {
    k: &'k Kernel,
    loops: Vec<Value>,
    by_each_split: bool,
    reads: &'r mut BTreeMap<Param, Vec<TensorRead<'k>>>,
}

impl ReadWalk<'_, '_> {
    fn block(&mut self, block: Block) {
        let k = self.k;
        for &inst in &k.blocks[block].insts {
            let op = &k.insts[inst];
            if let Op::Loop { body, .. } = op {
                let by_each_split = std::mem::replace(&mut self.by_each_split, false);
                self.loops.push(k.blocks[*body].params[0]);
                self.block(*body);
                self.loops.pop();
                self.by_each_split = by_each_split;
            } else if let Some(body) = op.body() {
                self.block(body);
            }
            self.by_each_split &= !matches!(op, Op::SumSplits(_));
            let is_store = matches!(op, Op::Copy { atom, .. } if atom.is_store());
            if let Op::LoadGlobal { param, slices, .. } | Op::Copy { param, slices, .. } = op
                && !is_store
            {
                let read = TensorRead { slices, loops: self.loops.clone(), by_each_split: self.by_each_split };
                self.reads.entry(*param).or_default().push(read);
            }
        }
    }
}

fn is_once(k: &Kernel, param: Param, reads: &[TensorRead<'_>]) -> bool {
    let kind = &k.params[param].kind;
    let ParamKind::Tensor { strides, .. } = kind else { return false };
    let [first, others @ ..] = reads else { return false };
    if !kind.is_read_only() || strides.contains(&Stride::Const(0)) || first.by_each_split {
        return false;
    }
    let told: BTreeSet<Value> = first.slices.iter().filter_map(|&s| Some(counter(k, cell(s).0?))).collect();
    let axes = k.index_map.axes.iter().enumerate().filter(|(_, axis)| !has_one_program(k, **axis));
    let is_told = |counter: Option<&Value>| counter.is_some_and(|v| told.contains(v));
    axes.map(|(n, _)| k.coords.get(n)).chain(first.loops.iter().map(Some)).all(is_told)
        && others.iter().all(|read| read.loops == first.loops && same_cell(read.slices, first.slices))
        && reads.iter().enumerate().all(|(n, a)| reads[..n].iter().all(|b| are_disjoint(a.slices, b.slices)))
}

fn has_one_program(k: &Kernel, axis: GridExtent) -> bool {
    matches!(k.dims[axis.dim()].size, DimSize::Const(n) if n <= u64::from(axis.tile().unwrap_or(1)))
}

/// The number of the cell of an axis that a slice is a part of, and how many elements a cell has. A slice without such a number
/// may be anywhere on the axis.
fn cell(slice: Slice) -> (Option<Value>, u32) {
    match slice {
        Slice::At { coord, .. } => (Some(coord), 1),
        Slice::Tile { index, size, .. } => (Some(index), size),
        Slice::Span { .. } | Slice::Whole { .. } | Slice::Gather { .. } => (None, 0),
    }
}

fn same_cell(a: &[Slice], b: &[Slice]) -> bool {
    a.iter().map(|&s| cell(s)).eq(b.iter().map(|&s| cell(s)))
}

/// The elements of a cell that a slice is; `None` where nobody knows.
fn part(slice: Slice) -> Option<Range<u32>> {
    match slice {
        Slice::At { .. } => Some(0..1),
        Slice::Tile { offset, len, .. } | Slice::Whole { offset, len } => Some(offset..offset + len),
        Slice::Span { .. } | Slice::Gather { .. } => None,
    }
}

/// True if parts of one cell share no element.
fn are_disjoint(a: &[Slice], b: &[Slice]) -> bool {
    a.iter().zip(b).any(|(&a, &b)| {
        let (Some(a), Some(b)) = (part(a), part(b)) else { return false };
        a.end <= b.start || b.end <= a.start
    })
}

/// The number that a value is, times a constant or plus what is the same in the whole launch.
fn counter(k: &Kernel, mut v: Value) -> Value {
    while let ValueDef::Result(inst, _) = k.values[v].def
        // Different numbers may have the same low bits.
        && !k.tile(v).0.is_small()
        && let Some(operand) = counted(k, &k.insts[inst])
    {
        v = operand;
    }
    v
}

/// The operand whose different values give different results.
fn counted(k: &Kernel, op: &Op) -> Option<Value> {
    if let Op::Cast(x) | Op::Broadcast(x) | Op::Reshape(x) | Op::Coordinate(x, _) = op {
        return Some(*x);
    }
    let Op::Binary(by, _, a, b) = op else { return None };
    let (of_a, of_b) = match by {
        BinaryOp::Add | BinaryOp::Sub => (is_fixed(k, *a), is_fixed(k, *b)),
        BinaryOp::Mul => (is_factor(k, *a), is_factor(k, *b)),
        _ => return None,
    };
    match (of_a, of_b) {
        (_, true) => Some(*a),
        (true, false) => Some(*b),
        (false, false) => None,
    }
}

/// True if a value is the same in all programs and iterations.
fn is_fixed(k: &Kernel, v: Value) -> bool {
    let ValueDef::Result(inst, _) = k.values[v].def else { return false };
    matches!(k.insts[inst], Op::Const(_) | Op::DimSize(_) | Op::DimTiles(..) | Op::ScalarParam(_))
}

fn is_factor(k: &Kernel, v: Value) -> bool {
    let ValueDef::Result(inst, _) = k.values[v].def else { return false };
    matches!(k.insts[inst], Op::Const(x) if x != 0.0)
}
