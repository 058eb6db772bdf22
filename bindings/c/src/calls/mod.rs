//! Calls by name: their arguments, and what is known of what is called.
//!
//! | file | holds |
//! |---|---|
//! | `arguments` | the arguments of launches, as C and tvm-ffi give them |
//! | `callee` | what a launch has to know of a kernel or a chain |
//! | `named_chain` | chains, with what their callers have to know |
//! | `shipped` | the kernels and chains that ship with Atlas |

mod arguments;
mod callee;
mod named_chain;
mod shipped;

pub use arguments::{ATLAS_ARG_FLOAT, ATLAS_ARG_INT, ATLAS_ARG_TENSOR, AtlasArg, AtlasValue};
pub(crate) use arguments::{Arguments, Given, arguments};
pub(crate) use callee::{Callee, Param};
pub use named_chain::{NamedChain, OwnChain};
pub(crate) use shipped::{shipped, shipped_chains};
