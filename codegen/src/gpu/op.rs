//! The one table of GPU IR operations.

use super::atom::{MmaAtom, Side};
use super::{Block, Buffer, Ring, Value};
use atlas_dsl::DType;
use atlas_dsl::ir::GridExtent;
use atlas_dsl::op::{BinaryOp, LoopKind, Predicate, ReduceOp, UnaryOp};
use atlas_dsl::reach::Reach;
use atlas_dsl::{Dim, Param, Table};

/// How one axis of a tensor is addressed. `At` gives no tile axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slice {
    /// One element; `in_bounds` if the coordinate is known to lie inside the dim.
    At {
        /// i32 scalar.
        coord: Value,
        /// Known to be inside the dim.
        in_bounds: bool,
    },
    /// `len` elements from `index * size + offset`.
    Tile {
        /// i32 scalar: number of the tile.
        index: Value,
        /// Elements per tile of the kernel.
        size: u32,
        /// First element within the tile.
        offset: u32,
        /// Elements accessed.
        len: u32,
        /// How far the whole tile may reach out of the dim.
        reach: Reach,
    },
    /// `len` elements from `start + offset`, which may lie outside the dim.
    Span {
        /// i32 scalar.
        start: Value,
        /// First element within the span.
        offset: u32,
        /// Elements accessed.
        len: u32,
    },
    /// `len` elements of a constant dim from `offset`.
    Whole {
        /// First element.
        offset: u32,
        /// Elements accessed.
        len: u32,
    },
}

impl Slice {
    /// Elements along the tile axis; `None` where there is no tile axis.
    #[allow(clippy::len_without_is_empty, reason = "an extent along one axis, not a count of items")]
    pub fn len(&self) -> Option<u32> {
        match *self {
            Slice::At { .. } => None,
            Slice::Tile { len, .. } | Slice::Span { len, .. } | Slice::Whole { len, .. } => Some(len),
        }
    }

    /// `len` of its elements, from the `first` on.
    #[must_use]
    pub fn part(self, first: u32, len: u32) -> Slice {
        match self {
            Slice::At { .. } => self,
            Slice::Tile { index, size, offset, reach, .. } => {
                Slice::Tile { index, size, offset: offset + first, len, reach }
            }
            Slice::Span { start, offset, .. } => Slice::Span { start, offset: offset + first, len },
            Slice::Whole { offset, .. } => Slice::Whole { offset: offset + first, len },
        }
    }
}

/// Up to where a tile's elements are real along an axis: those with `0 <= base + i < dim`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Valid {
    /// Tile axis.
    pub axis: u8,
    /// What position 0 of the axis is in the tensor: a slice of the dim.
    pub slice: Slice,
    /// The dim.
    pub dim: Dim,
}

/// A rectangle of a stage of a shared buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedRef {
    /// The buffer.
    pub buffer: Buffer,
    /// The token whose stage is meant; `None` for a buffer of one stage.
    pub token: Option<Value>,
    /// First row and column.
    pub origin: (u32, u32),
    /// True if the tile is the transpose of the rectangle.
    pub transposed: bool,
}

impl SharedRef {
    /// The rectangle that begins so many rows and columns of the tile further on.
    #[must_use]
    pub fn further(self, rows: u32, cols: u32) -> SharedRef {
        let (rows, cols) = if self.transposed { (cols, rows) } else { (rows, cols) };
        SharedRef { origin: (self.origin.0 + rows, self.origin.1 + cols), ..self }
    }
}

/// What the L2 cache does with the lines that a load brings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cache {
    /// As it sees fit.
    Normal,
    /// Evicts them last.
    Keep,
    /// Evicts them first: nothing will read them again.
    Drop,
}

impl Cache {
    /// All of them.
    pub const ALL: [Cache; 3] = [Cache::Normal, Cache::Keep, Cache::Drop];

    /// The word of the text form.
    pub fn suffix(self) -> &'static str {
        match self {
            Cache::Normal => "",
            Cache::Keep => ".keep",
            Cache::Drop => ".drop",
        }
    }
}

/// Where an `mma` finds an operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operand {
    /// In shared memory.
    Shared(SharedRef),
    /// In registers, in the atom's operand layout.
    Fragment(Value),
}

/// Chunks of a thread that a copy writes out one after the other. Of narrow chunks there may be more; a loop then goes over
/// groups of so many, for the addresses of all of them would be kept in registers around the loop that the copy is in.
pub const COPIED_AT_ONCE: u32 = 8;

/// How a `copy` moves bytes from global to shared memory, or back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CopyAtom {
    /// Not settled yet.
    Open,
    /// `cp.async` of 4, 8 or 16 bytes per thread; out-of-bounds elements are zero-filled.
    CpAsync(u32),
    /// `ld.global` and `st.shared`, element by element, for tensors that no vector fits.
    Direct,
    /// The tensor copy engine, one thread issuing.
    Tma,
    /// The same, delivered to every CTA of the cluster.
    TmaMulticast,
    /// The copy engine from shared to global memory.
    TmaStore,
}

