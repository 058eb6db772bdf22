//! Which elements of each tile are valid, that is, computed only from elements inside their tensors.
//!
//! # Promise
//! An element that meets every [`Constraint`] of its tile is valid. The verifier, the interpreter and the code generator all
//! use this analysis and nothing else. So they agree on what is not valid, even where more could be known.
//!
//! # Argument
//! A fact is a set of constraints. A larger set is a weaker fact, and the join is the union.
//!
//! - A load may reach outside a dim along each axis that [`reach()`] does not prove to be inside. Each such axis is one
//!   constraint. Along an axis that is gathered it has those of the places: what stands at a place outside of the dim is 0, and
//!   valid, as that of a single place is. An element-wise operation has the constraints of all operands. Transposes, reshapes and broadcasts move
//!   constraints with their axes. A repeated axis of one element is valid as a whole or not at all. A reshape names the axes
//!   that stay, whatever their extents, so a tile of extent 1 behaves like a larger one. A dropped axis takes its constraints
//!   along: every device writes 0 where they are not met.
//! - A reduction skips elements that are not valid along its axes, and a product takes them as 0 along the axis that it
//!   contracts. So the constraints of these axes end there. The constraints of an axis also end at an `or` along it.
//! - A carried value has the constraints of its initial value and of the value that the body yields. The set of slices in a
//!   kernel is finite and the union only grows, so the walk reaches a fixed point.
//! - A constraint means the same in every iteration only if its coordinate is not computed in the body. The verifier refuses
//!   the others (226) as if every tile were ragged, and the walk drops them.
//! - Two constraints are the same if their slices are: the same value, or constants of equal value. If this misses that two
//!   slices are equal, there is one more constraint, which is harmless.
//!
//! # Breaks it
//! - A reduction after the loop of a tile that the loop cuts: tests/cases/tile/error_edge_leaves_its_loop.tile.
//! - A carried tile that starts whole and becomes ragged: tests/agreement/exchanges.rs::a_loop_begins_with_the_edge_that_it_carries.
//! - An axis of extent 1 that stays: tests/agreement/extents.rs, `atlas fuzz --configs`.
//! - A repeated column: tests/agreement/wrong_code.rs::a_column_of_one_element_is_repeated_whole.
//! - Each transfer function by itself: dsl/tests/validity.rs::operations_pass_constraints_on,
//!   tile-interp/tests/suite/ragged.rs.

use crate::entity::{Block, Dim, Inst, Value};
use crate::ir::{Kernel, ParamKind, ValueDef};
use crate::op::{Op, Slice};
use crate::reach::{Reach, constant, is_counted_point, reach};
use cranelift_entity::SecondaryMap;
use std::collections::{BTreeMap, BTreeSet};

/// The elements of a tile are valid only where `slice` lies inside `dim` along `axis`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Constraint {
    /// Axis of the tile.
    pub axis: u8,
    /// The slice of the tensor along the axis; of one element if `whole_axis`.
    pub slice: Slice,
    /// The dim that is sliced.
    pub dim: Dim,
    /// The axis repeats one element: it is valid as a whole if that element is, and otherwise not at all.
    pub whole_axis: bool,
}

impl Constraint {
    /// The value that gives the start of the slice.
    pub fn coordinate(&self) -> Option<Value> {
        self.slice.coordinate()
    }

    /// True if both say the same.
    pub fn same(&self, other: &Constraint, kernel: &Kernel) -> bool {
        (self.axis, self.dim, self.whole_axis) == (other.axis, other.dim, other.whole_axis)
            && same_slice(kernel, self.slice, other.slice)
    }
}

/// The constraints of every value of a kernel.
#[derive(Clone, Debug)]
pub struct Validity {
    constraints: SecondaryMap<Value, Vec<Constraint>>,
    /// The constraints of carried values, as far as they are known.
    carried: SecondaryMap<Inst, Vec<Vec<Constraint>>>,
    /// Ignore sizes, divisors and ranges: every tile and span may be ragged.
    by_source: bool,
}

impl Validity {
    /// Analyses a kernel that keeps the typing rules, and uses what is known of its dims.
    pub fn of(kernel: &Kernel) -> Validity {
        Validity::analyse(kernel, false)
    }

    /// The same for every size that its dims may have: whether a kernel is legal must not depend on sizes.
    pub fn by_source(kernel: &Kernel) -> Validity {
        Validity::analyse(kernel, true)
    }

