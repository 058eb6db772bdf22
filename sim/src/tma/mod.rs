//! The tensor memory accelerator as pure functions: tensor maps, and which bytes a copy moves where.

pub mod encoding;
pub mod flat;
pub mod map;
pub mod tile;

pub use map::{Element, Fill, TensorMap};
pub use tile::{Piece, pieces};

#[cfg(test)]
mod tests;
