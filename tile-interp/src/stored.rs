//! What a program stores, until it has ended.

use crate::memory::Region;
use crate::tile::Tile;
use std::sync::Arc;

/// A tile on its way to a tensor.
pub(crate) struct Stored {
    /// Index of the parameter.
    pub(crate) param: usize,
    /// Where the tile goes; the part outside the tensor is dropped.
    pub(crate) region: Region,
    /// What is stored.
    pub(crate) tile: Arc<Tile>,
}

impl Stored {
    /// Memory that the tile holds.
    pub(crate) fn bytes(&self) -> u64 {
        self.tile.ty.elements() * 8
    }
}
