//! One call from verified Tile IR to a kernel image, and one that also returns the stages as text.

use crate::arch::Platform;
use crate::error::CompileError;
use crate::gpu::{self, Lowered, VerifiedKernel};
use crate::image::{AbiParam, KernelImage};
use crate::layout::tensor_map::{MapAxis, TensorMapData};
use crate::mutation::carried;
use crate::{llvm, packing, pipeline, ptx};
use atlas_dsl::{Kernel, Schedule, Verified};
use inkwell::context::Context;
use std::time::{Duration, Instant};

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

/// The time of each stage of one compilation, by the host's clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct StageTimes {
    /// Tile IR to GPU IR: every pass and verifier.
    pub passes: Duration,
    /// GPU IR to LLVM IR.
    pub emit: Duration,
    /// LLVM's verifier and passes.
    pub optimise: Duration,
    /// LLVM's code generator: LLVM IR to PTX.
    pub generate: Duration,
}

impl StageTimes {
    /// All of them.
    pub fn total(&self) -> Duration {
        self.passes + self.emit + self.optimise + self.generate
    }
}

/// Compiles a kernel for a schedule and a platform. A machine stands for its best target, and a target for the usual machine of
/// its generation.
///
/// # Errors
/// [`CompileError::Refused`] if the schedule does not fit the kernel and machine.
pub fn compile(
    kernel: &Verified<Kernel>,
    schedule: &Schedule,
    on: impl Into<Platform>,
) -> Result<KernelImage, CompileError> {
    Ok(compile_with(kernel, schedule, on.into(), &[], false)?.image)
}

/// [`compile`] with `.file` and `.loc` directives, which name the kernel's source. The code is the same.
///
/// # Errors
/// As [`compile`].
pub fn compile_with_lines(
    kernel: &Verified<Kernel>,
    schedule: &Schedule,
    on: impl Into<Platform>,
) -> Result<KernelImage, CompileError> {
    Ok(compile_with(kernel, schedule, on.into(), &[], true)?.image)
}

/// Compiles a kernel and returns the requested stages as text, in order. With packed operands, they are those of the kernel that
/// reads them. If the schedule is refused, the error names one that is
/// not, if one is near.
pub fn compile_stages(
    kernel: &Verified<Kernel>,
    schedule: &Schedule,
    on: impl Into<Platform>,
    stages: &[Stage],
) -> Result<Vec<(Stage, String)>, CompileError> {
    let on = on.into();
    let kernel = &packing::launch_kernels(kernel.clone(), schedule, on.target)?.kernel;
    let compiled = compile_with(kernel, schedule, on, stages, false);
    compiled.map(|c| c.texts).map_err(|e| pipeline::with_what_fits(e, kernel, schedule, on))
}

/// [`compile`], with the time of each stage.
///
/// # Errors
/// As [`compile`].
pub fn compile_timed(
    kernel: &Verified<Kernel>,
    schedule: &Schedule,
    on: impl Into<Platform>,
) -> Result<(KernelImage, StageTimes), CompileError> {
    compile_with(kernel, schedule, on.into(), &[], false).map(|c| (c.image, c.times))
}

/// The result of a compilation.
struct Compiled {
    image: KernelImage,
    texts: Vec<(Stage, String)>,
    times: StageTimes,
}

fn compile_with(
    kernel: &Verified<Kernel>,
    schedule: &Schedule,
    on: Platform,
    stages: &[Stage],
    lines: bool,
) -> Result<Compiled, CompileError> {
    let start = Instant::now();
    let gpu = pipeline::run(kernel, schedule, on, |_, _| {})?;
    let times = StageTimes { passes: start.elapsed(), ..StageTimes::default() };
    let source = lines.then(|| kernel.source_file.as_deref().unwrap_or(&kernel.name));
    emit_with(&gpu, stages, source, times)
}

/// Emits a kernel after the last pass.
///
/// # Errors
/// A defect of the emitter, or of LLVM.
pub fn emit(gpu: &VerifiedKernel<Lowered>) -> Result<KernelImage, CompileError> {
    Ok(emit_with(gpu, &[], None, StageTimes::default())?.image)
}

/// A parameter of the calling convention, with the axis of the argument.
fn of_argument(gpu: &gpu::Kernel, param: AbiParam) -> AbiParam {
    match param {
        AbiParam::Stride(p, axis) => AbiParam::Stride(p, gpu.params[p].kind.argument_axis(axis)),
        other => other,
    }
}

/// A tensor map, with the axes of the argument.
fn map_of_argument(gpu: &gpu::Kernel, map: &TensorMapData) -> TensorMapData {
    let kind = &gpu.params[map.param].kind;
    let axes = map.axes.iter().map(|a| MapAxis { axis: kind.argument_axis(a.axis), ..*a });
    TensorMapData { axes: axes.collect(), ..map.clone() }
}

/// The stack of the thread that runs LLVM. LLVM follows chains of operations by recursion, and a very long chain needs more
/// than a usual thread's stack. The unused part takes only addresses.
const LLVM_STACK: usize = 64 << 20;

/// Emits a kernel on a thread of its own, and waits for it.
fn emit_with(
    gpu: &VerifiedKernel<Lowered>,
    stages: &[Stage],
    source: Option<&str>,
    times: StageTimes,
) -> Result<Compiled, CompileError> {
    std::thread::scope(|scope| {
        let emit = carried(|| emit_here(gpu, stages, source, times));
        let thread = std::thread::Builder::new().name("llvm".to_owned()).stack_size(LLVM_STACK);
        match thread.spawn_scoped(scope, emit) {
            Ok(thread) => thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
            Err(e) => Err(CompileError::bug(format!("a thread for LLVM does not start: {e}"))),
        }
    })
}

fn emit_here(
    gpu: &VerifiedKernel<Lowered>,
    stages: &[Stage],
    source: Option<&str>,
    mut times: StageTimes,
) -> Result<Compiled, CompileError> {
    let mut since = Instant::now();
    let mut lap = || std::mem::replace(&mut since, Instant::now()).elapsed();
    let target = gpu.target;
    let known = target
        .ptx_version()
        .ok_or_else(|| CompileError::bug(format!("code for {target}, which is not in the table")))?;
    let ptx_version = known.max(gpu.ptx_version());
    let emitter = ptx::machine(target, ptx_version)?;
    let cx = Context::create();
    let module = ptx::module(&cx, &gpu.name, &emitter);
    llvm::emit(&cx, &module, gpu, source)?;
    times.emit = lap();
    let mut texts = Vec::new();
    for &stage in stages {
        match stage {
            Stage::Gpu => texts.push((stage, gpu.to_string())),
            Stage::Llvm => texts.push((stage, module.print_to_string().to_string())),
            Stage::Ptx => {}
        }
    }
    lap();
    ptx::optimise(&module, &emitter)?;
    times.optimise = lap();
    let mut text = ptx::to_ptx(&module, &emitter)?;
    times.generate = lap();
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
        params: llvm::abi(gpu).into_iter().map(|param| of_argument(gpu, param)).collect(),
        maps: gpu.maps.values().map(|map| map_of_argument(gpu, map)).collect(),
        grid: gpu.index_map.grid(),
        persistent: gpu.index_map.persistent,
        splits: gpu.index_map.splits,
        partial_bytes: gpu.partial_bytes(),
        threads: gpu.threads,
        shared_bytes: gpu.shared_bytes(),
    };
    Ok(Compiled { image, texts, times })
}