impl CopyAtom {
    /// Bytes that a thread moves at once; `None` where the copy engine moves them, or nobody yet.
    pub fn chunk_bytes(self, dtype: DType) -> Option<u32> {
        match self {
            CopyAtom::CpAsync(bytes) => Some(bytes),
            CopyAtom::Direct => Some(dtype.bytes()),
            CopyAtom::Open | CopyAtom::Tma | CopyAtom::TmaMulticast | CopyAtom::TmaStore => None,
        }
    }
}

/// Which stage of a ring is meant: an i32 scalar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    /// That of an iteration, by its number.
    Iteration(Value),
    /// That of this number, below the ring's stages.
    Slot(Value),
}

/// An operation on i32 scalars that are taken for unsigned numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum UnsignedOp {
    /// Quotient, rounded down. The divisor is not 0.
    Div,
    /// The smaller one.
    Min,
}

impl UnsignedOp {
    /// All of them.
    pub const ALL: [UnsignedOp; 2] = [UnsignedOp::Div, UnsignedOp::Min];

    /// The word of the text form.
    pub const fn name(self) -> &'static str {
        match self {
            UnsignedOp::Div => "udiv",
            UnsignedOp::Min => "umin",
        }
    }
}

/// A fence between kinds of access.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FenceKind {
    /// Generic accesses before, async-proxy accesses after.
    ProxyAsync,
}

/// Which form of an elementary function or of a quotient computes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Accuracy {
    /// Within 2 ulp; the only form of most operations.
    Precise,
    /// [`math::approximate`](crate::math::approximate), or the hardware's quick division.
    Approximate,
}

impl Accuracy {
    /// Both.
    pub const ALL: [Accuracy; 2] = [Accuracy::Precise, Accuracy::Approximate];

    /// The word of the text form.
    pub const fn suffix(self) -> &'static str {
        match self {
            Accuracy::Precise => "",
            Accuracy::Approximate => ".approx",
        }
    }
}