    /// The constraints that some values have for every size, in a kernel whose loops may be unfinished. A value that is
    /// computed from a carried tile has none.
    pub(crate) fn of_each(
        kernel: &Kernel,
        values: impl IntoIterator<Item = Value>,
    ) -> BTreeMap<Value, Vec<Constraint>> {
        let mut v = Validity { constraints: SecondaryMap::new(), carried: SecondaryMap::new(), by_source: true };
        // Whether a value's constraints are known.
        let mut known: BTreeMap<Value, bool> = BTreeMap::new();
        let mut found = BTreeMap::new();
        for value in values {
            let mut open = vec![value];
            while let Some(&top) = open.last() {
                let mut operands = Vec::new();
                let op = match kernel.def_op(top).map(|d| d.1) {
                    _ if known.contains_key(&top) => None,
                    Some(op) if !kernel.ty(top).shape.is_empty() && !matches!(op, Op::Loop { .. }) => {
                        op.visit_operands(|w| operands.push(w));
                        Some(op)
                    }
                    // A scalar has no axis that could have an edge.
                    _ => {
                        known.insert(top, kernel.ty(top).shape.is_empty());
                        None
                    }
                };
                let before = open.len();
                open.extend(operands.iter().filter(|w| !known.contains_key(w)));
                if open.len() > before {
                    continue;
                }
                if let Some(op) = op {
                    v.constraints[top] = v.transfer(kernel, op);
                    known.insert(top, operands.iter().all(|w| known[w]));
                }
                open.pop();
            }
            if known[&value] {
                found.insert(value, v.constraints[value].clone());
            }
        }
        found
    }

    /// What makes elements of a tile invalid; empty if all are valid.
    pub fn constraints(&self, v: Value) -> &[Constraint] {
        &self.constraints[v]
    }

    fn analyse(kernel: &Kernel, by_source: bool) -> Validity {
        let mut v = Validity { constraints: SecondaryMap::new(), carried: SecondaryMap::new(), by_source };
        v.block(kernel, kernel.body);
        v
    }

    fn block(&mut self, kernel: &Kernel, block: Block) {
        for &inst in &kernel.blocks[block].insts {
            match &kernel.insts[inst] {
                Op::Loop { inits, body, .. } => self.loop_(kernel, inst, inits, *body),
                op => {
                    if let [result] = kernel.results[inst][..] {
                        self.constraints[result] = self.transfer(kernel, op);
                    }
                }
            }
        }
    }

    /// Repeats the body until the constraints of carried values no longer grow.
    fn loop_(&mut self, kernel: &Kernel, inst: Inst, inits: &[Value], body: Block) {
        let params = kernel.blocks[body].params.get(1..).unwrap_or_default();
        let mut carried: Vec<Vec<Constraint>> = inits.iter().map(|&v| self.constraints[v].clone()).collect();
        // A loop around this one may walk it again: what was carried then still is, and need not be found anew.
        for (c, before) in carried.iter_mut().zip(&self.carried[inst]) {
            union(kernel, c, before);
        }
        loop {
            for (&p, constraints) in params.iter().zip(&carried) {
                self.constraints[p] = constraints.clone();
            }
            self.block(kernel, body);
            let mut grown = false;
            for (c, &v) in carried.iter_mut().zip(yields(kernel, body)) {
                let before = c.len();
                // What depends on the body breaks a rule of the verifier, and means nothing outside.
                let outside = self.constraints[v].iter().filter(|c| !depends_on(kernel, c, body));
                union(kernel, c, outside);
                grown |= c.len() > before;
            }
            if !grown {
                break;
            }
        }
        for (&r, constraints) in kernel.results[inst].iter().zip(&carried) {
            self.constraints[r].clone_from(constraints);
        }
        self.carried[inst] = carried;
    }

    /// The constraints of an operation's one result.
    fn transfer(&self, kernel: &Kernel, op: &Op) -> Vec<Constraint> {
        let mut out = Vec::new();
        match op {
            Op::Load { param, slices } => {
                if let ParamKind::Tensor { dims, .. } = &kernel.params[*param].kind {
                    self.load(kernel, slices, dims, &mut out);
                }
            }
            // Of a sum over a cluster, all programs have the same constraints: rule 234.
            Op::Unary(..)
            | Op::Binary(..)
            | Op::Compare(..)
            | Op::Select { .. }
            | Op::Fma(..)
            | Op::Cast(..)
            | Op::Scan { .. }
            | Op::ClusterSum(_) => {
                op.visit_operands(|v| union(kernel, &mut out, &self.constraints[v]));
            }
            Op::Broadcast { value, shape } => {
                let from = &kernel.ty(*value).shape;
                let added = shape.len().saturating_sub(from.len());
                let widened = |c: &Constraint| {
                    let axis = usize::from(c.axis);
                    let wider = from.get(axis) == Some(&1) && shape.get(axis + added) != Some(&1);
                    Constraint { axis: (axis + added) as u8, whole_axis: c.whole_axis || wider, ..*c }
                };
                out.extend(self.constraints[*value].iter().map(widened));
            }
            Op::Reshape { value, axes } => {
                out.extend(self.constraints[*value].iter().filter_map(|c| {
                    let axis = axes.iter().position(|&a| a == Some(c.axis))?;
                    Some(Constraint { axis: axis as u8, ..*c })
                }));
            }
            Op::Other { value, axes, .. } => {
                out.extend(self.constraints[*value].iter().filter(|c| !axes.contains(&c.axis)));
            }
            Op::Transpose(v) => {
                out.extend(self.constraints[*v].iter().map(|c| Constraint { axis: 1 - c.axis.min(1), ..*c }));
            }
            Op::Reduce { value, axes, .. } => {
                out.extend(self.constraints[*value].iter().filter(|c| !axes.contains(&c.axis)));
            }
            Op::Dot { a, b, acc, .. } => {
                union(kernel, &mut out, self.constraints[*a].iter().filter(|c| c.axis == 0));
                union(kernel, &mut out, self.constraints[*b].iter().filter(|c| c.axis == 1));
                acc.iter().for_each(|&c| union(kernel, &mut out, &self.constraints[c]));
            }
            Op::Splat { .. }
            | Op::Iota { .. }
            | Op::DimSize(_)
            | Op::DimTiles { .. }
            | Op::ScalarParam(_)
            | Op::TableGet { .. }
            | Op::Store { .. }
            | Op::Loop { .. }
            | Op::Yield(_) => {}
        }
        out
    }

