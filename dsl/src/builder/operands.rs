//! What an expression denotes, and how operands become values of one type and shape.

use super::Builder;
use crate::entity::Value;
use crate::ir::Loc;
use crate::op::{Op, Slice};
use crate::types::{DType, broadcast_shapes};

/// What an expression in a kernel denotes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Operand {
    /// A tile or scalar.
    Value(Value),
    /// A number, which takes the element type of the other operand.
    Literal(f64),
    /// A whole number, written or counted as one. Arithmetic of two of them is that of integers.
    Whole(i64),
    /// The result of a mistake that was already reported.
    Poison,
}

impl From<Value> for Operand {
    fn from(v: Value) -> Operand {
        Operand::Value(v)
    }
}
impl From<f64> for Operand {
    fn from(x: f64) -> Operand {
        Operand::Literal(x)
    }
}
impl From<f32> for Operand {
    fn from(x: f32) -> Operand {
        Operand::Literal(f64::from(x))
    }
}
impl From<i32> for Operand {
    fn from(x: i32) -> Operand {
        Operand::Whole(x.into())
    }
}
impl From<u32> for Operand {
    fn from(x: u32) -> Operand {
        Operand::Whole(x.into())
    }
}
impl From<u64> for Operand {
    fn from(x: u64) -> Operand {
        // What is too large is refused by every integer type, and rounded by floats.
        i64::try_from(x).map_or(Operand::Literal(x as f64), Operand::Whole)
    }
}
impl From<i64> for Operand {
    fn from(x: i64) -> Operand {
        Operand::Whole(x)
    }
}
impl From<usize> for Operand {
    fn from(x: usize) -> Operand {
        Operand::from(x as u64)
    }
}

impl Operand {
    /// Its number, if it is one.
    pub fn number(self) -> Option<f64> {
        match self {
            Operand::Literal(x) => Some(x),
            Operand::Whole(n) => Some(n as f64),
            Operand::Value(_) | Operand::Poison => None,
        }
    }
}

/// One index in `x[g, n, ..]`, as the user wrote it.
#[derive(Clone, Copy, Debug)]
pub enum Index {
    /// An expression: a tile coordinate addresses its tile, any other scalar one element, and a tile the elements at its places.
    At(Operand),
    /// `start ; len`: a span at an offset.
    Span(Operand, u32),
    /// `..`.
    Whole,
}

impl Builder {
    /// An operand as an i32 scalar: a coordinate, a size or a whole literal.
    pub(super) fn index_scalar(&mut self, loc: Loc, x: Operand) -> Option<Value> {
        match x {
            Operand::Value(v) => Some(v),
            x => match self.splat(loc, x.number()?, DType::I32, &[]) {
                Operand::Value(v) => Some(v),
                _ => None,
            },
        }
    }

    pub(super) fn slices(&mut self, loc: Loc, index: &[Index]) -> Option<Vec<Slice>> {
        index
            .iter()
            .map(|i| {
                Some(match *i {
                    Index::Whole => Slice::Whole,
                    Index::Span(start, len) => Slice::Span { start: self.index_scalar(loc, start)?, len },
                    Index::At(x) => {
                        let v = self.index_scalar(loc, x)?;
                        match self.tile_coords.get(&v) {
                            Some(&size) => Slice::Tile { index: v, size },
                            None if self.kernel.ty(v).rank() > 0 => Slice::Gather(v),
                            None => Slice::At(v),
                        }
                    }
                })
            })
            .collect()
    }

    pub(super) fn broadcast_value(&mut self, loc: Loc, v: Value, shape: &[u32]) -> Option<Value> {
        if self.kernel.ty(v).shape == shape {
            return Some(v);
        }
        match self.push(loc, Op::Broadcast { value: v, shape: shape.to_vec() }) {
            Operand::Value(v) => Some(v),
            _ => None,
        }
    }

    /// Two operands as values of one shape: a literal becomes a scalar of the other operand's type, then both broadcast.
    pub(super) fn unify(&mut self, loc: Loc, a: Operand, b: Operand) -> Option<(Value, Value)> {
        let (a, b) = match (a, b) {
            (Operand::Value(a), Operand::Value(b)) => (a, b),
            (Operand::Value(a), y) => (a, self.literal_like(loc, y.number()?, a)?),
            (x, Operand::Value(b)) => (self.literal_like(loc, x.number()?, b)?, b),
            (x, y) => {
                let (x, y) = (x.number()?, y.number()?);
                let Operand::Value(a) = self.splat(loc, x, DType::F32, &[]) else { return None };
                (a, self.literal_like(loc, y, a)?)
            }
        };
        let (x, y) = (self.kernel.ty(a).clone(), self.kernel.ty(b).clone());
        let Some(shape) = broadcast_shapes(&x.shape, &y.shape) else {
            self.error(107, loc, format!("tiles {x} and {y} do not broadcast to one shape"));
            return None;
        };
        Some((self.broadcast_value(loc, a, &shape)?, self.broadcast_value(loc, b, &shape)?))
    }

    pub(super) fn literal_like(&mut self, loc: Loc, x: f64, like: Value) -> Option<Value> {
        let dtype = self.kernel.ty(like).dtype;
        match self.splat(loc, x, dtype, &[]) {
            Operand::Value(v) => Some(v),
            _ => None,
        }
    }
}
