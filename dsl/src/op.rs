//! Tile IR operations: operands and attributes. Properties that hold everywhere are in the vocabulary, one row per operation.
//!
//! Printer, parser, verifier, builder, interpreter and code generator all match on [`Op`].

use crate::entity::{Block, Dim, Param, Table, Value};
use crate::types::DType;
pub use atlas_vocabulary::{BinaryOp, Effect, Kind, LoopKind, Precision, Predicate, Random, ReduceOp, UnaryOp, Update};
pub use atlas_vocabulary::{multiply_high, shift_left, shift_right, shift_right_logical};

/// How one axis of a tensor is addressed by `load` and `store`. `At` drops the axis. The others keep it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Slice {
    /// One element at a scalar coordinate: `%g`.
    At(Value),
    /// The `index`-th tile of `size` elements: `%n : 64`. Ragged at the end of the dim.
    Tile {
        /// Tile number (i32 scalar).
        index: Value,
        /// Elements per tile.
        size: u32,
    },
    /// `len` elements from `start`, which may be negative or past the end: `%s ..+ 64`.
    Span {
        /// First element (i32 scalar).
        start: Value,
        /// Number of elements.
        len: u32,
    },
    /// The whole dim, which is then a constant of the specialization: `..`.
    Whole,
    /// The elements at the places that a tile of rank 1 holds (i32): `at %p`, along one axis. A place outside of the dim reads as 0,
    /// and what is stored there is dropped. Of loads, and of stores that combine.
    Gather(Value),
}

impl Slice {
    /// The value that says where the elements are: a scalar, or a tile of places.
    pub fn operand(self) -> Option<Value> {
        match self {
            Slice::Gather(places) => Some(places),
            slice => slice.coordinate(),
        }
    }

    /// The scalar that says where the slice begins.
    pub fn coordinate(self) -> Option<Value> {
        match self {
            Slice::At(v) | Slice::Tile { index: v, .. } | Slice::Span { start: v, .. } => Some(v),
            Slice::Whole | Slice::Gather(_) => None,
        }
    }
}