/// One GPU IR operation.
#[derive(Clone, Debug, PartialEq)]
pub enum Op {
    /// A fragment whose every element is the constant.
    Const(f64),
    /// A fragment whose element is its index along an axis, plus `offset`.
    Iota {
        /// Axis.
        axis: u8,
        /// Added.
        offset: u32,
    },
    /// Runtime size of a dim.
    DimSize(Dim),
    /// `ceil(dim / size)`.
    DimTiles(Dim, u32),
    /// The number of this CTA among those of the launch, from 0 on: an i32 scalar.
    CtaNumber,
    /// CTAs of the launch: an i32 scalar.
    CtaCount,
    /// On two i32 scalars.
    Unsigned(UnsignedOp, Value, Value),
    /// The i32 scalar itself, which is known to be a coordinate of such an axis of a grid: at least 0 and less than the
    /// axis has.
    Coordinate(Value, GridExtent),
    /// A scalar parameter.
    ScalarParam(Param),
    /// An element of a constant table.
    TableGet(Table, Vec<Value>),
    /// Element-wise.
    Unary(UnaryOp, Accuracy, Value),
    /// Element-wise.
    Binary(BinaryOp, Accuracy, Value, Value),
    /// Element-wise.
    Compare(Predicate, Value, Value),
    /// Element-wise.
    Select(Value, Value, Value),
    /// Element-wise, to the result's element type.
    Cast(Value),
    /// The same fragment, of which the optimiser knows nothing: what is computed from it is computed
    /// again rather than kept.
    Again(Value),
    /// To the result's layout, which the operand's is the broadcast source of. Moves nothing.
    Broadcast(Value),
    /// Adds or drops axes of extent 1. Moves nothing.
    Reshape(Value),
    /// Exchanges the axes of the layout. Moves nothing.
    Transpose(Value),
    /// Replaces elements outside the tensor, and padding of the layout, by a constant.
    Refill {
        /// The tile.
        value: Value,
        /// The constant.
        neutral: f64,
        /// The axes that may be ragged.
        valid: Vec<Valid>,
    },
    /// Folds axes within each warp: registers, then lanes. What remains to be folded across warps is
    /// a trailing axis of the result.
    Reduce {
        /// What to fold with.
        op: ReduceOp,
        /// The tile.
        value: Value,
        /// Axes.
        axes: Vec<u8>,
    },
    /// To the result's layout, through shared memory.
    Convert(Value),
    /// The elements from `offset` on along an axis, as many as the result has. Picks registers, moves nothing.
    Part {
        /// The tile.
        value: Value,
        /// Axis.
        axis: u8,
        /// First element; all threads keep the same registers.
        offset: u32,
    },
    /// Reads a tile from global memory.
    LoadGlobal {
        /// Tensor.
        param: Param,
        /// One per tensor axis.
        slices: Vec<Slice>,
        /// What the L2 cache does with the lines.
        cache: Cache,
    },
    /// Writes a tile to global memory.
    StoreGlobal {
        /// Tensor.
        param: Param,
        /// One per tensor axis.
        slices: Vec<Slice>,
        /// The tile.
        value: Value,
    },
    /// Starts moving a tile between global and shared memory.
    Copy {
        /// How.
        atom: CopyAtom,
        /// Tensor.
        param: Param,
        /// One per tensor axis.
        slices: Vec<Slice>,
        /// Where.
        to: SharedRef,
    },
    /// Reads a fragment from shared memory.
    LoadShared(SharedRef),
    /// Reads an operand of one step of a product from shared memory, in the layout that its atom takes. Whatever reaches
    /// past the buffer along M or N is some element of it.
    LoadMatrix {
        /// Which operand.
        side: Side,
        /// Where.
        from: SharedRef,
        /// Further along K than `from` says: by this i32 scalar times so many elements.
        further: Option<(Value, u32)>,
    },
    /// Writes a fragment to shared memory.
    StoreShared {
        /// Where.
        to: SharedRef,
        /// The tile.
        value: Value,
    },
    /// Writes zeros to a whole buffer.
    ZeroShared(Buffer),
    /// Starts `acc + a · b`; the result is in flight.
    Mma {
        /// Left operand, `[M, K]`.
        a: Operand,
        /// Right operand, `[K, N]`.
        b: Operand,
        /// Accumulator; zero if absent.
        acc: Option<Value>,
        /// Instruction.
        atom: MmaAtom,
        /// Extents M, N, K.
        shape: (u32, u32, u32),
        /// If given, an i1 scalar: false starts from zero whatever the accumulator holds.
        accumulate: Option<Value>,
    },
    /// Makes an in-flight accumulator readable, once at most `pending` younger groups are in flight.
    WaitMma(Value, u32),
    /// Gets the right to fill the stage of an iteration.
    Acquire(Ring, At),
    /// Ends the filling of the token's stage. With no token: an empty commit that keeps the count.
    Commit(Ring, Option<Value>),
    /// Waits until the stage of an iteration is filled.
    Wait(Ring, At),
    /// Ends the reading of the token's stage.
    Release(Value),
    /// Waits until every consumer has released every stage.
    Drain(Ring),
    /// Waits until at most so many of this thread's committed copy groups are pending.
    CopyWait(u32),
    /// All threads of the scope's CTA meet; shared memory written before is visible after.
    Barrier,
    /// A fence.
    Fence(FenceKind),
    /// Runs the body for index in `lo..hi`.
    Loop {
        /// As in Tile IR.
        kind: LoopKind,
        /// i32 scalar.
        lo: Value,
        /// i32 scalar.
        hi: Value,
        /// Carried in.
        inits: Vec<Value>,
        /// Index, then carried values.
        body: Block,
    },
    /// Runs the body for each program that the index map gives this CTA. Parameters: the coordinates, then
    /// optionally the number of the program within its CTA, 0 for the first.
    Programs(Block),
    /// Runs the body if the condition (an i1 scalar, equal in all threads) holds. The results are what the body yields, or
    /// these values.
    If(Value, Block, Vec<Value>),
    /// Ends the body of a loop, or of an `if` with results.
    Yield(Vec<Value>),
}

impl Op {
    /// An operation of two operands that has one form.
    pub const fn binary(op: BinaryOp, a: Value, b: Value) -> Op {
        Op::Binary(op, Accuracy::Precise, a, b)
    }

    /// True if each element of the result comes from the elements at its place.
    pub const fn is_elementwise(&self) -> bool {
        matches!(self, Op::Unary(..) | Op::Binary(..) | Op::Compare(..) | Op::Select(..) | Op::Cast(_) | Op::Again(_))
    }

    /// The block that it runs, of a loop, a branch or `programs`.
    pub const fn body(&self) -> Option<Block> {
        match self {
            Op::Loop { body, .. } | Op::Programs(body) | Op::If(_, body, _) => Some(*body),
            _ => None,
        }
    }

    /// The shared buffers whose elements it reads, and those whose elements it writes.
    pub fn buffers(&self) -> (Vec<Buffer>, Vec<Buffer>) {
        match self {
            Op::LoadShared(r) | Op::LoadMatrix { from: r, .. } => (vec![r.buffer], vec![]),
            Op::Copy { atom: CopyAtom::TmaStore, to, .. } => (vec![to.buffer], vec![]),
            Op::StoreShared { to, .. } | Op::Copy { to, .. } => (vec![], vec![to.buffer]),
            Op::ZeroShared(b) => (vec![], vec![*b]),
            Op::Mma { a, b, .. } => {
                let shared = |o: &Operand| match o {
                    Operand::Shared(r) => Some(r.buffer),
                    Operand::Fragment(_) => None,
                };
                ([a, b].into_iter().filter_map(shared).collect(), vec![])
            }
            _ => (vec![], vec![]),
        }
    }
}
