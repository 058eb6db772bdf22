//! Tile IR: pure, typed, thread-free and concrete in its tile sizes.
//!
//! | file | holds |
//! |---|---|
//! | `types` | element types and tile types |
//! | `entity` | typed ids |
//! | `op`, `infer` | the one table of operations, and their typing rules |
//! | `ir` | kernels |
//! | `builder` | the only way for code to append operations |
//! | `config`, `specialization`, `def` | what a kernel is built for, and what `atlas_kernel!` leaves behind |
//! | `diag` | diagnostics |
#![forbid(unsafe_code)]

pub mod builder;
pub mod config;
pub mod def;
pub mod diag;
pub mod entity;
pub mod infer;
pub mod ir;
pub mod op;
pub mod specialization;
pub mod types;

pub use builder::{Builder, Operand};
pub use config::{Config, Schedule};
pub use def::{KernelDef, registry};
pub use diag::{Diagnostic, Diagnostics};
pub use entity::{Block, Dim, Inst, Param, Table, Value};
pub use ir::Kernel;
pub use op::Op;
pub use specialization::Specialization;
pub use types::{DType, TileType};
