//! Which tile of its maker a load wants, that is, the value of each coordinate of the maker's grid. The *maker* is the kernel
//! that stores the tensor, and the *reader* the one that loads it.
//!
//! The maker stores one tile in each program. The slices of that store name each grid coordinate once, as an element or a tile
//! (rule 213). If a load wants tiles of the same size, or elements where the maker stores elements, then its own indices give
//! the coordinates. A load from a computed start (`span`) shifts the maker's tiles: the start takes the place of the maker's
//! coordinate, which may then only be used to pick tiles.
//!
//! A read outside of the tensor gives 0, but the maker may compute something else there. Tiles carry their edges with them. An
//! element does not, so an element must lie inside the tensor wherever it is read.

use crate::entity::{Dim, Value};
use crate::ir::{DimSize, Kernel, ValueDef};
use crate::op::{Op, Slice};
use crate::reach::{Reach, constant};
use std::fmt;

/// What a coordinate of the maker's grid is in the reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MakerCoordinate {
    /// The number of an element or of a tile.
    Index(Value),
    /// The first element of a tile.
    Start(Value),
    /// Zero: there is only one tile.
    First,
}

impl MakerCoordinate {
    /// The value that gives the coordinate.
    pub(super) fn value(&self) -> Option<Value> {
        match *self {
            MakerCoordinate::Index(v) | MakerCoordinate::Start(v) => Some(v),
            MakerCoordinate::First => None,
        }
    }
}

/// Why a load is not covered: it reads the tensor in another way than the maker stores it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Uncovered {
    pub(super) axis: usize,
    pub(super) read: String,
    pub(super) made: String,
    /// Because a read outside of the tensor would give another value than before.
    pub(super) outside: bool,
}

impl fmt::Display for Uncovered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.outside {
            return write!(f, "along axis {} it is read {}, which may lie outside of it", self.axis, self.read);
        }
        write!(f, "along axis {} it is read {}, but made {}", self.axis, self.read, self.made)
    }
}

/// The number of elements of a slice. The maker's grid must have tiles of that size. `None` for one element.
pub(super) fn wanted_size(slice: Slice, dim: DimSize) -> Option<u32> {
    match (slice, dim) {
        (Slice::At(_) | Slice::Gather(_), _) => None,
        (Slice::Tile { size, .. } | Slice::Span { len: size, .. }, _) => Some(size),
        (Slice::Whole, DimSize::Const(n)) => u32::try_from(n).ok(),
        (Slice::Whole, DimSize::Dynamic { .. }) => None,
    }
}

/// True if a slice is a whole dim from its first element, so that a kernel that stores the dim whole stores it.
pub(super) fn is_all(reader: &Kernel, slice: Slice, reach: Reach, size: DimSize) -> bool {
    let whole = |n: u32| size == DimSize::Const(n.into());
    match slice {
        Slice::Whole => true,
        Slice::Tile { size: n, .. } if whole(n) && reach != Reach::Anywhere => true,
        Slice::Tile { index: v, size: n } | Slice::Span { start: v, len: n } => {
            whole(n) && constant(reader, v) == Some(0)
        }
        Slice::At(_) | Slice::Gather(_) => false,
    }
}

/// The coordinates of a maker that stores `stored`, where `loaded` is read in `reader`. `dims` are those of the tensor in
/// `reader`.
pub(super) fn cover(
    maker: &Kernel,
    stored: &[Slice],
    reader: &Kernel,
    loaded: &[(Slice, Reach)],
    dims: &[Dim],
) -> Result<Vec<(Value, MakerCoordinate)>, Uncovered> {
    let mut places: Vec<(Value, MakerCoordinate)> = Vec::new();
    for (axis, ((&s, &(l, reach)), &dim)) in stored.iter().zip(loaded).zip(dims).enumerate() {
        let size = reader.dims[dim].size;
        let uncovered = || Uncovered { axis, read: describe(reader, l), made: describe(maker, s), outside: false };
        let whole = |n: u32| size == DimSize::Const(n.into());
        let place = match (s, l) {
            (Slice::At(_), Slice::At(v) | Slice::Tile { index: v, size: 1 } | Slice::Span { start: v, len: 1 }) => {
                MakerCoordinate::Index(v)
            }
            (Slice::Tile { size: m, .. }, Slice::Tile { index: v, size: n }) if m == n => MakerCoordinate::Index(v),
            (Slice::Tile { size: 1, .. }, Slice::At(v) | Slice::Span { start: v, len: 1 }) => MakerCoordinate::Index(v),
            (Slice::Tile { size: m, .. }, Slice::Span { start: v, len: n }) if m == n => MakerCoordinate::Start(v),
            (Slice::Tile { size: n, .. }, Slice::Whole) if whole(n) => MakerCoordinate::First,
            // The one element there is.
            (Slice::At(_), Slice::Whole) if whole(1) => MakerCoordinate::First,
            (Slice::Whole, l) if is_all(reader, l, reach, size) => continue,
            _ => return Err(uncovered()),
        };
        let (Slice::At(coord) | Slice::Tile { index: coord, .. }) = s else { return Err(uncovered()) };
        if !matches!(maker.values[coord].def, ValueDef::Grid(_)) {
            return Err(uncovered());
        }
        match places.iter().find(|(c, _)| *c == coord) {
            Some((_, known)) if *known != place => return Err(uncovered()),
            Some(_) => {}
            None => places.push((coord, place)),
        }
        let is_element = matches!(s, Slice::At(_)) || matches!(l, Slice::At(_));
        let is_safe = match place {
            _ if is_element => reach == Reach::Inside,
            MakerCoordinate::Start(_) => picks_tiles_alone(maker, coord),
            MakerCoordinate::Index(_) => reach != Reach::Anywhere || picks_tiles_alone(maker, coord),
            MakerCoordinate::First => true,
        };
        if !is_safe {
            return Err(Uncovered { outside: true, ..uncovered() });
        }
    }
    Ok(places)
}

/// True if a coordinate is only used as the number of a tile.
fn picks_tiles_alone(kernel: &Kernel, coord: Value) -> bool {
    kernel.insts.values().all(|op| {
        let mut all = 0;
        op.visit_operands(|v| all += usize::from(v == coord));
        let slices = match op {
            Op::Load { slices, .. } | Op::Store { slices, .. } => &slices[..],
            _ => &[],
        };
        all == slices.iter().filter(|s| matches!(s, Slice::Tile { index, .. } if *index == coord)).count()
    })
}

fn describe(kernel: &Kernel, slice: Slice) -> String {
    match slice {
        Slice::At(v) | Slice::Tile { index: v, size: 1 } if !matches!(kernel.values[v].def, ValueDef::Grid(_)) => {
            "at a computed place".to_owned()
        }
        Slice::At(_) => "element by element".to_owned(),
        Slice::Tile { size, .. } => format!("in tiles of {size}"),
        Slice::Span { start, len } => match constant(kernel, start) {
            Some(at) if len == 1 => format!("at {at}"),
            Some(at) => format!("from {at} for {len} elements"),
            None if len == 1 => "at a computed place".to_owned(),
            None => format!("from a computed place for {len} elements"),
        },
        Slice::Whole => "whole".to_owned(),
        Slice::Gather(_) => "at the places of a tile".to_owned(),
    }
}
