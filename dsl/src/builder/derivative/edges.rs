//! Where a derivative is valid: where its function is, whatever values the derivative's own arithmetic reads.
//!
//! # Promise
//! The constraints of a derivative are those of the function's result (and, along a direction, of the tangents it is made of).
//! Where the function is valid only because of an `or`, the derivative by the operand of the `or` is 0, and valid. An `or` does
//! not apply to a tangent: if the tangent has an edge that the function's argument does not have, the derivative is not valid
//! past that edge.
//!
//! # Argument
//! Constraints come from loads and from what loops and reductions leave, and element-wise operations take the union. The
//! *sources* of a value are the tiles from which it is computed without an `or` in between. So the sources of two values say
//! which one has constraints that the other lacks. `select(s == s, x, x)` is `x` with the constraints of a source `s`: every
//! device gives `x`, and the compiler drops the choice. A value that has all sources already stays as it is.
//!
//! After an `or` of `value`, the derivative is 0 wherever `value` is not valid. So the constraints that the tangent shares with
//! `value` are met or make no difference. Two tiles of different tensors have the same constraints if they are the same slices
//! of the same dims, so constraints are compared there, not sources. A source may have constraints of both kinds. If no axis
//! has both, `other` along some axes removes the shared ones. Otherwise, and where a loop carries the source, all of its
//! constraints stay: fewer elements are valid then, but none that should not be.
//!
//! # Breaks it
//! - A partial that is a number: tests/agreement/edges_of_derivatives.rs::a_number_is_valid_where_its_function_is.
//! - A factor that is not valid where an `or` made the result so: tests/agreement/edges_of_derivatives.rs::past_an_or_stands_zero.
//! - A tangent with an edge of its own before an `or`: tests/agreement/edges_of_derivatives.rs::an_or_says_nothing_of_a_tangent.
//! - Random functions: tile-interp/tests/suite/derivatives.rs::random_functions_over_ragged_tiles.

use super::is_identity;
use super::slopes::Slopes;
use crate::builder::Operand;
use crate::entity::Value;
use crate::ir::Kernel;
use crate::op::{Op, Predicate, Slice};
use crate::types::DType;
use crate::validity::{Constraint, Validity};
use std::collections::BTreeSet;

