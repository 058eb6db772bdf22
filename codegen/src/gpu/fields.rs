//! What GPU IR operations are made of beside values: places in tensors and in shared memory, and choices of instructions.

use super::effects::Effects;
use super::ids::{Buffer, TensorMap, Value};
use atlas_dsl::reach::Reach;
use atlas_dsl::{DType, Dim};

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
    /// The elements at `len` places. A place outside of the dim reads as 0.
    Gather {
        /// i32 tile with the layout of the tile that is loaded: for each element its place along this axis.
        places: Value,
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
            Slice::Tile { len, .. }
            | Slice::Span { len, .. }
            | Slice::Whole { len, .. }
            | Slice::Gather { len, .. } => Some(len),
        }
    }

    /// The scalar that says where the slice begins.
    pub fn coordinate(self) -> Option<Value> {
        match self {
            Slice::At { coord: v, .. } | Slice::Tile { index: v, .. } | Slice::Span { start: v, .. } => Some(v),
            Slice::Whole { .. } | Slice::Gather { .. } => None,
        }
    }

    /// The tile of places, if the axis is gathered.
    pub fn gathered(self) -> Option<Value> {
        match self {
            Slice::Gather { places, .. } => Some(places),
            _ => None,
        }
    }

    /// `len` of its elements, from the `first` on. Of an axis that is gathered, the places are a tile that is cut elsewhere.
    #[must_use]
    pub fn part(self, first: u32, len: u32) -> Slice {
        match self {
            Slice::At { .. } => self,
            Slice::Tile { index, size, offset, reach, .. } => {
                Slice::Tile { index, size, offset: offset + first, len, reach }
            }
            Slice::Span { start, offset, .. } => Slice::Span { start, offset: offset + first, len },
            Slice::Whole { offset, .. } => Slice::Whole { offset: offset + first, len },
            Slice::Gather { places, .. } => Slice::Gather { places, len },
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

/// What the L2 cache does with the lines that a load or a copy reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cache {
    /// As it sees fit.
    Normal,
    /// Evicts them last.
    EvictLast,
    /// Evicts them first: nothing will read them again.
    EvictFirst,
}

impl Cache {
    /// All of them.
    pub const ALL: [Cache; 3] = [Cache::Normal, Cache::EvictLast, Cache::EvictFirst];

    /// The word of the text form.
    pub fn suffix(self) -> &'static str {
        match self {
            Cache::Normal => "",
            Cache::EvictLast => ".evict_last",
            Cache::EvictFirst => ".evict_first",
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
    /// The tensor copy engine by a tensor map, one thread issuing; out-of-bounds elements are zero-filled.
    Tma(TensorMap, Cache),
    /// The same, delivered to every CTA of the cluster.
    TmaMulticast(TensorMap),
    /// The copy engine from shared to global memory; out-of-bounds elements are dropped.
    TmaStore(TensorMap),
}

impl CopyAtom {
    /// What a copy by it does.
    pub const fn effects(self) -> Effects {
        let to_shared = Effects::READS_GLOBAL.and(Effects::WRITES_SHARED).and(Effects::ASYNC);
        match self {
            CopyAtom::Open | CopyAtom::CpAsync(_) | CopyAtom::Direct => to_shared,
            CopyAtom::Tma(..) | CopyAtom::TmaMulticast(_) => to_shared.and(Effects::ENGINE),
            CopyAtom::TmaStore(_) => {
                Effects::READS_SHARED.and(Effects::WRITES_GLOBAL).and(Effects::ASYNC).and(Effects::ENGINE)
            }
        }
    }

    /// Bytes that a thread moves at once; `None` where the copy engine moves them, or nobody yet.
    pub fn chunk_bytes(self, dtype: DType) -> Option<u32> {
        match self {
            CopyAtom::CpAsync(bytes) => Some(bytes),
            CopyAtom::Direct => Some(dtype.bytes()),
            CopyAtom::Open | CopyAtom::Tma(..) | CopyAtom::TmaMulticast(_) | CopyAtom::TmaStore(_) => None,
        }
    }

    /// The tensor map, of a copy by the engine.
    pub const fn map(self) -> Option<TensorMap> {
        match self {
            CopyAtom::Tma(map, _) | CopyAtom::TmaMulticast(map) | CopyAtom::TmaStore(map) => Some(map),
            CopyAtom::Open | CopyAtom::CpAsync(_) | CopyAtom::Direct => None,
        }
    }

    /// The same by another tensor map, of a copy by the engine.
    pub(super) const fn with_map(self, map: TensorMap) -> CopyAtom {
        match self {
            CopyAtom::Tma(_, cache) => CopyAtom::Tma(map, cache),
            CopyAtom::TmaMulticast(_) => CopyAtom::TmaMulticast(map),
            CopyAtom::TmaStore(_) => CopyAtom::TmaStore(map),
            CopyAtom::Open | CopyAtom::CpAsync(_) | CopyAtom::Direct => self,
        }
    }

    /// True if it reads shared memory and writes a tensor, not the other way round.
    pub const fn is_store(self) -> bool {
        matches!(self, CopyAtom::TmaStore(_))
    }
}

/// Which stage of a ring is meant: an i32 scalar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    /// That of an iteration, by its number.
    Iteration(Value),
    /// That of this number, below the ring's stages.
    Slot(Value),
    /// That of this number, in an even or an odd round of the ring.
    Cursor {
        /// i32 scalar, below the ring's stages.
        slot: Value,
        /// i32 scalar: 0 in the first round of the ring, 1 in the second, and so on in turn.
        phase: Value,
    },
}

impl At {
    /// The number of the iteration or of the stage.
    pub const fn number(self) -> Value {
        match self {
            At::Iteration(n) | At::Slot(n) | At::Cursor { slot: n, .. } => n,
        }
    }
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

/// Where a scan begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// At the first element.
    Up,
    /// At the last element.
    Down,
}

impl Direction {
    /// Both.
    pub const ALL: [Direction; 2] = [Direction::Up, Direction::Down];

    /// The word of the text form.
    pub const fn name(self) -> &'static str {
        match self {
            Direction::Up => "up",
            Direction::Down => "down",
        }
    }
}

/// A fence between kinds of access.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FenceKind {
    /// Generic accesses before, async-proxy accesses after.
    ProxyAsync,
    /// Set-up of mbarriers before, uses of them by the copy engine after.
    MbarrierInit,
}

impl FenceKind {
    /// All of them.
    pub const ALL: [FenceKind; 2] = [FenceKind::ProxyAsync, FenceKind::MbarrierInit];

    /// The word of the text form.
    pub const fn name(self) -> &'static str {
        match self {
            FenceKind::ProxyAsync => "proxy.async",
            FenceKind::MbarrierInit => "mbarrier.init",
        }
    }
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
