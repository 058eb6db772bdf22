//! Tile IR to PTX.
//!
//! Without the feature `llvm` only the types are here, so that a launcher can be built with no LLVM.

pub mod image;
pub mod target;

pub use image::{AbiParam, KernelImage};
pub use target::Target;