impl Slopes<'_> {
    /// `x`, valid only where `like` is valid too. A number stands for a tile filled with it.
    pub(super) fn valid_with(&mut self, x: Operand, like: Value) -> Operand {
        let has = self.sources_of(x);
        let mut x = x;
        for source in sources(&self.b.kernel, like).difference(&has) {
            let cond = self.holds_where_valid(*source);
            x = self.b.select(self.loc, cond, x, x);
        }
        x
    }

    /// A condition that is valid where a source is.
    fn holds_where_valid(&mut self, source: Value) -> Operand {
        if self.b.kernel.ty(source).dtype == DType::Bool {
            return source.into();
        }
        self.equals_itself(source.into())
    }

    /// `x == x`, in a type that has comparisons.
    fn equals_itself(&mut self, x: Operand) -> Operand {
        let x = match x {
            Operand::Value(v) if self.b.kernel.ty(v).dtype.is_fp8() => self.b.cast(self.loc, DType::F32, v),
            Operand::Value(v) if self.b.kernel.ty(v).dtype.is_small() => self.b.cast(self.loc, DType::I32, v),
            x => x,
        };
        self.b.compare(self.loc, Predicate::Eq, x, x)
    }

    /// A part of a partial derivative of `out`, with 0 where the part is not valid though `out` is. There an `or` stands in
    /// between, and nothing passes it.
    pub(super) fn cut_at_or(&mut self, x: Operand, out: Value) -> Operand {
        let (has, wanted) = (self.sources_of(x), sources(&self.b.kernel, out));
        if has.is_subset(&wanted) { x } else { self.b.other(self.loc, x, 0.0) }
    }

    /// What passes an `or`, backward or forward: `x` where `value` is valid, and a valid 0 elsewhere.
    pub(super) fn through_or(&mut self, x: Operand, value: Value) -> Operand {
        if x.number() == Some(0.0) {
            return x;
        }
        let dtype = self.b.kernel.ty(value).dtype;
        let own = self.as_tile(x, dtype);
        let own = self.valid_with(own, value);
        self.b.other(self.loc, own, 0.0)
    }

    /// A tangent after an `or` of `value`: a valid 0 where `value` is not valid, and elsewhere `x` with its own edges.
    pub(super) fn along_or(&mut self, x: Operand, value: Value) -> Operand {
        let own = self.edges_beside(x, value);
        let mut through = self.through_or(x, value);
        for (source, shared) in own {
            let is_whole = self.b.kernel.ty(source).dtype == DType::Bool || shared.is_empty();
            let cond = if is_whole {
                self.holds_where_valid(source)
            } else {
                // An `or` takes every type that is not bool, a comparison those with arithmetic.
                let edge = self.b.push(self.loc, Op::Other { value: source, other: 0.0, axes: shared });
                self.equals_itself(edge)
            };
            through = self.b.select(self.loc, cond, through, through);
        }
        through
    }

    /// Sources of `x` with constraints that `like` does not have, and the axes along which all constraints are those of `like`.
    fn edges_beside(&self, x: Operand, like: Value) -> Vec<(Value, Vec<u8>)> {
        let kernel = &self.b.kernel;
        let of_like = sources(kernel, like);
        let of_x: Vec<Value> = self.sources_of(x).difference(&of_like).copied().collect();
        let known = Validity::of_each(kernel, of_like.iter().chain(&of_x).copied());
        // Operands meet at the last axis.
        let from_end = |v: Value, c: &Constraint| kernel.ty(v).rank() - usize::from(c.axis);
        let extent = |v: Value, c: &Constraint| kernel.ty(v).shape[usize::from(c.axis)];
        let is_of_like = |v: Value, c: &Constraint| {
            of_like.iter().filter_map(|w| Some((*w, known.get(w)?))).any(|(w, all)| {
                let same = |d: &&Constraint| (from_end(w, d), extent(w, d)) == (from_end(v, c), extent(v, c));
                all.iter().filter(same).any(|d| Constraint { axis: c.axis, ..*d }.same(c, kernel))
            })
        };
        let own = |v: Value| match known.get(&v) {
            Some(all) => {
                let (shared, own): (Vec<&Constraint>, Vec<_>) = all.iter().partition(|c| is_of_like(v, c));
                let is_shared = |axis: &u8| !own.iter().any(|c| c.axis == *axis);
                let axes: BTreeSet<u8> = shared.iter().map(|c| c.axis).filter(is_shared).collect();
                (!own.is_empty()).then(|| (v, axes.into_iter().collect()))
            }
            None => Some((v, Vec::new())),
        };
        of_x.into_iter().filter_map(own).collect()
    }

    fn sources_of(&self, x: Operand) -> BTreeSet<Value> {
        if let Operand::Value(v) = x { sources(&self.b.kernel, v) } else { BTreeSet::new() }
    }
}

/// The tiles whose constraints a value may have.
fn sources(kernel: &Kernel, v: Value) -> BTreeSet<Value> {
    let (mut open, mut seen, mut found) = (vec![v], BTreeSet::new(), BTreeSet::new());
    while let Some(v) = open.pop() {
        // A scalar has no axis that could have an edge.
        if !seen.insert(v) || kernel.ty(v).shape.is_empty() {
            continue;
        }
        match kernel.def_op(v).map(|(_, op)| op) {
            Some(
                op @ (Op::Unary(..)
                | Op::Binary(..)
                | Op::Compare(..)
                | Op::Select { .. }
                | Op::Fma(..)
                | Op::Cast(..)
                | Op::Broadcast { .. }),
            ) => op.visit_operands(|operand| open.push(operand)),
            // A tile that is given twice is the same tile.
            Some(Op::Reshape { value, axes }) if is_identity(kernel, *value, axes) => open.push(*value),
            Some(Op::Other { axes, .. }) if axes.len() == kernel.ty(v).rank() => {}
            Some(Op::Splat { .. } | Op::Iota { .. }) => {}
            Some(Op::Load { slices, .. }) if slices.iter().all(|s| matches!(s, Slice::At(_) | Slice::Whole)) => {}
            _ => {
                found.insert(v);
            }
        }
    }
    found
}
