//! Executes GPU IR on whole tiles, so that tests can compare a kernel after each pass with the interpreter of Tile IR.
//!
//! A tile is a dense array of elements by logical coordinates. Threads are not executed, so the distribution of elements over
//! threads does not matter. Everything else that a pass may get wrong is executed: the elements of a tile, the order of bodies,
//! the content of a ring's slot over time, the content of shared memory. A violation of a protocol is a fault that names the
//! instruction, and not a wrong number. Barriers are ignored; the simulator of PTX finds missing ones. The padding of fragments
//! is ignored too: it counts as 0 where it is stored and where a product reads it.
//!
//! | file | holds |
//! |---|---|
//! | `tile` | tiles, and the two arithmetics in which floats are computed |
//! | `evaluate` | operations that compute a tile from tiles |
//! | `memory` | tensors and shared buffers |
//! | `rings` | slots, and copies in flight |
//! | `cta` | a CTA while it runs: the values of its roles |
//! | `operations` | operations with an effect |
//! | `control` | roles as coroutines: bodies, loops, branches |
//! | `fault` | faults and their locations |
//!
//! An unknown operation is a fault. A new operation that computes a tile needs an arm in `evaluate`; any other one needs an arm
//! in `operations`.
#![warn(clippy::too_many_lines)]
#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod control;
mod cta;
mod evaluate;
mod fault;
mod memory;
mod operations;
mod places;
mod rings;
mod tile;

pub use control::execute;
pub use cta::{Landing, Manner, Order};
pub use evaluate::Launch;
pub use fault::Fault;
pub use memory::Tensor;
pub use tile::Arithmetic;
