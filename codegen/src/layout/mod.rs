//! Layouts: how a tile's elements sit in registers and in shared memory.
//!
//! One algebra, in CuTe's terms. A *mode* is `extent : stride @ axis`; a list of modes is a mixed-radix
//! number, fastest digit first, and each digit adds `digit * stride` to a coordinate. A [`Fragment`]
//! maps (thread, register) to tile coordinates; a [`SharedLayout`] maps tile coordinates to bytes.
#![warn(clippy::too_many_lines)]

mod engine;
mod fragment;
mod narrow;
mod scan_rows;
mod shared;
pub mod tensor_map;

pub use engine::MatrixDescriptor;
pub(crate) use fragment::words;
pub use fragment::{Fragment, Mode};
pub use scan_rows::RowDigit;
pub use shared::{SharedLayout, Swizzle};