/// One Tile IR operation with its operands and attributes.
#[derive(Clone, Debug, PartialEq)]
pub enum Op {
    /// A tile whose every element is `value` (rounded to `dtype`). Result: `dtype[shape]`.
    Splat {
        /// The element.
        value: f64,
        /// Element type.
        dtype: DType,
        /// Extents; empty for a scalar.
        shape: Vec<u32>,
    },
    /// `i32[shape]` whose element is its own index along `axis`.
    Iota {
        /// Extents.
        shape: Vec<u32>,
        /// The counted axis.
        axis: u8,
    },
    /// The runtime size of a dim: i32 scalar.
    DimSize(Dim),
    /// `ceil(dim / size)`: i32 scalar.
    DimTiles {
        /// The dim.
        dim: Dim,
        /// Elements per tile.
        size: u32,
    },
    /// The value of a scalar parameter.
    ScalarParam(Param),
    /// An element of a constant table, chosen by one i32 scalar per axis: f32 scalar.
    TableGet {
        /// The table.
        table: Table,
        /// One index per axis of the table.
        indices: Vec<Value>,
    },
    /// Element-wise, one operand.
    Unary(UnaryOp, Value),
    /// Element-wise, two operands of equal type.
    Binary(BinaryOp, Value, Value),
    /// Element-wise comparison of two operands of equal type. Result: bool.
    Compare(Predicate, Value, Value),
    /// `cond ? on_true : on_false`, element-wise; `cond` is bool of the same shape.
    Select {
        /// Condition.
        cond: Value,
        /// Taken where the condition holds.
        on_true: Value,
        /// Taken elsewhere.
        on_false: Value,
    },
    /// `a * b + c`, element-wise, rounded once; three float operands of equal type. Elements of 16 bits are computed in f32.
    Fma(Value, Value, Value),
    /// Conversion to another element type, rounded to nearest even; float to int truncates.
    Cast(DType, Value),
    /// The same tile with `other` (rounded to its type) where an element is not valid along some axes. The result is valid
    /// along these axes.
    Other {
        /// The tile, of numbers.
        value: Value,
        /// The number past the edge.
        other: f64,
        /// The axes, ascending.
        axes: Vec<u8>,
    },
    /// Repeats axes of extent 1, and prepends axes, until the shape is reached (aligned at the last axis).
    Broadcast {
        /// The tile.
        value: Value,
        /// The result's extents.
        shape: Vec<u32>,
    },
    /// Same elements in row-major order; axes of extent 1 are added or dropped. Where a dropped axis is not valid, the result
    /// is 0.
    Reshape {
        /// The tile.
        value: Value,
        /// For each axis of the result, the axis of the tile that it is; `None` for a new axis of extent 1.
        axes: Vec<Option<u8>>,
    },
    /// Exchanges the two axes of a rank-2 tile.
    Transpose(Value),
    /// Reduces the given axes, which stay with extent 1. Sorted, without repeats.
    Reduce {
        /// What to reduce with.
        op: ReduceOp,
        /// The tile.
        value: Value,
        /// Reduced axes, ascending.
        axes: Vec<u8>,
    },
    /// Reduces, for each element, the elements of its row along an axis up to its own (`cumsum`). Result: the operand's type.
    Scan {
        /// What to reduce with.
        op: ReduceOp,
        /// The tile.
        value: Value,
        /// The axis.
        axis: u8,
        /// From the last element down: the elements from its own on.
        reverse: bool,
    },
    /// The sum of the tiles that the programs of a cluster have here, in the order of their coordinates. Every one of them gets it.
    ClusterSum(Value),
    /// `a · b (+ acc)`: `[M, K] x [K, N] -> [M, N]` in the accumulator type of the operands.
    Dot {
        /// Left operand, `[M, K]`.
        a: Value,
        /// Right operand, `[K, N]`, of the same element type.
        b: Value,
        /// Added to the product if given.
        acc: Option<Value>,
        /// How products are formed.
        precision: Precision,
    },
    /// Reads a tile of a tensor parameter; elements past a dim's end read as 0. One slice per axis.
    Load {
        /// The tensor.
        param: Param,
        /// One slice per axis of the tensor.
        slices: Vec<Slice>,
    },
    /// Writes a tile to a tensor parameter, or combines it with what is there; elements past a dim's end are dropped. No result.
    Store {
        /// The tensor.
        param: Param,
        /// One slice per axis of the tensor.
        slices: Vec<Slice>,
        /// The tile, of the tensor's element type.
        value: Value,
        /// What becomes of the elements that are there.
        update: Update,
    },
    /// Runs `body` for index in `lo..hi`; results are the values carried out of the last iteration.
    Loop {
        /// Whether loads may run ahead.
        kind: LoopKind,
        /// First index (i32 scalar).
        lo: Value,
        /// One past the last index (i32 scalar); no iteration if not above `lo`.
        hi: Value,
        /// Values carried into the first iteration.
        inits: Vec<Value>,
        /// Parameters: the index (i32), then one per carried value. Ends in `yield`.
        body: Block,
    },
    /// Ends a loop body with the values carried to the next iteration.
    Yield(Vec<Value>),
}

impl Op {
    /// Its row in the table of operations.
    pub const fn kind(&self) -> Kind {
        match self {
            Op::Splat { .. } => Kind::Splat,
            Op::Iota { .. } => Kind::Iota,
            Op::DimSize(_) => Kind::DimSize,
            Op::DimTiles { .. } => Kind::DimTiles,
            Op::ScalarParam(_) => Kind::ScalarParam,
            Op::TableGet { .. } => Kind::TableGet,
            Op::Unary(..) => Kind::Unary,
            Op::Binary(..) => Kind::Binary,
            Op::Compare(..) => Kind::Compare,
            Op::Select { .. } => Kind::Select,
            Op::Fma(..) => Kind::Fma,
            Op::Cast(..) => Kind::Cast,
            Op::Other { .. } => Kind::Other,
            Op::Broadcast { .. } => Kind::Broadcast,
            Op::Reshape { .. } => Kind::Reshape,
            Op::Transpose(_) => Kind::Transpose,
            Op::Reduce { .. } => Kind::Reduce,
            Op::Scan { .. } => Kind::Scan,
            Op::ClusterSum(_) => Kind::ClusterSum,
            Op::Dot { .. } => Kind::Dot,
            Op::Load { .. } => Kind::Load,
            Op::Store { update: Update::Replace, .. } => Kind::Store,
            Op::Store { update: Update::Disjoint, .. } => Kind::StoreDisjoint,
            Op::Store { .. } => Kind::Atomic,
            Op::Loop { .. } => Kind::Loop,
            Op::Yield(_) => Kind::Yield,
        }
    }

