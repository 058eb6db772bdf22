//! The stores of a program, kept until it has ended.

use crate::memory::Region;
use crate::tile::Tile;
use std::sync::Arc;

/// A tile on its way to a tensor.
pub(crate) struct PendingStore {
    /// Index of the parameter.
    pub(crate) param: usize,
    /// The target of the tile. The part outside of the tensor is dropped.
    pub(crate) region: Region,
    /// What is stored.
    pub(crate) tile: Arc<Tile>,
}

impl PendingStore {
    /// The memory that the tile takes.
    pub(crate) fn bytes(&self) -> u64 {
        self.tile.ty.elements() * 8
    }
}
