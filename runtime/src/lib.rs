//! From a problem to a launched kernel.
//!
//! ```text
//! let device = Device::best()?;                       // the first GPU, else the CPU
//! let x = device.tensor_from(&host, [256, 200, 64])?; // any shape: no dim has to be a multiple of a tile
//! memory_read.launch(&device, args!(x, w2, w1, r, &mut y))?;
//! ```
//!
//! | file | holds |
//! |---|---|
//! | `device`, `device_id`, `open` | devices, their names, and how they are opened |
//! | `driver`, `current`, `stream` | the CUDA driver's functions, streams and events |
//! | `tensor`, `element`, `storage` | tensors and views, host types, memory |
//! | `args`, `bind` | the arguments of a launch, and their checks |
//! | `problem`, `select`, `cost`, `records`, `source` | what a kernel is compiled for, and with which config |
//! | `roofline` | what a launch takes at the least |
//! | `bundle`, `class`, `regions` | kernels compiled ahead of time, the problems that they serve, and how these are chosen |
//! | `compile`, `key`, `store`, `evict`, `image_file` | compiled kernels, by name, in memory and on disk |
//! | `plans`, `kernel` | what a device keeps: plans, loaded kernels, refusals |
//! | `plan`, `resolve`, `launch` | what a launch does, resolved once; the launch itself |
//! | `chain` | several kernels, launched one after the other on tensors that they share by name |
//! | `cpu`, `host`, `oracle` | launches in the interpreter: natively, of a GPU's tensors, and in f64 |
//! | `sizes` | what a program launches, recorded |
//! | `raw`, `trusted` | PTX of any origin and bytes, for tools; PTX that Atlas made |
//! | `tile_launch` | a kernel in Tile IR on a GPU, on plain bytes |
//! | `virtual_gpu` | a GPU that this process plays |
//! | `sim`, `sim_fault`, `forms` | the simulator as one, and the faults that it finds (feature `sim`) |
//! | `error`, `launch_error` | what goes wrong, and the mend |
#![warn(clippy::too_many_lines)]
#![deny(missing_docs)]

mod args;
mod bind;
pub mod bundle;
mod chain;
mod class;
mod compile;
mod cost;
mod cpu;
mod current;
mod device;
mod device_id;
mod driver;
mod element;
#[macro_use]
mod error;
mod config_source;
mod evict;
mod explore;
pub mod files;
#[cfg(feature = "sim")]
mod forms;
mod host;
pub mod image_file;
mod kernel;
mod key;
mod launch;
mod launch_error;
mod memory;
mod open;
mod oracle;
mod plan;
mod plans;
mod problem;
mod raw;
pub mod records;
mod regions;
mod resolve;
mod roofline;
mod select;
#[cfg(feature = "sim")]
mod sim;
#[cfg(feature = "sim")]
mod sim_fault;
pub mod sizes;
mod space;
pub mod standard_streams;
mod storage;
mod store;
mod stream;
mod tensor;
mod tile_launch;
pub mod timing;
pub mod toml_text;
mod trusted;
mod virtual_gpu;

pub use args::{Arg, IntoArg};
pub use atlas_codegen::{Card, KernelImage, Machine, Target};
#[cfg(feature = "sim")]
pub use atlas_sim as simulator;
#[cfg(feature = "sim")]
pub use atlas_sim::launch::Policy as SimPolicy;
pub use bind::{BoundArg, BoundLaunch, MAX_DIM};
pub use chain::{Chain, PreparedChain, Workspace};
pub use compile::{HAS_COMPILER, build_kernel, kernel_key};
pub use config_source::ConfigSource;
pub use cost::{Cost, estimate, programs};
pub use device::{Device, DeviceStats};
pub use device_id::DeviceId;
pub use element::Element;
pub use error::{CompileFailure, DeviceError, DriverFailure, Result, RuntimeError, TensorError};
#[cfg(feature = "sim")]
pub use forms::FormPrograms;
pub use kernel::LaunchFacts;
pub use key::{KernelKey, KeyParts};
pub use launch::{Launch, PreparedLaunch};
pub use launch_error::LaunchError;
pub use memory::DeviceMemory;
pub use oracle::{OracleOutput, run_f64};
pub use problem::{alignment, launch_strides, specialize};
pub use raw::{RawBuffer, RawKernel, RawLaunch, RawParam};
pub use regions::{Choices, regions};
pub use roofline::{Roofline, Unit, roofline};
pub use select::{Candidate, Outcome, Selection, choose, choose_for, choose_given, choose_with, refusal};
#[cfg(feature = "sim")]
pub use sim::{SimAccess, SimOptions, SimRun};
#[cfg(feature = "sim")]
pub use sim_fault::SimFault;
pub use store::{CACHE_DIR_VARIABLE, CACHE_SIZE_VARIABLE, CacheDir, Store, StoreStats};
pub use stream::{Event, Stream};
pub use tensor::Tensor;
pub use tile_launch::{TileArg, launch_tile_ir};
pub use trusted::CompiledLaunch;
