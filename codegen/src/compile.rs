//! One call from verified Tile IR to a kernel image, and the same with every stage as text.

use crate::error::CompileError;
use crate::gpu::{Legal, Lowered};
use crate::image::KernelImage;
use crate::machine::Platform;
use crate::{llvm, pipeline, ptx};
use atlas_dsl::{Kernel, Schedule, Verified};
use inkwell::context::Context;

/// A level below Tile IR that can be printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// GPU IR after the last pass.
    Gpu,
    /// LLVM IR as emitted, before optimisation.
    Llvm,
    /// PTX.
    Ptx,
}

/// Compiles a kernel for a schedule and a platform: a machine, for its best target, or a target, for the machine of its
/// own generation.
///
/// # Errors
/// [`CompileError::Refused`] if the schedule does not fit the kernel and machine.
pub fn compile(
    kernel: &Verified<Kernel>,
    schedule: &Schedule,
    on: impl Into<Platform>,
) -> Result<KernelImage, CompileError> {
    Ok(compile_with(kernel, schedule, on.into(), &[], false)?.0)
}

/// [`compile`] with `.file` and `.loc` directives, which name the kernel's source; the code is the same.
///
/// # Errors
/// As [`compile`].
pub fn compile_with_lines(
    kernel: &Verified<Kernel>,
    schedule: &Schedule,
    on: impl Into<Platform>,
) -> Result<KernelImage, CompileError> {
    Ok(compile_with(kernel, schedule, on.into(), &[], true)?.0)
}

/// Compiles a kernel and returns the asked-for stages as text, in order.
pub fn compile_stages(
    kernel: &Verified<Kernel>,
    schedule: &Schedule,
    on: impl Into<Platform>,
    stages: &[Stage],
) -> Result<Vec<(Stage, String)>, CompileError> {
    Ok(compile_with(kernel, schedule, on.into(), stages, false)?.1)
}

fn compile_with(
    kernel: &Verified<Kernel>,
    schedule: &Schedule,
    on: Platform,
    stages: &[Stage],
    lines: bool,
) -> Result<(KernelImage, Vec<(Stage, String)>), CompileError> {
    let gpu = pipeline::run(kernel, schedule, on, |_, _| {})?;
    let source = lines.then(|| kernel.source_file.as_deref().unwrap_or(&kernel.name));
    emit_with(&gpu, stages, source)
}

/// Emits a kernel that the passes are done with.
///
/// # Errors
/// A defect of the emitter, or of LLVM.
pub fn emit(gpu: &Legal<Lowered>) -> Result<KernelImage, CompileError> {
    Ok(emit_with(gpu, &[], None)?.0)
}

fn emit_with(
    gpu: &Legal<Lowered>,
    stages: &[Stage],
    source: Option<&str>,
) -> Result<(KernelImage, Vec<(Stage, String)>), CompileError> {
    let target = gpu.target;
    let ptx_version = target.ptx_version().max(gpu.ptx_version());
    let emitter = ptx::machine(target, ptx_version)?;
    let cx = Context::create();
    let module = ptx::module(&cx, &gpu.name, &emitter);
    llvm::emit(&cx, &module, gpu, source)?;
    let mut texts = Vec::new();
    for &stage in stages {
        match stage {
            Stage::Gpu => texts.push((stage, gpu.to_string())),
            Stage::Llvm => texts.push((stage, module.print_to_string().to_string())),
            Stage::Ptx => {}
        }
    }
    let mut text = ptx::to_ptx(&module, &emitter)?;
    if source.is_some() {
        text = ptx::without_debug_sections(&text);
    }
    if stages.contains(&Stage::Ptx) {
        texts.push((Stage::Ptx, text.clone()));
    }
    let image = KernelImage {
        entry: gpu.name.clone(),
        ptx: text,
        ptx_version,
        target,
        params: llvm::abi(gpu),
        grid: gpu.index_map.axes().to_vec(),
        threads: gpu.threads,
        shared_bytes: gpu.shared_bytes(),
    };
    Ok((image, texts))
}
