//! Atlas: a GPU kernel language embedded in Rust, its compiler and its runtime.
//!
//! A kernel is written once, at tile level, with [`atlas_kernel!`]. It is checked while Rust compiles, lowered to PTX,
//! and launched on a GPU. An interpreter also runs it on a CPU, without a GPU, CUDA or LLVM.
//!
//! ```
//! use atlas::prelude::*;
//!
//! atlas_kernel! {
//!     /// y = a x + y, in place.
//!     kernel saxpy(x: &Tensor<f32, [N]>, y: &mut Tensor<f32, [N]>, a: f32)
//!     tune { BN: [1024, 512], warps: [4] }
//!     {
//!         for n in grid(tiles(N, BN)) {
//!             store(y[n], a * load(x[n]) + load(y[n]));
//!         }
//!     }
//! }
//!
//! fn main() -> atlas::Result<()> {
//!     let device = Device::best()?; // the first GPU, else the CPU
//!     let x = device.tensor_from(&[1.0_f32, 2.0, 3.0], [3])?;
//!     let mut y = device.tensor_from(&[10.0_f32, 20.0, 30.0], [3])?;
//!     saxpy.launch(&device, args!(x, &mut y, 2.0))?;
//!     assert_eq!(y.to_vec::<f32>()?, [12.0, 24.0, 36.0]);
//!     Ok(())
//! }
//! ```
//!
//! The public interface is listed in this crate, item by item:
//!
//! | module | holds |
//! |---|---|
//! | [`prelude`] | what most programs need: `use atlas::prelude::*;` |
//! | [`kernel`] | kernels as values: configs, launches, chains, graphs |
//! | [`device`] | devices, their memory, streams and events |
//! | [`error`] | errors, by kind |
//! | [`shipping`] | bundles of compiled kernels, tuning records, and the sizes that a program launches |
#![cfg_attr(feature = "ops", doc = "| [`ops`] | the kernels that ship with Atlas |")]
#![cfg_attr(feature = "sim", doc = "| [`sim`] | the simulator: its options and its findings |")]
#![cfg_attr(feature = "verify", doc = "| [`verify`] | comparisons with f64 references |")]
//!
//! The default features run kernels on a CPU and, from bundles and the kernel store, on a GPU. Other features add more:
//!
//! | feature | adds |
//! |---|---|
//! | `jit`, `static-llvm` | the code generator, with LLVM 22 as a shared library or linked in |
//! | `ops` | the kernels that ship with Atlas, in the module `ops` |
//! | `sim` | the PTX simulator as a device, and the module `sim` |
//! | `verify` | the f64 references of the shipped kernels, and the module `verify`; includes `ops` and `sim` |
//!
//! The command line is the crate `atlas-gpu-cli`. Build scripts make bundles with the crate `atlas-gpu-build`.
#![warn(clippy::too_many_lines)]
#![deny(missing_docs)]
#![forbid(unsafe_code)]

pub mod device;
pub mod error;
pub mod kernel;
#[cfg(feature = "ops")]
pub mod ops;
pub mod prelude;
pub mod shipping;
#[cfg(feature = "sim")]
pub mod sim;
#[cfg(feature = "verify")]
pub mod verify;

pub use atlas_macros::{atlas_kernel, fuse};
pub use atlas_runtime::{Device, Result, RuntimeError, Tensor, args};

/// Embeds a bundle in the program: `atlas::bundle!("../kernels.atlas");`, with a path relative to the source file as in
/// `include_bytes!`. GPUs that are opened later run its kernels, and need no compiler for them. `atlas bundle` writes
/// such files; see `docs/src/shipping.md`.
///
/// `atlas::bundle!();` embeds the bundle that the build script made with `atlas_build::bundle()`.
///
/// The program does not compile if the file is truncated, is of another version of Atlas, or is not a bundle.
#[macro_export]
macro_rules! bundle {
    (@of $path:expr, $origin:expr) => {
        $crate::__macro::inventory::submit! {
            $crate::__macro::ShippedBundle { origin: $origin, bytes: include_bytes!($path) }
        }
        const _: () = assert!(
            $crate::__macro::is_whole(include_bytes!($path)),
            "this is no bundle, cut off, or of another version of Atlas: make it again with `atlas bundle`"
        );
    };
    () => {
        $crate::bundle!(
            @of concat!(env!("OUT_DIR"), "/kernels.atlas"),
            concat!(env!("CARGO_PKG_NAME"), "'s kernels.atlas")
        );
    };
    ($path:expr) => {
        $crate::bundle!(@of $path, $path);
    };
}

/// Embeds a tuning record in the program: `atlas::tuning_record!("../records/softmax.toml");`, with a path relative to
/// the source file as in `include_str!`. Launches on GPUs of the record's model choose configs by it. `atlas tune`
/// writes such files; see `docs/src/tuning.md`.
///
/// A record that cannot be read, or belongs to another kernel, has no effect: the next source decides.
/// `Device::records` reports it.
#[macro_export]
macro_rules! tuning_record {
    ($path:expr) => {
        $crate::__macro::inventory::submit! {
            $crate::__macro::ShippedRecord { origin: $path, text: include_str!($path) }
        }
    };
}

/// What `atlas_kernel!` calls to read the tile functions of other modules.
#[doc(hidden)]
pub use atlas_macros::atlas_kernel_with as __atlas_kernel_with;

/// The paths that the macros of this crate expand to. Programs must not use them directly.
#[doc(hidden)]
pub mod __macro {
    pub use atlas_dsl::__macro::*;
    pub use atlas_runtime::bundle::{ShippedBundle, is_whole};
    pub use atlas_runtime::records::ShippedRecord;
}

/// The code in the documents, which `cargo test --doc` compiles.
#[cfg(doctest)]
mod documents {
    #[doc = include_str!("../README.md")]
    struct Readme;
    #[doc = include_str!("../docs/src/kernel-language.md")]
    struct Language;
    #[doc = include_str!("../docs/src/lessons.md")]
    struct Lessons;
    #[doc = include_str!("../docs/src/graphs.md")]
    struct Graphs;
    #[doc = include_str!("../docs/src/from-triton.md")]
    struct FromTriton;
    #[doc = include_str!("../docs/src/from-cutile.md")]
    struct FromCutile;
    #[doc = include_str!("../docs/src/containers.md")]
    struct Containers;
}
