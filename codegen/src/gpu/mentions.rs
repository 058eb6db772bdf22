//! What each kind of field of an operation mentions.

use super::atom::{MmaAtom, Side};
use super::declare::{Field, Mention};
use super::fields::{
    Accuracy, At, Cache, CopyAtom, Direction, FenceKind, Operand, SharedRef, Slice, UnsignedOp, Valid,
};
use super::ids::{Block, Buffer, Ring, TensorMap, Value};
use atlas_dsl::ir::GridExtent;
use atlas_dsl::op::{BinaryOp, LoopKind, Predicate, ReduceOp, UnaryOp, Update};
use atlas_dsl::{Dim, Param, Table};

/// Fields that mention nothing.
macro_rules! plain {
    ($($ty:ty),+) => {$(
        impl Field for $ty {
            fn mentions(&self, _: &mut dyn FnMut(Mention)) {}

            fn replace(&mut self, _: &mut dyn FnMut(Value) -> Value) {}
        }
    )+};
}

plain!(f64, u8, u32, (u32, u32, u32), Vec<u8>);
plain!(
    UnsignedOp, UnaryOp, BinaryOp, Predicate, ReduceOp, LoopKind, Accuracy, Cache, Direction, FenceKind, MmaAtom, Side,
    Update
);

/// Fields that are one thing which operations mention.
macro_rules! entity {
    ($($ty:ident $mention:ident),+) => {$(
        impl Field for $ty {
            fn mentions(&self, f: &mut dyn FnMut(Mention)) {
                f(Mention::$mention(*self));
            }

            fn replace(&mut self, _: &mut dyn FnMut(Value) -> Value) {}
        }
    )+};
}

entity!(Dim Dim, Param Param, Table Table, Buffer Buffer, Ring Ring, TensorMap Map, Block Body);

impl Field for Value {
    fn mentions(&self, f: &mut dyn FnMut(Mention)) {
        f(Mention::Value(*self));
    }

    fn replace(&mut self, f: &mut dyn FnMut(Value) -> Value) {
        *self = f(*self);
    }
}

/// Fields that are made of others.
macro_rules! composed {
    ($($ty:ty: |$x:ident| [$($part:expr),*];)+) => {$(
        impl Field for $ty {
            fn mentions(&self, f: &mut dyn FnMut(Mention)) {
                let $x = self;
                $( Field::mentions(&$part, f); )*
            }

            fn replace(&mut self, f: &mut dyn FnMut(Value) -> Value) {
                let $x = self;
                $( Field::replace(&mut $part, f); )*
            }
        }
    )+};
}

composed! {
    (Value, u32): |x| [x.0];
    SharedRef: |x| [x.buffer, x.token];
    Valid: |x| [x.slice, x.dim];
}

impl<F: Field> Field for Option<F> {
    fn mentions(&self, f: &mut dyn FnMut(Mention)) {
        self.iter().for_each(|field| field.mentions(f));
    }

    fn replace(&mut self, f: &mut dyn FnMut(Value) -> Value) {
        self.iter_mut().for_each(|field| field.replace(f));
    }
}

/// Lists of fields.
macro_rules! lists {
    ($($ty:ty),+) => {$(
        impl Field for Vec<$ty> {
            fn mentions(&self, f: &mut dyn FnMut(Mention)) {
                self.iter().for_each(|field| field.mentions(f));
            }

            fn replace(&mut self, f: &mut dyn FnMut(Value) -> Value) {
                self.iter_mut().for_each(|field| field.replace(f));
            }
        }
    )+};
}

lists!(Value, Slice, Valid);

impl Field for Slice {
    fn mentions(&self, f: &mut dyn FnMut(Mention)) {
        match self {
            Slice::At { coord: v, .. }
            | Slice::Tile { index: v, .. }
            | Slice::Span { start: v, .. }
            | Slice::Gather { places: v, .. } => v.mentions(f),
            Slice::Whole { .. } => {}
        }
    }

    fn replace(&mut self, f: &mut dyn FnMut(Value) -> Value) {
        match self {
            Slice::At { coord: v, .. }
            | Slice::Tile { index: v, .. }
            | Slice::Span { start: v, .. }
            | Slice::Gather { places: v, .. } => v.replace(f),
            Slice::Whole { .. } => {}
        }
    }
}

impl Field for At {
    fn mentions(&self, f: &mut dyn FnMut(Mention)) {
        match self {
            At::Iteration(v) | At::Slot(v) => v.mentions(f),
            At::Cursor { slot, phase } => {
                slot.mentions(f);
                phase.mentions(f);
            }
        }
    }

    fn replace(&mut self, f: &mut dyn FnMut(Value) -> Value) {
        match self {
            At::Iteration(v) | At::Slot(v) => v.replace(f),
            At::Cursor { slot, phase } => {
                slot.replace(f);
                phase.replace(f);
            }
        }
    }
}

impl Field for CopyAtom {
    fn mentions(&self, f: &mut dyn FnMut(Mention)) {
        self.map().mentions(f);
    }

    fn replace(&mut self, _: &mut dyn FnMut(Value) -> Value) {}
}

impl Field for Operand {
    fn mentions(&self, f: &mut dyn FnMut(Mention)) {
        match self {
            Operand::Shared(from) => from.mentions(f),
            Operand::Fragment(v) => v.mentions(f),
        }
    }

    fn replace(&mut self, f: &mut dyn FnMut(Value) -> Value) {
        match self {
            Operand::Shared(from) => from.replace(f),
            Operand::Fragment(v) => v.replace(f),
        }
    }
}

impl Field for GridExtent {
    fn mentions(&self, f: &mut dyn FnMut(Mention)) {
        self.dim().mentions(f);
    }

    fn replace(&mut self, _: &mut dyn FnMut(Value) -> Value) {}
}
