//! Compiled kernels: from a signature to Tile IR, from Tile IR to PTX if this build has the compiler, and the store of
//! the results.
//!
//! The room may depend on `error` and `files`. It knows no devices.
//!
//! | file | holds |
//! |---|---|
//! | `specialization_class` | what a kernel is compiled for, as a value and as text, and which problems it then serves |
//! | `key` | the name of a compiled kernel |
//! | `image_file` | a compiled kernel as bytes |
//! | `store`, `evict` | compiled kernels by key, in memory and on disk, both bounded |

mod evict;
pub mod image_file;
mod key;
pub(crate) mod specialization_class;
mod store;

pub use key::{KernelKey, KeyParts};
pub use store::{CACHE_DIR_VARIABLE, CACHE_SIZE_VARIABLE, CacheDir, Store, StoreStats};

use crate::error::{CompileFailure, Result, RuntimeError};
use atlas_codegen::packing::{self, LaunchKernels};
use atlas_codegen::{CompileError, KernelImage, Machine, Target};
use atlas_dsl::{Config, Kernel, KernelDef, Schedule, Specialization, Verified};

/// True if this build compiles kernels on their first launch (feature `jit`).
pub const HAS_COMPILER: bool = cfg!(feature = "jit");

/// Builds and verifies the Tile IR of a kernel.
///
/// # Errors
/// `RuntimeError::Kernel` with the diagnostics of the builder or the verifier.
pub fn build_kernel(def: &KernelDef, spec: &Specialization, config: &Config) -> Result<Verified<Kernel>> {
    (def.build)(spec, config).and_then(atlas_dsl::verify).map_err(|diagnostics| RuntimeError::Kernel {
        kernel: def.name.to_owned(),
        config: Box::new(config.clone()),
        diagnostics,
    })
}

/// The kernels of a launch with a config, for a target.
///
/// # Errors
/// As [`build_kernel`], and a defect of the compiler.
pub fn build_launch(def: &KernelDef, spec: &Specialization, config: &Config, target: Target) -> Result<LaunchKernels> {
    let kernel = build_kernel(def, spec, config)?;
    Ok(packing::launch_kernels(kernel, &config.schedule, target).map_err(|e| defect(def, &e))?)
}

/// A kernel with its operands packed for a target, if any has to be.
///
/// # Errors
/// A defect of the compiler.
pub(crate) fn packed(def: &KernelDef, kernel: &Verified<Kernel>, target: Target) -> Result<Option<LaunchKernels>> {
    Ok(packing::pack(kernel, target).map_err(|e| defect(def, &e))?)
}

fn defect(def: &KernelDef, e: &CompileError) -> CompileFailure {
    let (kernel, message) = (def.name.to_owned(), e.to_string());
    CompileFailure { kernel, message, refused: Vec::new(), compiler_present: true }
}

/// The key under which a kernel's PTX is stored. The machine is not part of it: a machine decides which configs are
/// refused, but the PTX of a legal config is the same on every machine of the target.
pub fn kernel_key(kernel: &Kernel, schedule: Schedule, target: Target) -> KernelKey {
    KernelKey::of(&KeyParts {
        tile_ir: &kernel.to_string(),
        schedule,
        target,
        // A target that the compiler does not lower for has no code to store.
        ptx_version: target.ptx_version().unwrap_or_default(),
        toolchain: &atlas_codegen::toolchain::toolchain_id(),
    })
}

/// Why a kernel was not compiled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CompileProblem {
    /// This build has no compiler.
    #[cfg_attr(feature = "jit", allow(dead_code, reason = "only builds without the compiler make it"))]
    NoCompiler,
    /// The config is illegal, but another one may compile.
    #[cfg_attr(not(feature = "jit"), allow(dead_code, reason = "only the compiler makes it"))]
    Refused(String),
    /// No config compiles.
    #[cfg_attr(not(feature = "jit"), allow(dead_code, reason = "only the compiler makes it"))]
    Failed(String),
}

#[cfg(feature = "jit")]
pub(crate) fn compile(
    kernel: &Verified<Kernel>,
    schedule: &Schedule,
    machine: Machine,
) -> std::result::Result<KernelImage, CompileProblem> {
    atlas_codegen::compile(kernel, schedule, machine).map_err(|e| match e.is_refusal() {
        true => CompileProblem::Refused(e.to_string()),
        false => CompileProblem::Failed(e.to_string()),
    })
}

/// The same kernel with the line numbers of its source. `None` if this build has no compiler.
pub(crate) fn compile_with_lines(
    kernel: &Verified<Kernel>,
    schedule: &Schedule,
    machine: Machine,
) -> Option<KernelImage> {
    #[cfg(feature = "jit")]
    return atlas_codegen::compile_with_lines(kernel, schedule, machine).ok();
    #[cfg(not(feature = "jit"))]
    {
        let _ = (kernel, schedule, machine);
        None
    }
}

#[cfg(not(feature = "jit"))]
pub(crate) fn compile(
    _kernel: &Verified<Kernel>,
    _schedule: &Schedule,
    _machine: Machine,
) -> std::result::Result<KernelImage, CompileProblem> {
    Err(CompileProblem::NoCompiler)
}

/// An image of nothing, for tests: 128 threads, for sm_80. They set the fields that they are about.
#[cfg(test)]
pub(crate) fn empty_image() -> KernelImage {
    KernelImage {
        entry: "axpy".to_owned(),
        ptx: String::new(),
        ptx_version: (7, 1),
        target: Target { sm: 80, specific: false },
        params: Vec::new(),
        maps: Vec::new(),
        grid: Vec::new(),
        persistent: false,
        splits: 1,
        partial_bytes: 0,
        threads: 128,
        shared_bytes: 0,
    }
}