    /// What a store makes of the elements that are there, if it is one.
    pub fn update(&self) -> Option<Update> {
        if let Op::Store { update, .. } = self { Some(*update) } else { None }
    }

    /// True for a load whose elements lie at the places of a tile.
    pub fn gathers(&self) -> bool {
        matches!(self, Op::Load { slices, .. } if slices.iter().any(|s| matches!(s, Slice::Gather(_))))
    }

    /// True if each element of the result comes from the elements at its place.
    pub const fn is_elementwise(&self) -> bool {
        self.kind().is_elementwise()
    }

    /// Calls `f` on every value operand, in text order.
    pub fn visit_operands(&self, mut f: impl FnMut(Value)) {
        fn on_slices(slices: &[Slice], f: &mut impl FnMut(Value)) {
            slices.iter().filter_map(|s| s.operand()).for_each(f);
        }
        match self {
            Op::Splat { .. } | Op::Iota { .. } | Op::DimSize(_) | Op::DimTiles { .. } | Op::ScalarParam(_) => {}
            Op::TableGet { indices: values, .. } | Op::Yield(values) => values.iter().copied().for_each(f),
            Op::Unary(_, v) | Op::Cast(_, v) | Op::Transpose(v) | Op::ClusterSum(v) => f(*v),
            Op::Other { value, .. }
            | Op::Broadcast { value, .. }
            | Op::Reshape { value, .. }
            | Op::Reduce { value, .. }
            | Op::Scan { value, .. } => f(*value),
            Op::Binary(_, a, b) | Op::Compare(_, a, b) => [*a, *b].into_iter().for_each(f),
            Op::Select { cond, on_true, on_false } => [*cond, *on_true, *on_false].into_iter().for_each(f),
            Op::Fma(a, b, c) => [*a, *b, *c].into_iter().for_each(f),
            Op::Dot { a, b, acc, .. } => [*a, *b].into_iter().chain(*acc).for_each(f),
            Op::Load { slices, .. } => on_slices(slices, &mut f),
            Op::Store { slices, value, .. } => {
                on_slices(slices, &mut f);
                f(*value);
            }
            Op::Loop { lo, hi, inits, .. } => [*lo, *hi].into_iter().chain(inits.iter().copied()).for_each(f),
        }
    }

    /// The same operation with every value operand replaced by `f` of it.
    pub fn map_operands(mut self, mut f: impl FnMut(Value) -> Value) -> Op {
        let mut on = |v: &mut Value| *v = f(*v);
        fn on_slices(slices: &mut [Slice], on: &mut impl FnMut(&mut Value)) {
            for s in slices {
                match s {
                    Slice::At(v) | Slice::Tile { index: v, .. } | Slice::Span { start: v, .. } | Slice::Gather(v) => {
                        on(v)
                    }
                    Slice::Whole => {}
                }
            }
        }
        match &mut self {
            Op::Splat { .. } | Op::Iota { .. } | Op::DimSize(_) | Op::DimTiles { .. } | Op::ScalarParam(_) => {}
            Op::TableGet { indices, .. } => indices.iter_mut().for_each(on),
            Op::Unary(_, v) | Op::Cast(_, v) | Op::Transpose(v) | Op::ClusterSum(v) => on(v),
            Op::Other { value, .. }
            | Op::Broadcast { value, .. }
            | Op::Reshape { value, .. }
            | Op::Reduce { value, .. }
            | Op::Scan { value, .. } => on(value),
            Op::Binary(_, a, b) | Op::Compare(_, a, b) => {
                on(a);
                on(b);
            }
            Op::Select { cond, on_true, on_false } => {
                on(cond);
                on(on_true);
                on(on_false);
            }
            Op::Fma(a, b, c) => {
                on(a);
                on(b);
                on(c);
            }
            Op::Dot { a, b, acc, .. } => {
                on(a);
                on(b);
                if let Some(c) = acc {
                    on(c);
                }
            }
            Op::Load { slices, .. } => on_slices(slices, &mut on),
            Op::Store { slices, value, .. } => {
                on_slices(slices, &mut on);
                on(value);
            }
            Op::Loop { lo, hi, inits, .. } => {
                on(lo);
                on(hi);
                inits.iter_mut().for_each(on);
            }
            Op::Yield(values) => values.iter_mut().for_each(on),
        }
        self
    }
}
