//! The runtime of Atlas: from a problem to a launched kernel.
//!
//! ```text
//! let device = Device::best()?;                       // the first GPU, else the CPU
//! let x = device.tensor_from(&host, [256, 200, 64])?; // any shape: no dim has to be a multiple of a tile
//! memory_read.launch(&device, args!(x, w2, w1, r, &mut y))?;
//! ```
//!
//! Each room below depends only on those above it. Its header says what it holds.
//!
//! | room | holds |
//! |---|---|
//! | `error` | what can go wrong, and what to do about it |
//! | `files` | files written whole and read with a bound |
//! | `compile` | what a kernel is compiled for; compiled kernels by key, as bytes, in memory and on disk |
//! | `cost` | the configs of a kernel, lowered once; the cost of each, and a lower bound on the time of a launch |
//! | `records` | measured configs, and the problems that a program launches |
//! | `select` | which config runs a problem |
//! | `bundle` | kernels compiled ahead of time, and which of them runs which problem |
//! | `gpu` | the CUDA driver, loaded kernels, and the simulator as a virtual GPU |
//! | `device` | devices, streams, and what a device keeps: launch plans, loaded kernels, refusals |
//! | `tensor` | tensors and views, host types, memory |
//! | `launch` | a launch from its arguments to the queue; several in a chain; PTX and bytes, for tools |
#![warn(clippy::too_many_lines)]
#![deny(missing_docs)]

pub mod bundle;
mod compile;
mod cost;
mod device;
mod error;
pub mod files;
mod gpu;
mod launch;
pub mod records;
mod select;
mod tensor;

pub use atlas_codegen::{Capability, Card, KernelImage, Machine, Target};
#[cfg(feature = "sim")]
pub use atlas_sim as simulator;
#[cfg(feature = "sim")]
pub use atlas_sim::launch::Policy as SimPolicy;
pub use bundle::{Choices, regions};
pub use compile::{
    CACHE_DIR_VARIABLE, CACHE_SIZE_VARIABLE, CacheDir, HAS_COMPILER, KernelKey, KeyParts, Store, StoreStats,
    build_kernel, build_launch, image_file, kernel_key,
};
pub use cost::{Cost, LoopInterval, LoopLimit, Roofline, Unit, estimate, loop_intervals, programs, roofline};
pub use device::{Device, DeviceId, DeviceStats, Event, Stream};
#[cfg(feature = "sim")]
pub use error::SimFault;
pub use error::{CompileFailure, DeviceError, DriverFailure, LaunchError, Result, RuntimeError, TensorError};
pub use files::{standard_streams, toml_text};
pub use gpu::{BoundMap, DeviceMemory, LaunchFacts, ScratchAddresses, ScratchBytes};
#[cfg(feature = "sim")]
pub use gpu::{SimAccess, SimOptions, SimRun, SimScratch};
#[cfg(feature = "sim")]
pub use launch::FormPrograms;
pub use launch::{
    Arg, BoundArg, BoundLaunch, Buckets, Chain, CompiledLaunch, Graph, HostState, IntoArg, Launch, MAX_DIM,
    OracleOutput, PreparedChain, PreparedLaunch, RawBuffer, RawKernel, RawLaunch, RawParam, Repeated, TileArg,
    Workspace, alignment, check_grid, choose, choose_given, launch_strides, launch_tile_ir, refusal, run_f64,
    specialize,
};
pub use records::sizes;
pub use select::{Candidate, ConfigSource, Outcome, Selection, choose_for, choose_with};
pub use tensor::{Element, Tensor, timing};
