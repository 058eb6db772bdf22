//! What numbers that bounds of loops are made of are expected to be, as formulas of the sizes.
//!
//! Grid coordinates are a position in the grid, which who works the numbers out chooses. A whole number that the caller
//! gives counts for so many elements as [`UNKNOWN_ELEMENTS`] says: it is a window or a length more often than not. What
//! stands in memory is not known, and where it limits what is known, `max(row - window, load(first[m]))`, it is taken to
//! limit nothing. Of tiles the least and the greatest element are told, which is what folds make of them.

use super::formula::{Formula, Formulas};
use crate::gpu::{Kernel, Op, SharedRef, Value, ValueDef};
use atlas_dsl::ir::GridExtent;
use atlas_dsl::op::{BinaryOp, Predicate, ReduceOp};
use std::collections::BTreeMap;

/// Trips of a loop whose bounds are not known.
pub(super) const UNKNOWN_TRIPS: f64 = 8.0;
/// Elements that such a loop goes over, where it counts tiles.
pub(super) const UNKNOWN_ELEMENTS: f64 = 512.0;
/// Operations, one of the other, through which numbers are followed: a stack holds them.
const MOST_DEEP: u32 = 1000;

/// Which element of a tile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum End {
    Least,
    Greatest,
}

impl End {
    fn other(self) -> End {
        match self {
            End::Least => End::Greatest,
            End::Greatest => End::Least,
        }
    }
}

/// The numbers of a kernel, as far as asked.
pub(super) struct Expected<'a> {
    k: &'a Kernel,
    known: BTreeMap<(Value, End), Option<Formula>>,
    divisors: BTreeMap<Value, Option<f64>>,
    /// How deep the walk is; nothing is known of what is deeper than [`MOST_DEEP`].
    depth: u32,
}

impl Expected<'_> {
    pub(super) fn new(k: &Kernel) -> Expected<'_> {
        Expected { k, known: BTreeMap::new(), divisors: BTreeMap::new(), depth: 0 }
    }

    /// The value of a scalar; `None` if nothing is known of it.
    pub(super) fn scalar(&mut self, f: &mut Formulas, v: Value) -> Option<Formula> {
        self.end(f, v, End::Greatest)
    }

    /// The number by which a count of tiles was divided: the extent of one.
    pub(super) fn divisor(&mut self, v: Value) -> Option<f64> {
        // By many ways one comes to the same number, and looks at it once.
        if let Some(&known) = self.divisors.get(&v) {
            return known;
        }
        let made = self.deeper(|e| e.make_divisor(v));
        self.divisors.insert(v, made);
        made
    }

    fn make_divisor(&mut self, v: Value) -> Option<f64> {
        let ValueDef::Result(inst, _) = self.k.values[v].def else { return None };
        match self.k.insts[inst] {
            Op::Cast(x) | Op::Broadcast(x) | Op::Reshape(x) => self.divisor(x),
            Op::Binary(BinaryOp::Div, _, _, by) => match self.k.values[by].def {
                ValueDef::Result(inst, _) => match self.k.insts[inst] {
                    Op::Const(extent) if extent >= 1.0 => Some(extent),
                    _ => None,
                },
                _ => None,
            },
            Op::Binary(BinaryOp::Min | BinaryOp::Max | BinaryOp::Add | BinaryOp::Sub, _, a, b) => {
                self.divisor(a).or_else(|| self.divisor(b))
            }
            _ => None,
        }
    }

    /// What `make` finds, one operation deeper.
    fn deeper<T>(&mut self, make: impl FnOnce(&mut Self) -> Option<T>) -> Option<T> {
        if self.depth == MOST_DEEP {
            return None;
        }
        self.depth += 1;
        let made = make(self);
        self.depth -= 1;
        made
    }

    fn end(&mut self, f: &mut Formulas, v: Value, end: End) -> Option<Formula> {
        if let Some(&known) = self.known.get(&(v, end)) {
            return known;
        }
        let made = self.deeper(|e| e.make(f, v, end));
        self.known.insert((v, end), made);
        made
    }

    fn make(&mut self, f: &mut Formulas, v: Value, end: End) -> Option<Formula> {
        let ValueDef::Result(inst, _) = self.k.values[v].def else { return None };
        let (dtype, layout) = self.k.values[v].ty.tile()?;
        match &self.k.insts[inst] {
            Op::Const(x) => Some(f.constant(*x)),
            Op::Iota { axis, offset } => {
                let last = layout.shape.get(usize::from(*axis)).map_or(0, |n| n.saturating_sub(1));
                Some(f.constant(f64::from(offset + if end == End::Greatest { last } else { 0 })))
            }
            Op::DimSize(dim) => Some(f.size(*dim)),
            Op::DimTiles(dim, size) => Some(f.count(GridExtent::Tiles { dim: *dim, size: *size })),
            Op::Coordinate(_, axis) => Some(f.coordinate(*axis)),
            Op::ScalarParam(_) if dtype.is_int() => Some(f.constant(UNKNOWN_ELEMENTS)),
            Op::Cast(x) | Op::Broadcast(x) | Op::Reshape(x) | Op::Transpose(x) | Op::Again(x) => self.end(f, *x, end),
            Op::Reduce { op: ReduceOp::Max, value, .. } => self.end(f, *value, End::Greatest),
            Op::Reduce { op: ReduceOp::Min, value, .. } => self.end(f, *value, End::Least),
            Op::LoadShared(from) => self.stored(*from).and_then(|x| self.end(f, x, end)),
            Op::Compare(Predicate::Lt, a, b) => {
                let (a, b) = (self.end(f, *a, end)?, self.end(f, *b, end)?);
                Some(f.less(a, b))
            }
            Op::Binary(op, _, a, b) => {
                let (op, of_b) = (*op, if *op == BinaryOp::Sub { end.other() } else { end });
                match (self.end(f, *a, end), self.end(f, *b, of_b)) {
                    (Some(a), Some(b)) => f.binary(op, a, b),
                    (one, other) if matches!(op, BinaryOp::Min | BinaryOp::Max) => one.or(other),
                    _ => None,
                }
            }
            _ => None,
        }
    }

    /// What was written to a place of shared memory that one store alone writes.
    fn stored(&self, from: SharedRef) -> Option<Value> {
        let mut stores = self.k.insts.values().filter_map(|op| match op {
            Op::StoreShared { to, value } if to.buffer == from.buffer => Some(*value),
            _ => None,
        });
        let first = stores.next()?;
        stores.next().is_none().then_some(first)
    }
}
