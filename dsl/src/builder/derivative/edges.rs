//! Where a derivative is valid: where its function is, whatever the arithmetic of the derivative reads.
//!
//! # Promise
//! The constraints of a derivative are those of the function's result (and, along a direction, of the tangents it is made of).
//! Where the function is valid only because of an `or`, the derivative by what stands before the `or` is 0, and valid.
//!
//! # Argument
//! Constraints come from loads and from what loops and reductions leave, and element-wise operations take the union. So the
//! *sources* of two values, the tiles that they are computed from without an `or` between, say which one has constraints that
//! the other lacks. `select(s == s, x, x)` is `x` with the constraints of a source `s`: every device gives `x`, and the
//! compiler drops the choice. What has all sources already is left as it is.
//!
//! # Breaks it
//! - A partial that is a number: tests/agreement/edges_of_derivatives.rs::a_number_is_valid_where_its_function_is.
//! - A factor that is not valid where an `or` made the result so: tests/agreement/edges_of_derivatives.rs::past_an_or_stands_zero.
//! - Random functions: tile-interp/tests/suite/derivatives.rs::random_functions_over_ragged_tiles.

use super::slopes::Slopes;
use crate::builder::Operand;
use crate::entity::Value;
use crate::ir::Kernel;
use crate::op::{Op, Predicate, Slice};
use crate::types::DType;
use std::collections::BTreeSet;

impl Slopes<'_> {
    /// `x`, valid only where `like` is valid too. A number stands for a tile of them.
    pub(super) fn valid_with(&mut self, x: Operand, like: Value) -> Operand {
        let has = self.sources_of(x);
        let mut x = x;
        for source in sources(&self.b.kernel, like).difference(&has) {
            let is_bool = self.b.kernel.ty(*source).dtype == DType::Bool;
            let cond = match is_bool {
                true => (*source).into(),
                false => self.b.compare(self.loc, Predicate::Eq, *source, *source),
            };
            x = self.b.select(self.loc, cond, x, x);
        }
        x
    }

    /// A part of a partial of `out` with 0 where it is not valid though `out` is: an `or` stands between, and nothing passes it.
    pub(super) fn cut_at_or(&mut self, x: Operand, out: Value) -> Operand {
        let (has, wanted) = (self.sources_of(x), sources(&self.b.kernel, out));
        if has.is_subset(&wanted) { x } else { self.b.other(self.loc, x, 0.0) }
    }

    /// What passes an `or` backward or forward: `x` where `value` is valid, and a valid 0 elsewhere.
    pub(super) fn through_or(&mut self, x: Operand, value: Value) -> Operand {
        if x.number() == Some(0.0) {
            return x;
        }
        let dtype = self.b.kernel.ty(value).dtype;
        let own = self.as_tile(x, dtype);
        let own = self.valid_with(own, value);
        self.b.other(self.loc, own, 0.0)
    }

    fn sources_of(&self, x: Operand) -> BTreeSet<Value> {
        if let Operand::Value(v) = x { sources(&self.b.kernel, v) } else { BTreeSet::new() }
    }
}

/// The tiles whose constraints a value has, as far as they may have any.
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
                | Op::Cast(..)
                | Op::Broadcast { .. }),
            ) => op.visit_operands(|operand| open.push(operand)),
            Some(Op::Other { .. } | Op::Splat { .. } | Op::Iota { .. }) => {}
            Some(Op::Load { slices, .. }) if slices.iter().all(|s| matches!(s, Slice::At(_) | Slice::Whole)) => {}
            _ => {
                found.insert(v);
            }
        }
    }
    found
}
