//! Element types, tile types and shapes: the nouns of Tile IR.

pub use atlas_vocabulary::{DType, Fp8};
use std::fmt;

/// The type of a Tile IR value: an element type and an extent per axis, outermost first.
///
/// Rank 0 is a scalar. Extents are concrete: tile sizes are known whenever Tile IR exists.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TileType {
    /// Element type.
    pub dtype: DType,
    /// Extents, outermost axis first; empty for a scalar.
    pub shape: Vec<u32>,
}

impl TileType {
    /// A tile of the given element type and extents.
    pub fn new(dtype: DType, shape: impl Into<Vec<u32>>) -> TileType {
        TileType { dtype, shape: shape.into() }
    }

    /// A rank-0 tile.
    pub fn scalar(dtype: DType) -> TileType {
        TileType { dtype, shape: Vec::new() }
    }

    /// The number of axes.
    pub fn rank(&self) -> usize {
        self.shape.len()
    }

    /// The number of elements.
    pub fn elements(&self) -> u64 {
        self.shape.iter().fold(1, |n: u64, &e| n.saturating_mul(u64::from(e)))
    }

    /// The same extents with another element type.
    pub fn with_dtype(&self, dtype: DType) -> TileType {
        TileType { dtype, shape: self.shape.clone() }
    }
}

impl fmt::Display for TileType {
    /// `bf16[64, 128]`; a scalar prints as its element type alone.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.dtype)?;
        if !self.shape.is_empty() {
            write!(f, "{:?}", self.shape)?;
        }
        Ok(())
    }
}

/// The extents of two shapes after broadcasting, aligned at the last axis; `None` if they disagree.
pub fn broadcast_shapes(a: &[u32], b: &[u32]) -> Option<Vec<u32>> {
    let rank = a.len().max(b.len());
    let axis = |s: &[u32], i: usize| (i + s.len()).checked_sub(rank).map_or(1, |j| s[j]);
    (0..rank)
        .map(|i| match (axis(a, i), axis(b, i)) {
            (x, y) if x == y => Some(x),
            (1, y) => Some(y),
            (x, 1) => Some(x),
            _ => None,
        })
        .collect()
}

/// The origin of each axis of a reshape to other extents, as far as the extents determine it. An axis of the result is the
/// first remaining axis of the operand with its extent. It is a new axis if that would skip an axis whose extent is not 1.
/// `None` if the extents differ by more than axes of extent 1.
pub fn reshape_axes(from: &[u32], to: &[u32]) -> Option<Vec<Option<u8>>> {
    let mut left = (0..).zip(from).peekable();
    let mut axes = Vec::with_capacity(to.len());
    for &extent in to {
        while extent != 1 && left.next_if(|&(_, &e)| e == 1).is_some() {}
        let found = left.next_if(|&(_, &e)| e == extent).map(|(axis, _)| axis);
        if found.is_none() && extent != 1 {
            return None;
        }
        axes.push(found);
    }
    left.all(|(_, &e)| e == 1).then_some(axes)
}

/// The axes of a tile that a reshape drops.
pub fn dropped_axes(rank: usize, axes: &[Option<u8>]) -> Vec<u8> {
    (0..rank as u8).filter(|a| !axes.contains(&Some(*a))).collect()
}
