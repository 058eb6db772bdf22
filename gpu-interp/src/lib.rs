//! Executes GPU IR on whole tiles, so that tests can compare what a pass leaves of a kernel with the interpreter.
//!
//! A tile is a dense array of elements by logical coordinates: which thread holds what changes nothing, and threads are not
//! executed. What passes may get wrong is executed: which elements a tile has, in which order bodies run, what a slot of a
//! ring holds and when, what lies in shared memory. A breach of a protocol is a fault that names its instruction, not a
//! wrong number. Barriers are no part of it; the simulator of PTX finds those that are missing. Nor is what pads a
//! fragment: it is taken for 0 where it is stored, and where a product reads it.
//!
//! | file | holds |
//! |---|---|
//! | `tile` | tiles, and the two arithmetics in which floats are computed |
//! | `evaluate` | operations that make a tile of tiles |
//! | `memory` | tensors and shared buffers |
//! | `rings` | slots, and copies on their way |
//! | `cta` | a CTA while it runs: the values of its roles |
//! | `operations` | operations with an effect |
//! | `control` | roles as coroutines: bodies, loops, branches |
//! | `fault` | what an execution does wrong, and where |
//!
//! An operation that it does not know is a fault. A new one that computes a tile is an arm in `evaluate`, any other one an
//! arm in `operations`.
#![warn(clippy::too_many_lines)]
#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod control;
mod cta;
mod evaluate;
mod fault;
mod memory;
mod operations;
mod rings;
mod tile;

pub use control::execute;
pub use cta::{Landing, Manner, Order};
pub use evaluate::Launch;
pub use fault::Fault;
pub use memory::Tensor;
pub use tile::Arithmetic;
