//! The only module that calls the code generator.

use anyhow::{Context, Result, anyhow};
use atlas_codegen::{Explained, KernelImage, Platform, packing};
use atlas_dsl::diag::render;
use atlas_dsl::{Diagnostics, Kernel, Schedule, Verified};
use atlas_runtime::{LoopInterval, loop_intervals};
use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::str::FromStr;

/// The forms in which a kernel can be printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Tile IR.
    Tile,
    /// GPU IR.
    Gpu,
    /// LLVM IR.
    Llvm,
    /// PTX.
    Ptx,
}

impl Stage {
    /// In the order of compilation, with the name that is also the file extension.
    const ALL: [(&'static str, Stage); 4] =
        [("tile", Stage::Tile), ("gpu", Stage::Gpu), ("llvm", Stage::Llvm), ("ptx", Stage::Ptx)];

    /// The extension of a file with this stage.
    pub(super) fn ending(self) -> &'static str {
        match self {
            Stage::Llvm => "ll",
            _ => Stage::ALL[self as usize].0,
        }
    }
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(Stage::ALL[*self as usize].0)
    }
}

impl FromStr for Stage {
    type Err = String;

    fn from_str(text: &str) -> Result<Stage, String> {
        let found = Stage::ALL.iter().find(|(name, _)| *name == text);
        found
            .map(|(_, s)| *s)
            .ok_or_else(|| format!("there is no stage `{text}`; the stages are tile, gpu, llvm and ptx"))
    }
}

/// Stages of a kernel as text, in the requested order.
pub(super) type Texts = Vec<(Stage, String)>;

/// The requested stages of a kernel, in the requested order.
pub(super) fn print(kernel: Kernel, schedule: &Schedule, on: Platform, want: &[Stage]) -> Result<Texts> {
    texts(&atlas_dsl::verify(kernel)?, schedule, on, want)
}

/// The kernel of a `.tile` file. An error in it is shown with its line and a caret.
pub(super) fn read(path: &Path) -> Result<Verified<Kernel>> {
    let source = atlas_runtime::files::read_text(path).with_context(|| format!("cannot read {}", path.display()))?;
    let rendered = |d: Diagnostics| anyhow!("{}", render(&d, &path.display().to_string(), &source).trim_end());
    let kernel = atlas_dsl::parse_kernel(&source).map_err(rendered)?;
    atlas_dsl::verify(kernel).map_err(rendered)
}

/// The requested stages of the kernels that pack operands of a kernel, if the schedule says so, in the requested order.
pub(super) fn packers(kernel: Kernel, schedule: &Schedule, on: Platform, want: &[Stage]) -> Result<Vec<Texts>> {
    let launch = packing::launch_kernels(atlas_dsl::verify(kernel)?, schedule, on.target)?;
    launch.packers.iter().map(|packer| texts(packer, &packing::packer_schedule(), on, want)).collect()
}

/// The requested stages of a verified kernel, in the requested order. With packed operands, those of the kernel that reads them.
pub(super) fn texts(verified: &Verified<Kernel>, schedule: &Schedule, on: Platform, want: &[Stage]) -> Result<Texts> {
    let tile = packing::launch_kernels(verified.clone(), schedule, on.target)?.kernel.to_string();
    let rest: Vec<Stage> = want.iter().copied().filter(|&s| s != Stage::Tile).collect();
    let mut texts = if rest.is_empty() { Vec::new() } else { lower(verified, schedule, on, &rest)? };
    texts.push((Stage::Tile, tile));
    Ok(want.iter().filter_map(|s| texts.iter().find(|(t, _)| t == s).cloned()).collect())
}

#[cfg(feature = "llvm")]
fn lower(kernel: &Verified<Kernel>, schedule: &Schedule, on: Platform, want: &[Stage]) -> Result<Texts> {
    let stages: Vec<atlas_codegen::Stage> = want
        .iter()
        .filter_map(|s| match s {
            Stage::Tile => None,
            Stage::Gpu => Some(atlas_codegen::Stage::Gpu),
            Stage::Llvm => Some(atlas_codegen::Stage::Llvm),
            Stage::Ptx => Some(atlas_codegen::Stage::Ptx),
        })
        .collect();
    let texts = atlas_codegen::compile_stages(kernel, schedule, on, &stages)?;
    let stage = |s| match s {
        atlas_codegen::Stage::Gpu => Stage::Gpu,
        atlas_codegen::Stage::Llvm => Stage::Llvm,
        atlas_codegen::Stage::Ptx => Stage::Ptx,
    };
    Ok(texts.into_iter().map(|(s, text)| (stage(s), text)).collect())
}

#[cfg(not(feature = "llvm"))]
fn lower(_: &Verified<Kernel>, _: &Schedule, _: Platform, _: &[Stage]) -> Result<Texts> {
    Err(anyhow!("{NO_GENERATOR}"))
}

/// Why a kernel was not compiled.
pub(super) enum CompileFailure {
    /// The config is not legal for the machine.
    #[cfg_attr(not(feature = "llvm"), allow(dead_code, reason = "only the code generator refuses configs"))]
    Refused(String),
    /// Anything else.
    Other(anyhow::Error),
}

/// A compiled kernel.
#[cfg(feature = "llvm")]
pub(super) fn image(kernel: Kernel, schedule: &Schedule, on: Platform) -> Result<KernelImage, CompileFailure> {
    let verified = atlas_dsl::verify(kernel).map_err(|d| CompileFailure::Other(d.into()))?;
    match atlas_codegen::compile(&verified, schedule, on) {
        Ok(image) => Ok(image),
        Err(e) if e.is_refusal() => Err(CompileFailure::Refused(e.to_string())),
        Err(e) => Err(CompileFailure::Other(e.into())),
    }
}

/// A compiled kernel.
#[cfg(not(feature = "llvm"))]
pub(super) fn image(_: Kernel, _: &Schedule, _: Platform) -> Result<KernelImage, CompileFailure> {
    Err(CompileFailure::Other(anyhow!("{NO_GENERATOR}")))
}

/// The decisions of the passes for a kernel, with their reasons. Needs no LLVM.
pub(super) fn placement(kernel: &Verified<Kernel>, schedule: &Schedule, on: Platform) -> Result<Explained> {
    Ok(atlas_codegen::explain(kernel, schedule, on)?)
}

/// The pipelined loops of a kernel in steady state; none if the size of a dim is not known.
pub(super) fn loops(
    kernel: &Verified<Kernel>,
    schedule: &Schedule,
    on: Platform,
    dims: &BTreeMap<String, u64>,
) -> Result<Vec<LoopInterval>> {
    let sizes: Option<Vec<u64>> = kernel.dims.values().map(|d| dims.get(&d.name).copied()).collect();
    let Some(sizes) = sizes else { return Ok(Vec::new()) };
    let kernel = &packing::launch_kernels(kernel.clone(), schedule, on.target)?.kernel;
    let lowered = atlas_codegen::pipeline::run(kernel, schedule, on, |_, _| {})?;
    Ok(loop_intervals(&lowered, &sizes, &on.machine))
}

/// The error of a build without a code generator.
#[cfg(not(feature = "llvm"))]
const NO_GENERATOR: &str = "this program was built without its code generator; build it with \
    `--features jit` (LLVM 22 as a shared library: `apt-get install llvm-22-dev`) or `--features static-llvm`";

/// True if this program can compile kernels.
pub(super) const CAN_COMPILE: bool = cfg!(feature = "llvm");
