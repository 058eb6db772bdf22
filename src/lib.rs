//! Atlas: a GPU kernel language embedded in Rust, its compiler and its runtime.
//!
//! A kernel is written once, at tile level, with [`atlas_kernel!`]; it is checked as Rust compiles, lowered to PTX,
//! and launched on a GPU, or run by an interpreter on a CPU with no GPU, no CUDA and no LLVM.
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
//! | crate | holds |
//! |---|---|
//! | `atlas-dsl`, `atlas-macros` | Tile IR and `atlas_kernel!` |
//! | `atlas-codegen` | Tile IR to PTX (feature `jit` or `static-llvm`) |
//! | `atlas-tile-interp` | Tile IR on a CPU: the oracle, and the device of machines without a GPU |
//! | `atlas-runtime` | devices, tensors, launches |
//! | `atlas-ops` | the kernels that ship with Atlas |
//!
//! Default features build what runs kernels on a CPU and, out of the store, on a GPU. More comes by feature:
//!
//! | feature | adds |
//! |---|---|
//! | `jit`, `static-llvm` | the code generator, with LLVM 22 as a shared library or linked in |
//! | `sim` | the simulator of PTX as a device |
//! | `verify` | the references of the shipped kernels in f64, and problems to check them on |
//! | `cli` | the command line, with `verify` |
#![warn(clippy::too_many_lines)]
#![forbid(unsafe_code)]

#[cfg(feature = "cli")]
pub mod cli;

pub use atlas_codegen as codegen;
pub use atlas_dsl as dsl;
pub use atlas_macros::{atlas_kernel, fuse};
pub use atlas_ops as ops;
pub use atlas_runtime as runtime;
pub use atlas_runtime::{Device, Result, RuntimeError, Tensor, args};
pub use atlas_tile_interp as tile_interp;
pub use half;

/// Makes a bundle part of the program: `atlas::bundle!("../kernels.atlas");`, beside the file like `include_bytes!`. GPUs that
/// are opened later run its kernels, and need no compiler for them. `atlas bundle` writes such files; see `docs/src/shipping.md`.
///
/// `atlas::bundle!();` is the one that the build script made with `atlas_build::bundle()`.
///
/// With a file that is cut off, is of another version of Atlas or is no bundle at all the program does not build.
#[macro_export]
macro_rules! bundle {
    (@of $path:expr, $origin:expr) => {
        $crate::runtime::records::inventory::submit! {
            $crate::runtime::bundle::ShippedBundle { origin: $origin, bytes: include_bytes!($path) }
        }
        const _: () = assert!(
            $crate::runtime::bundle::is_whole(include_bytes!($path)),
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

/// Makes a tuning record part of the program, as [`bundle!`] does a bundle: GPUs of its model choose by it.
#[macro_export]
macro_rules! tuning_record {
    ($path:expr) => {
        $crate::runtime::records::inventory::submit! {
            $crate::runtime::records::ShippedRecord { origin: $path, text: include_str!($path) }
        }
    };
}

/// What `atlas_kernel!` expands to.
#[doc(hidden)]
pub use atlas_dsl::__macro;
/// What it calls to read tile fns of other modules.
#[doc(hidden)]
pub use atlas_macros::atlas_kernel_with as __atlas_kernel_with;

/// What a program with kernels needs.
pub mod prelude {
    pub use atlas_dsl::{Config, DType, KernelDef};
    pub use atlas_macros::{atlas_kernel, fuse};
    pub use atlas_runtime::{Chain, Device, Launch, Tensor, args};
    pub use half::{bf16, f16};
    /// Numbers for kernels, where an upper-case name is a Rust constant in scope.
    pub use std::f32::consts::{FRAC_1_SQRT_2, LN_2, LOG2_E, PI, SQRT_2};
}

/// The code of the documents, which `cargo test --doc` compiles.
#[cfg(doctest)]
mod documents {
    #[doc = include_str!("../README.md")]
    struct Readme;
    #[doc = include_str!("../dsl/LANGUAGE.md")]
    struct Language;
    #[doc = include_str!("../docs/src/lessons.md")]
    struct Lessons;
}
