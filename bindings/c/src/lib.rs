//! Atlas for C, and for what calls C.
//!
//! `include/atlas.h` is the interface. It is generated from this crate, and a test compares the two. A kernel is launched by its
//! name, on tensors of [DLPack](https://dmlc.github.io/dlpack/latest/) and on any CUDA stream. Nothing is copied.
//!
//! The library also has each kernel as a function of [tvm-ffi](https://tvm.apache.org/ffi/), which makes it a module for
//! Python: `tvm_ffi.load_module("libatlas_c.so").softmax(x, y)`, with tensors of PyTorch, JAX, CuPy or NumPy.
//!
//! A library of your own kernels is a crate with `crate-type = ["cdylib"]` that depends on this one:
//!
//! ```
//! use atlas::prelude::*;
//!
//! atlas_kernel! {
//!     /// y = a x.
//!     kernel scaled(x: &Tensor<f32, [N]>, a: f32, y: &mut Tensor<f32, [N]>)
//!     tune { BN: [1024, 512], warps: [4] }
//!     {
//!         for n in grid(tiles(N, BN)) {
//!             store(y[n], a * load(x[n]));
//!         }
//!     }
//! }
//!
//! atlas_c::export!(scaled);
//!
//! static SCALED_ALONE: atlas::kernel::Chain =
//!     atlas::kernel::Chain::new("scaled_alone", &[&scaled], &[]);
//! atlas_c::export_chains!(SCALED_ALONE);
//! # fn main() {}
//! ```
//!
//! | module | holds |
//! |---|---|
//! | `status` | the result of a call, and the last error of a thread |
//! | `dlpack` | tensors of DLPack |
//! | `calls` | calls by name: their arguments, and what is known of what is called |
//! | `kernels`, `chains` | the kernels and chains of the library, by name |
//! | `device` | devices and streams |
//! | `launch` | launches of kernels, and of chains with their workspaces |
//! | `omega`, `newton_schulz` | chains, training, streams and packed documents of an Omega rule; the iteration of Muon |
//! | `tvm_ffi` | kernels and chains as functions of tvm-ffi |
//! | `torch` | operators of PyTorch |
#![warn(clippy::too_many_lines)]
#![deny(missing_docs)]

#[doc(hidden)]
pub mod calls;
mod chains;
mod device;
mod dlpack;
mod kernels;
mod launch;
mod newton_schulz;
mod omega;
mod status;
mod torch;
#[doc(hidden)]
pub mod tvm_ffi;

#[doc(hidden)]
pub use atlas::__macro::inventory;
pub use calls::{ATLAS_ARG_FLOAT, ATLAS_ARG_INT, ATLAS_ARG_TENSOR, AtlasArg, AtlasValue};
pub use chains::{atlas_chain_count, atlas_chain_name, atlas_chain_signature};
pub use device::{
    AtlasDevice, AtlasStream, atlas_bundle_for_gpus, atlas_device_add_bundle, atlas_device_close, atlas_device_open,
    atlas_device_synchronize, atlas_stream_close, atlas_stream_open,
};
pub use dlpack::{DLDataType, DLDevice, DLTensor};
pub use kernels::{atlas_kernel_count, atlas_kernel_name, atlas_kernel_signature};
pub use launch::{
    AtlasPrepared, AtlasPreparedChain, AtlasSize, AtlasWorkspace, atlas_chain_launch, atlas_chain_prepare,
    atlas_chain_workspace, atlas_launch, atlas_prepare, atlas_prepared_chain_close, atlas_prepared_chain_launch,
    atlas_prepared_close, atlas_prepared_launch, atlas_workspace_bytes, atlas_workspace_close,
};
pub use newton_schulz::{AtlasIteration, AtlasIterationStep, atlas_newton_schulz};
pub use omega::{
    AtlasOmega, AtlasOmegaGradients, AtlasOmegaPacked, AtlasOmegaRule, AtlasOmegaStream, AtlasOmegaTokens,
    AtlasOmegaTraining, atlas_omega_chain, atlas_omega_packed_bytes, atlas_omega_packed_close,
    atlas_omega_packed_launch, atlas_omega_packed_open, atlas_omega_stream_bytes, atlas_omega_stream_close,
    atlas_omega_stream_open, atlas_omega_stream_push, atlas_omega_stream_restart, atlas_omega_training_backward,
    atlas_omega_training_bytes, atlas_omega_training_close, atlas_omega_training_forward, atlas_omega_training_open,
    atlas_omega_training_segments,
};
pub use status::{
    ATLAS_ABI_VERSION, AtlasStatus, atlas_abi_version, atlas_last_error, atlas_last_error_code, atlas_version,
};
pub use torch::atlas_torch_register;