    fn load(&self, kernel: &Kernel, slices: &[Slice], dims: &[Dim], out: &mut Vec<Constraint>) {
        let kept = slices.iter().zip(dims).filter(|(s, _)| !matches!(s, Slice::At(_)));
        for (axis, (&slice, &dim)) in kept.enumerate() {
            if let Slice::Gather(places) = slice {
                let along = |c: &Constraint| Constraint { axis: axis as u8, ..*c };
                union(kernel, out, &self.constraints[places].iter().map(along).collect::<Vec<_>>());
                continue;
            }
            let full = match self.by_source {
                true => slice == Slice::Whole || is_counted_point(kernel, slice, dim),
                false => reach(kernel, slice, dim) == Reach::Inside,
            };
            if !full {
                out.push(Constraint { axis: axis as u8, slice, dim, whole_axis: false });
            }
        }
    }
}

/// True if two integer scalars are the same number when read at one place: one value, or one formula of such values.
pub fn same_number(kernel: &Kernel, v: Value, w: Value) -> bool {
    let (mut open, mut seen) = (vec![(v, w)], BTreeSet::new());
    // All pairs must be the same, so each is looked at once, however deep the formulas are.
    while let Some((v, w)) = open.pop() {
        if v == w || !seen.insert((v, w)) {
            continue;
        }
        if let (Some(a), Some(b)) = (constant(kernel, v), constant(kernel, w)) {
            if a == b {
                continue;
            }
            return false;
        }
        let is_same = match (kernel.def_op(v).map(|d| d.1), kernel.def_op(w).map(|d| d.1)) {
            (Some(Op::Unary(f, x)), Some(Op::Unary(g, y))) => {
                open.push((*x, *y));
                f == g
            }
            (Some(Op::Binary(f, a, b)), Some(Op::Binary(g, c, d))) => {
                open.extend([(*a, *c), (*b, *d)]);
                f == g
            }
            (Some(Op::DimSize(a)), Some(Op::DimSize(b))) => a == b,
            (Some(Op::DimTiles { dim: a, size: m }), Some(Op::DimTiles { dim: b, size: n })) => (a, m) == (b, n),
            (Some(Op::ScalarParam(a)), Some(Op::ScalarParam(b))) => a == b,
            _ => false,
        };
        if !is_same {
            return false;
        }
    }
    true
}

/// True if two slices pick the same elements when read at one place.
pub fn same_slice(kernel: &Kernel, a: Slice, b: Slice) -> bool {
    let same = |v: Value, w: Value| same_number(kernel, v, w);
    match (a, b) {
        (Slice::At(v), Slice::At(w)) => same(v, w),
        (Slice::Tile { index: v, size: m }, Slice::Tile { index: w, size: n }) => m == n && same(v, w),
        (Slice::Span { start: v, len: m }, Slice::Span { start: w, len: n }) => m == n && same(v, w),
        (a, b) => a == b,
    }
}

/// True if a constraint depends on a value of a loop's body. A constant does not, wherever it is written.
pub(crate) fn depends_on(kernel: &Kernel, c: &Constraint, body: Block) -> bool {
    let Some(v) = c.coordinate() else { return false };
    let inside = match kernel.values[v].def {
        ValueDef::BlockParam(block, _) => block == body,
        ValueDef::Result(inst, _) => kernel.blocks[body].insts.contains(&inst),
        ValueDef::Grid(_) => false,
    };
    inside && constant(kernel, v).is_none()
}

/// The values that a loop's body gives to the next iteration.
pub fn yields(kernel: &Kernel, body: Block) -> &[Value] {
    match kernel.blocks[body].insts.last().map(|&i| &kernel.insts[i]) {
        Some(Op::Yield(values)) => values,
        _ => &[],
    }
}

fn union<'c>(kernel: &Kernel, into: &mut Vec<Constraint>, more: impl IntoIterator<Item = &'c Constraint>) {
    for c in more {
        if !into.iter().any(|d| d.same(c, kernel)) {
            into.push(*c);
        }
    }
}
