//! Launching: arguments in, a kernel queued. The only place that calls `cuLaunchKernel`.
//!
//! A first launch of a problem binds its arguments, chooses a config, compiles or finds the kernel and keeps a plan.
//! Every later launch of the same problem finds the plan, checks devices, numbers and aliasing, packs parameters and queues:
//! a microsecond or two of host time, without allocation.

use crate::args::Arg;
use crate::bind::{BoundArg, BoundLaunch, check_aliasing, is_written, scalar_bits};
use crate::class::class_text;
use crate::config_source::ConfigSource;
use crate::cpu::run_native;
use crate::device::{Backend, Device};
use crate::driver::Context;
use crate::error::{DeviceError, Result};
use crate::host::run_on_host;
use crate::kernel::{Code, LaunchFacts, LoadedKernel, Module};
use crate::launch_error::LaunchError;
use crate::plan::{ProblemWords, slot_bits};
use crate::plans::{Body, Plan, Slot};
use crate::problem::specialize;
use crate::resolve::resolve;
use crate::select::{Selection, choose};
use crate::sizes::{Tally, are_recorded, tally};
use crate::stream::Stream;
use atlas_codegen::KernelImage;
use atlas_dsl::{Config, DType, KernelDef};
use std::ffi::c_void;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Launches of a kernel.
///
/// On a GPU a launch returns when it is queued; reading a tensor waits for it. On the CPU and in the simulator it
/// returns when it is done.
pub trait Launch {
    /// Runs the kernel on a device's default stream.
    ///
    /// # Errors
    /// `RuntimeError::Launch` if the arguments do not fit the signature; `RuntimeError::Kernel` or
    /// `RuntimeError::Compile` if no config can be built for this problem; driver errors.
    fn launch<'a>(&'static self, device: &Device, args: impl AsRef<[Arg<'a>]>) -> Result<()>;

    /// Runs the kernel on a stream. A CUDA graph that records it does not own the kernel, which the device unloads when many
    /// others have been launched since: to be recorded, a launch is prepared and the [`PreparedLaunch`] kept.
    ///
    /// # Errors
    /// As [`Launch::launch`].
    fn launch_on<'a>(&'static self, stream: &Stream, args: impl AsRef<[Arg<'a>]>) -> Result<()>;

    /// Runs the kernel with a config of the caller's; tile sizes that it leaves out take their defaults.
    ///
    /// # Errors
    /// As [`Launch::launch`]; a config that does not fit is an error, and no other is tried.
    fn launch_with<'a>(&'static self, device: &Device, config: &Config, args: impl AsRef<[Arg<'a>]>) -> Result<()>;

    /// Does all but the launch, so that launches of this problem do nothing else (a CUDA graph needs that, and that the
    /// [`PreparedLaunch`] lives as long as it).
    ///
    /// # Errors
    /// As [`Launch::launch`].
    fn prepare<'a>(&'static self, device: &Device, args: impl AsRef<[Arg<'a>]>) -> Result<PreparedLaunch>;

    /// [`Launch::prepare`] with a config of the caller's.
    ///
    /// # Errors
    /// As [`Launch::launch_with`].
    fn prepare_with<'a>(
        &'static self,
        device: &Device,
        config: &Config,
        args: impl AsRef<[Arg<'a>]>,
    ) -> Result<PreparedLaunch>;

    /// Checks the arguments alone.
    ///
    /// # Errors
    /// `RuntimeError::Launch`.
    fn bind<'a>(&'static self, device: &Device, args: impl AsRef<[Arg<'a>]>) -> Result<BoundLaunch>;

    /// Ranks the configs for this problem, with the reasons.
    ///
    /// # Errors
    /// `RuntimeError::Launch`.
    fn select<'a>(&'static self, device: &Device, args: impl AsRef<[Arg<'a>]>) -> Result<Selection>;
}

impl Launch for KernelDef {
    fn launch<'a>(&'static self, device: &Device, args: impl AsRef<[Arg<'a>]>) -> Result<()> {
        launch(self, device, None, None, args.as_ref())
    }

    fn launch_on<'a>(&'static self, stream: &Stream, args: impl AsRef<[Arg<'a>]>) -> Result<()> {
        launch(self, stream.device(), Some(stream), None, args.as_ref())
    }

    fn launch_with<'a>(&'static self, device: &Device, config: &Config, args: impl AsRef<[Arg<'a>]>) -> Result<()> {
        launch(self, device, None, Some(config), args.as_ref())
    }

    fn prepare<'a>(&'static self, device: &Device, args: impl AsRef<[Arg<'a>]>) -> Result<PreparedLaunch> {
        prepare(self, device, None, args.as_ref())
    }

    fn prepare_with<'a>(
        &'static self,
        device: &Device,
        config: &Config,
        args: impl AsRef<[Arg<'a>]>,
    ) -> Result<PreparedLaunch> {
        prepare(self, device, Some(config), args.as_ref())
    }

    fn bind<'a>(&'static self, device: &Device, args: impl AsRef<[Arg<'a>]>) -> Result<BoundLaunch> {
        BoundLaunch::new(self, device, args.as_ref())
    }

    fn select<'a>(&'static self, device: &Device, args: impl AsRef<[Arg<'a>]>) -> Result<Selection> {
        choose(&BoundLaunch::new(self, device, args.as_ref())?)
    }
}

/// A launch of one exact problem, resolved: shapes, strides, types, alignments and config are fixed, addresses and
/// numbers are given each time.
///
/// It keeps its kernel loaded. A CUDA graph that recorded its launches does not: keep this for as long as the graph is
/// launched.
#[derive(Clone)]
pub struct PreparedLaunch {
    def: &'static KernelDef,
    device: Device,
    config: Option<Config>,
    words: Box<[u64]>,
    plan: Arc<Plan>,
}

impl PreparedLaunch {
    /// Queues the launch on the device's default stream.
    ///
    /// # Errors
    /// [`LaunchError::NotPrepared`] if the arguments are of another problem; aliasing and driver errors.
    pub fn launch<'a>(&self, args: impl AsRef<[Arg<'a>]>) -> Result<()> {
        self.queue(None, args.as_ref())
    }

    /// Queues the launch on a stream.
    ///
    /// # Errors
    /// As [`PreparedLaunch::launch`], and [`LaunchError::WrongStream`].
    pub fn launch_on<'a>(&self, stream: &Stream, args: impl AsRef<[Arg<'a>]>) -> Result<()> {
        self.check_stream(stream)?;
        self.queue(Some(stream), args.as_ref())
    }

    /// Refuses a stream of another device.
    pub(crate) fn check_stream(&self, stream: &Stream) -> Result<()> {
        if *stream.device() != self.device {
            let (found, wanted) = stream.device().beside(&self.device);
            return Err(LaunchError::WrongStream { found, wanted }.into());
        }
        Ok(())
    }

    /// Refuses arguments of another problem, on another device, numbers that do not fit, and tensors that overlap.
    pub(crate) fn check(&self, args: &[Arg<'_>]) -> Result<()> {
        if ProblemWords::new(self.def, self.config.as_ref(), args).as_slice() != &*self.words {
            return Err(LaunchError::NotPrepared { kernel: self.def.name }.into());
        }
        check_again(self.def, &self.device, &self.plan, args)
    }

    fn queue(&self, stream: Option<&Stream>, args: &[Arg<'_>]) -> Result<()> {
        self.check(args)?;
        self.queue_checked(stream, args)
    }

    /// Queues the launch of arguments that [`PreparedLaunch::check`] has let pass.
    pub(crate) fn queue_checked(&self, stream: Option<&Stream>, args: &[Arg<'_>]) -> Result<()> {
        count(&self.device, true);
        run_or_next(self.def, &self.device, stream, self.config.as_ref(), args, self.plan.clone())
    }

    /// The config that was chosen or given.
    pub fn config(&self) -> &Config {
        &self.plan.config
    }

    /// Configs that stood before this one, but were refused or spill, each with its reason.
    pub fn passed_over(&self) -> &[(Config, String)] {
        &self.plan.passed_over
    }

    /// How the config was chosen.
    pub fn source(&self) -> ConfigSource {
        self.plan.source
    }

    /// What the driver made of the kernel; `None` where there is no driver and where nothing runs.
    pub fn facts(&self) -> Option<LaunchFacts> {
        self.loaded().filter(|k| matches!(k.code, Code::Driver(_))).map(|k| k.facts)
    }

    /// The compiled kernel; `None` on the CPU and where nothing runs.
    pub fn image(&self) -> Option<&KernelImage> {
        self.loaded().map(|k| &*k.image)
    }

    fn loaded(&self) -> Option<&LoadedKernel> {
        match &self.plan.body {
            Body::Gpu { kernel, .. } => Some(kernel),
            Body::Cpu { .. } | Body::Empty => None,
        }
    }
}

fn prepare(
    def: &'static KernelDef,
    device: &Device,
    config: Option<&Config>,
    args: &[Arg<'_>],
) -> Result<PreparedLaunch> {
    let words = ProblemWords::new(def, config, args);
    let plan = find_or_resolve(def, device, config, args, words.as_slice())?.0;
    Ok(PreparedLaunch { def, device: device.clone(), config: config.cloned(), words: words.as_slice().into(), plan })
}

fn launch(
    def: &'static KernelDef,
    device: &Device,
    stream: Option<&Stream>,
    config: Option<&Config>,
    args: &[Arg<'_>],
) -> Result<()> {
    let words = ProblemWords::new(def, config, args);
    let (plan, warm) = find_or_resolve(def, device, config, args, words.as_slice())?;
    count(device, warm);
    run_or_next(def, device, stream, config, args, plan)
}

fn count(device: &Device, warm: bool) {
    let counters = device.counters();
    counters.launches.fetch_add(1, Ordering::Relaxed);
    counters.warm.fetch_add(u64::from(warm), Ordering::Relaxed);
}

/// Runs a plan; where the driver refuses its kernel at the launch, the next best config's. Each refusal is remembered
/// and so never met again, which ends this.
fn run_or_next(
    def: &'static KernelDef,
    device: &Device,
    stream: Option<&Stream>,
    config: Option<&Config>,
    args: &[Arg<'_>],
    mut plan: Arc<Plan>,
) -> Result<()> {
    loop {
        let (key, reason) = match run(def, device, stream, &plan, args) {
            Ok(()) => return Ok(()),
            Err(e) => plan.refused_by(&e).ok_or(e)?,
        };
        device.plans().refuse(&key, &reason);
        plan = find_or_resolve(def, device, config, args, ProblemWords::new(def, config, args).as_slice())?.0;
    }
}

/// A launch that needs nothing more than to be queued: its arguments are checked, and its kernel is loaded.
pub(crate) struct ReadyLaunch {
    def: &'static KernelDef,
    plan: Arc<Plan>,
    warm: bool,
}

impl ReadyLaunch {
    /// Checks the arguments of a launch and makes its plan.
    pub(crate) fn new(def: &'static KernelDef, device: &Device, args: &[Arg<'_>]) -> Result<ReadyLaunch> {
        let words = ProblemWords::new(def, None, args);
        let (plan, warm) = find_or_resolve(def, device, None, args, words.as_slice())?;
        Ok(ReadyLaunch { def, plan, warm })
    }

    /// Queues the launch, with the arguments and on the device that it was made for.
    pub(crate) fn queue(&self, device: &Device, stream: Option<&Stream>, args: &[Arg<'_>]) -> Result<()> {
        count(device, self.warm);
        run_or_next(self.def, device, stream, None, args, self.plan.clone())
    }
}

/// The plan of a launch whose arguments are checked, and whether the problem had been seen before.
fn find_or_resolve(
    def: &'static KernelDef,
    device: &Device,
    config: Option<&Config>,
    args: &[Arg<'_>],
    words: &[u64],
) -> Result<(Arc<Plan>, bool)> {
    if let Some(plan) = device.plans().find(words) {
        check_again(def, device, &plan, args)?;
        return Ok((plan, true));
    }
    let bound = BoundLaunch::new(def, device, args)?;
    let begun = device.plans().generation();
    let plan = Arc::new(Plan { tally: tally_of(&bound), numbers: numbers_of(&bound), ..resolve(&bound, config)? });
    device.plans().keep(words, &plan, begun);
    tracing::debug!(
        target: "atlas",
        kernel = def.name,
        dims = ?bound.dims(),
        config = %plan.config,
        by = %plan.source,
        passed_over = plan.passed_over.len(),
        "config chosen"
    );
    Ok((plan, false))
}

/// Where launches of a problem are counted, if sizes are recorded.
fn tally_of(bound: &BoundLaunch) -> Option<Arc<Tally>> {
    if !are_recorded() {
        return None;
    }
    let def = bound.def();
    let (types, tensors) = class_text(def, &specialize(bound));
    tally(def.name, types, def.dims_text(bound.dims()), tensors)
}

/// The parameters that are numbers, with their types.
fn numbers_of(bound: &BoundLaunch) -> Box<[(usize, DType)]> {
    let number = |(i, arg): (usize, &BoundArg)| match arg {
        BoundArg::Scalar { dtype, .. } => Some((i, *dtype)),
        BoundArg::Tensor { .. } => None,
    };
    bound.args().iter().enumerate().filter_map(number).collect()
}

/// The checks that a problem seen before still needs: where its tensors live, what they share, and that its numbers fit.
fn check_again(def: &'static KernelDef, device: &Device, plan: &Plan, args: &[Arg<'_>]) -> Result<()> {
    for &(i, dtype) in &plan.numbers {
        scalar_bits(def.name, def.params[i].name(), dtype, &args[i])?;
    }
    for (param, arg) in def.params.iter().zip(args) {
        if let Some(tensor) = arg.tensor()
            && tensor.device() != device
        {
            let (found, wanted) = tensor.device().beside(device);
            return Err(LaunchError::WrongDevice { kernel: def.name, param: param.name(), found, wanted }.into());
        }
    }
    Ok(check_aliasing(def, args)?)
}

fn run(def: &'static KernelDef, device: &Device, stream: Option<&Stream>, plan: &Plan, args: &[Arg<'_>]) -> Result<()> {
    if let Some(tally) = &plan.tally {
        tally.add();
    }
    if let Body::Gpu { kernel, .. } = &plan.body {
        kernel.touch(device.counters().launches.load(Ordering::Relaxed));
    }
    match (&plan.body, device.backend()) {
        (Body::Cpu { kernel, dims }, Backend::Cpu) => run_native(def, kernel, dims, args),
        (Body::Cpu { kernel, dims }, _) => run_on_host(def, device, kernel, dims, args),
        (Body::Gpu { kernel, grid, slots }, backend) => match (&kernel.code, backend) {
            (Code::Driver(module), Backend::Cuda(context)) => {
                let stream = stream.map_or(std::ptr::null_mut(), Stream::as_raw);
                launch_cuda(def, context, (&kernel.image, module), *grid, slots, args, stream)
            }
            (Code::Virtual(kernel), Backend::Virtual(_)) => {
                let params: Vec<u64> =
                    slots.iter().map(|&slot| slot_bits(def, slot, args)).collect::<std::result::Result<_, _>>()?;
                kernel.launch(*grid, &params, &outputs(def, args))
            }
            _ => Ok(()),
        },
        (Body::Empty, _) => Ok(()),
    }
}

/// The addresses that a launch writes and those between them, sorted by their start. Checked arguments share no
/// element, but one may lie between the rows of another.
fn outputs(def: &KernelDef, args: &[Arg<'_>]) -> Vec<Range<u64>> {
    let written = def.params.iter().zip(args).filter(|(param, _)| is_written(param));
    let mut ranges: Vec<Range<u64>> = written.filter_map(|(_, arg)| Some(arg.tensor()?.address_range())).collect();
    ranges.retain(|r| !r.is_empty());
    ranges.sort_by_key(|r| r.start);
    ranges
}

/// Parameters of one launch that stand on the stack; more go to the heap.
const INLINE_PARAMS: usize = 64;

fn launch_cuda(
    def: &'static KernelDef,
    context: &Context,
    (image, module): (&KernelImage, &Module),
    grid: u32,
    slots: &[Slot],
    args: &[Arg<'_>],
    stream: *mut c_void,
) -> Result<()> {
    let mut inline = ([0_u64; INLINE_PARAMS], [std::ptr::null_mut::<c_void>(); INLINE_PARAMS]);
    let mut heap = (Vec::new(), Vec::new());
    let (values, pointers) = if slots.len() <= INLINE_PARAMS {
        (&mut inline.0[..slots.len()], &mut inline.1[..slots.len()])
    } else {
        heap.0.resize(slots.len(), 0);
        heap.1.resize(slots.len(), std::ptr::null_mut());
        (&mut heap.0[..], &mut heap.1[..])
    };
    for (value, &slot) in values.iter_mut().zip(slots) {
        *value = slot_bits(def, slot, args)?;
    }
    for (pointer, value) in pointers.iter_mut().zip(values.iter_mut()) {
        *pointer = std::ptr::from_mut(value).cast();
    }
    let api = context.enter()?;
    let (threads, shared) = (image.threads, image.shared_bytes);
    // SAFETY: the function is loaded in this context and the stream is live in it. `slots` were made from the
    // image's own parameter list, one 64-bit little-endian value each, of which the driver reads as many bytes as
    // the parameter has. Tensors are bound: their dims, strides and alignments are those that the kernel was compiled
    // for, they live on this device, and what is written overlaps nothing else. Their memory is freed in the order of
    // streams (see `Stream::from_raw` for streams of the caller's).
    let status = unsafe {
        (api.launch)(
            module.function,
            grid,
            1,
            1,
            threads,
            1,
            1,
            shared,
            stream,
            pointers.as_mut_ptr(),
            std::ptr::null_mut(),
        )
    };
    context.check("cuLaunchKernel", status)
}

/// Queues a launch on the default stream, with the parameters as one block of bytes.
///
/// # Safety
/// As [`RawKernel::launch`](crate::RawKernel::launch).
pub(crate) unsafe fn launch_raw(kernel: &LoadedKernel, grid: [u32; 3], block: [u32; 3], params: &[u8]) -> Result<()> {
    // `CU_LAUNCH_PARAM_BUFFER_POINTER`, `CU_LAUNCH_PARAM_BUFFER_SIZE` and `CU_LAUNCH_PARAM_END`, each before its value.
    const POINTER: usize = 1;
    const SIZE: usize = 2;
    const END: usize = 0;
    let mut bytes = params.len();
    let mut extra = [
        POINTER as *mut c_void,
        params.as_ptr().cast_mut().cast(),
        SIZE as *mut c_void,
        (&raw mut bytes).cast(),
        END as *mut c_void,
    ];
    let Code::Driver(module) = &kernel.code else { return Err(DeviceError::NotAGpu {}.into()) };
    let context = &module.context;
    let api = context.enter()?;
    // SAFETY: the function is loaded in this context, and the null stream is always valid. The driver copies exactly
    // `bytes` bytes out of the block, which lives. For what the kernel then does, the caller answers.
    let status = unsafe {
        (api.launch)(
            module.function,
            grid[0],
            grid[1],
            grid[2],
            block[0],
            block[1],
            block[2],
            kernel.image.shared_bytes,
            std::ptr::null_mut(),
            std::ptr::null_mut(),
            extra.as_mut_ptr(),
        )
    };
    context.check("cuLaunchKernel", status)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args;
    use crate::tensor::Tensor;
    use atlas_dsl::def::{DTypeRef, DimDef, ParamDef};
    use atlas_dsl::ir::Access;
    use atlas_dsl::{DType, Diagnostics};

    static KEEP: KernelDef = KernelDef {
        name: "keep",
        doc: "",
        file: "",
        types: &[],
        dims: &[DimDef { name: "N", whole: false }],
        params: &[ParamDef::Tensor { name: "x", dtype: DTypeRef::Fixed(DType::F32), dims: &[0], access: Access::Out }],
        tune: &[],
        grid: &[],
        requires: &[],
        build: &|_, _| Err(Diagnostics::default()),
        refused: None,
    };

    /// A plan that was found again is as new as one that was made.
    #[test]
    fn every_launch_says_when_it_was() {
        let device = Device::absent(0);
        let kernel = Arc::new(LoadedKernel::idle(crate::key::KernelKey([1; 32])));
        let body = Body::Gpu { kernel: kernel.clone(), grid: 1, slots: Vec::new() };
        let (config, source, passed_over) = (Config::default(), ConfigSource::Default, Vec::new());
        let plan = Plan { config, source, body, passed_over, tally: None, numbers: Box::default() };
        for now in [3, 8] {
            device.counters().launches.store(now, Ordering::Relaxed);
            run(&KEEP, &device, None, &plan, &[]).unwrap();
            assert_eq!(kernel.launched(), now);
        }
    }

    #[test]
    fn tensors_and_streams_are_on_the_device_of_the_launch() {
        // Of no elements, so that nothing has to be built.
        let mut x = Tensor::zeros(&Device::cpu(), DType::F32, [0]).unwrap();
        let prepared = KEEP.prepare(&Device::cpu(), args!(&mut x)).unwrap();
        let stream = Device::absent(3).default_stream();
        assert_eq!(
            prepared.launch_on(&stream, args!(&mut x)).unwrap_err().to_string(),
            "error[ATL614]: the stream belongs to cuda:3, but the launch is on cpu"
        );
        assert_eq!(
            KEEP.launch_on(&stream, args!(&mut x)).unwrap_err().to_string(),
            "error[ATL611]: `x` of `keep` is on cpu, but the launch is on cuda:3; copy it with `to_device`"
        );
    }
}
