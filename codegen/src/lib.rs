//! The code generator: from Tile IR to PTX.
//!
//! | folder | holds |
//! |---|---|
//! | `analysis` | facts about Tile IR: uses, extents, placement |
//! | `arch` | targets, machines and cards: instruction sets, and the limits and rates of GPUs |
//! | `layout` | the layout algebra, and how the copy engine sees tensors |
//! | `gpu` | GPU IR, its atoms, text form and verifier; `gpu::analysis`: its work and its registers |
//! | `passes`, `pipeline` | from Tile IR to GPU IR, and from GPU IR to GPU IR |
//! | `math` | expansions of the transcendental functions |
//! | `packing` | kernels that copy operands to workspaces, and the kernel that reads them there |
//! | `notes`, `explain` | the decisions of the passes and their reasons |
//! | `mutation` | known mistakes, which tests plant |
//! | `llvm`, `ptx` | from GPU IR to LLVM to PTX (feature `llvm`) |
//!
//! Without the feature `llvm` everything but emission is here, so that a launcher, an editor or a test
//! can be built with no LLVM.
#![deny(unsafe_code)]

#[cfg(all(feature = "llvm-dynamic", feature = "llvm-static"))]
compile_error!(
    "LLVM is to be linked as a shared library (feature `jit` of `atlas`, `jit-dynamic` of `atlas-gpu-runtime`) and statically \
     (`static-llvm`, `jit-static`) at once: ask for one of them; `cargo tree -e features -i atlas-gpu-codegen` shows who asks for which"
);

pub mod analysis;
pub mod arch;
#[cfg(feature = "llvm")]
mod compile;
mod context;
pub mod error;
mod explain;
pub mod gpu;
pub mod image;
pub mod layout;

#[cfg(feature = "llvm")]
#[allow(unsafe_code, reason = "inkwell's address arithmetic is unsafe; each call says why it is sound")]
mod llvm;
pub mod math;
#[doc(hidden)]
pub mod mutation;
pub mod notes;
pub mod packing;
pub mod passes;
pub mod pipeline;
#[cfg(feature = "llvm")]
mod ptx;
pub mod toolchain;

pub use arch::{Capability, Card, Machine, Platform, Target};
#[cfg(feature = "llvm")]
pub use compile::{Stage, StageTimes, compile, compile_stages, compile_timed, compile_with_lines, emit};
pub use error::CompileError;
pub use explain::{Explained, explain};
pub use image::{ARRIVAL_BYTES, AbiParam, KernelImage};
pub use layout::tensor_map::{MapAxis, MapExtents, TensorMapData};
