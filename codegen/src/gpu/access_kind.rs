//! The form of an access: by which instructions it moves its fragment.

use std::fmt::{self, Display, Formatter};

/// How a load or a store moves a fragment. `select_accesses` chooses it; the emitter obeys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AccessKind {
    /// Each thread moves elements of its own, several neighbours at once.
    Vector {
        /// Bytes at once.
        bytes: u32,
        /// Of shared memory: the extents of the tile, with some of its padding, from the access's origin on. Elements
        /// past them are not stored, and load as 0. `None` if no thread holds one.
        within: Option<Vec<u32>>,
    },
    /// `ldmatrix` or `stmatrix` of four 8x8 blocks: lanes address rows of which others hold the elements.
    Matrix,
}

impl Display for AccessKind {
    /// `by 16`, `by 8 within [40, 48]`, `by matrix`.
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            AccessKind::Vector { bytes, within: None } => write!(f, "by {bytes}"),
            AccessKind::Vector { bytes, within: Some(extents) } => write!(f, "by {bytes} within {extents:?}"),
            AccessKind::Matrix => f.write_str("by matrix"),
        }
    }
}
