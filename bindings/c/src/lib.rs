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
//! # fn main() {}
//! ```
//!
//! | module | holds |
//! |---|---|
//! | `status` | the result of a call, and the last error of a thread |
//! | `dlpack` | tensors of DLPack |
//! | `kernels` | the kernels of the library, by name |
//! | `device`, `launch` | devices and streams; launches |
//! | `tvm_ffi` | kernels as functions of tvm-ffi |
//! | `shipped` | the kernels that ship with Atlas, as such functions |
#![warn(clippy::too_many_lines)]
#![deny(missing_docs)]

mod device;
mod dlpack;
mod kernels;
mod launch;
mod shipped;
mod status;
#[doc(hidden)]
pub mod tvm_ffi;

pub use device::{
    AtlasDevice, AtlasStream, atlas_device_add_bundle, atlas_device_close, atlas_device_open, atlas_device_synchronize,
    atlas_stream_close, atlas_stream_open,
};
pub use dlpack::{DLDataType, DLDevice, DLTensor};
pub use kernels::{atlas_kernel_count, atlas_kernel_name, atlas_kernel_signature};
pub use launch::{
    ATLAS_ARG_FLOAT, ATLAS_ARG_INT, ATLAS_ARG_TENSOR, AtlasArg, AtlasPrepared, AtlasValue, atlas_launch, atlas_prepare,
    atlas_prepared_close, atlas_prepared_launch,
};
pub use status::{
    ATLAS_ABI_VERSION, AtlasStatus, atlas_abi_version, atlas_last_error, atlas_last_error_code, atlas_version,
};
