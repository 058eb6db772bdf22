//! GPUs: those of the CUDA driver, and virtual ones that this process simulates. A GPU at this level has memory and
//! runs kernels, and nothing more.
//!
//! The room may depend on `error`, and on `compile` for compiled kernels and their keys. It knows no tensors, no devices of the
//! public API and no launches.
//!
//! | file | holds |
//! |---|---|
//! | `driver` | the table of the driver's functions, and the meaning of their statuses |
//! | `current` | the calling thread's current context |
//! | `context`, `memory` | one GPU's context: its limits, and safe calls in it; its memory |
//! | `loaded_kernel`, `ptx_version` | a loaded kernel; which PTX a driver accepts |
//! | `tensor_map` | tensor maps of a launch |
//! | `scratch` | what CTAs that share a program leave for each other |
//! | `graph` | CUDA graphs |
//! | `virtual_gpu` | the interface of a virtual GPU |
//! | `simulator` | the simulator as a virtual GPU (feature `sim`) |

mod context;
mod current;
mod driver;
mod graph;
mod loaded_kernel;
mod memory;
mod ptx_version;
mod scratch;
#[cfg(feature = "sim")]
mod simulator;
mod tensor_map;
mod virtual_gpu;

pub(crate) use context::Context;
pub(crate) use current::Handle;
pub(crate) use driver::driver;
pub(crate) use graph::{ConditionSetter, Conditional, ExecutableGraph, RecordedGraph};
pub use loaded_kernel::LaunchFacts;
pub(crate) use loaded_kernel::{DriverModule, LoadedCode, LoadedKernel, does_not_fit};
pub use memory::DeviceMemory;
pub(crate) use memory::MemoryAt;
pub(crate) use scratch::{SCRATCH_ALIGN, Scratch, StreamScratch};
pub use scratch::{ScratchAddresses, ScratchBytes};
#[cfg(feature = "sim")]
pub(crate) use simulator::Simulator;
#[cfg(feature = "sim")]
pub use simulator::{SimAccess, SimOptions, SimRun, SimScratch};
pub use tensor_map::BoundMap;
pub(crate) use tensor_map::EncodedMap;
pub(crate) use virtual_gpu::VirtualGpu;
