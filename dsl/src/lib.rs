//! Tile IR: pure, typed, thread-free and concrete in its tile sizes.
//!
//! | file | holds |
//! |---|---|
//! | `types` | element types and tile types |
//! | `entity` | typed ids |
//! | `op`, `infer` | the one table of operations, and their typing rules |
//! | `ir` | kernels |
//! | `fold` | constant folding on which every device agrees |
//! | `builder` | the only way for code to append operations |
//! | `text` | tokens, shared by every text form |
//! | `print`, `parse` | the text form, written and read |
//! | `reach` | how far a slice may reach out of its dim |
//! | `validity` | which elements of each tile lie inside their tensors |
//! | `verify` | the rules of a well-formed kernel |
//! | `rewrite` | simplification by rules |
//! | `fuse` | makes one kernel of several that run one after the other |
//! | `config`, `specialization`, `def` | what a kernel is built for, and the output of `atlas_kernel!` |
//! | `diag` | diagnostics |
#![warn(clippy::too_many_lines)]
#![forbid(unsafe_code)]

#[doc(hidden)]
pub mod __macro;
pub mod builder;
pub mod config;
pub mod def;
pub mod diag;
pub mod entity;
pub mod fold;
pub mod fuse;
pub mod infer;
pub mod ir;
pub mod op;
pub mod parse;
pub mod print;
pub mod reach;
pub mod require;
pub mod rewrite;
pub mod rounding;
pub mod specialization;
pub mod text;
pub mod types;
pub mod validity;
pub mod verify;

pub use atlas_vocabulary::{distance, key_elsewhere, table};
pub use builder::{Builder, Operand};
pub use config::{Config, Schedule};
pub use def::{KernelDef, registry};
pub use diag::{Diagnostic, Diagnostics};
pub use entity::{Block, Dim, Inst, Param, Table, Value};
pub use ir::Kernel;
pub use op::Op;
pub use parse::parse_kernel;
pub use print::same_kernel;
pub use require::{Quantity, Requirement};
pub use specialization::Specialization;
pub use types::{DType, Fp8, TileType};
pub use verify::{Verified, verify};

/// The hash of the sources of this crate: part of the key of every compiled kernel.
pub const SOURCE_HASH: &str = env!("ATLAS_SOURCE_HASH");
/// The same of the crate with the words of kernels.
pub const VOCABULARY_HASH: &str = atlas_vocabulary::SOURCE_HASH;
