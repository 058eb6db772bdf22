//! Prepared launches: resolved once, launched many times.

use super::args::Arg;
use super::request::{LaunchRequest, PlanFound};
use crate::device::{Device, LaunchBody, LaunchPlan, Stream};
use crate::error::{LaunchError, Result};
use crate::gpu::{LaunchFacts, LoadedCode, LoadedKernel};
use crate::select::ConfigSource;
use atlas_codegen::KernelImage;
use atlas_dsl::{Config, KernelDef};
use std::sync::Arc;

/// A resolved launch of one exact problem: shapes, strides, types, alignments and config are fixed, while addresses and
/// numbers are given at each launch.
///
/// It keeps its kernel loaded, as does a [`Graph`](super::Graph) that recorded its launches ([`Stream::capture`]). A CUDA graph that
/// another library records on a stream of [`Stream::from_raw`] does not, so keep this value for as long as that graph is launched.
#[derive(Clone)]
pub struct PreparedLaunch {
    def: &'static KernelDef,
    device: Device,
    config: Option<Config>,
    words: Box<[u64]>,
    plan: Arc<LaunchPlan>,
}

impl PreparedLaunch {
    /// Resolves a launch.
    pub(super) fn new(request: LaunchRequest<'_>) -> Result<PreparedLaunch> {
        let words = request.words();
        let plan = request.plan_ahead(words.as_slice())?.plan;
        let LaunchRequest { def, device, config, .. } = request;
        Ok(PreparedLaunch {
            def,
            device: device.clone(),
            config: config.cloned(),
            words: words.as_slice().into(),
            plan,
        })
    }

    /// Queues the launch on the device's default stream.
    ///
    /// # Errors
    /// [`LaunchError::NotPrepared`] if the arguments belong to another problem; aliasing and driver errors.
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
    pub(super) fn check_stream(&self, stream: &Stream) -> Result<()> {
        if *stream.device() != self.device {
            let (found, wanted) = stream.device().beside(&self.device);
            return Err(LaunchError::WrongStream { found, wanted }.into());
        }
        Ok(())
    }

    /// The kernel.
    pub fn def(&self) -> &'static KernelDef {
        self.def
    }

    /// The device.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// The launch of this problem with these arguments.
    fn request<'a>(&'a self, args: &'a [Arg<'a>]) -> LaunchRequest<'a> {
        LaunchRequest { def: self.def, device: &self.device, config: self.config.as_ref(), args }
    }

    /// Refuses arguments of another problem or on another device, numbers that do not fit, and tensors that overlap.
    pub(super) fn check(&self, args: &[Arg<'_>]) -> Result<()> {
        let request = self.request(args);
        if request.words().as_slice() != &*self.words {
            return Err(LaunchError::NotPrepared { kernel: self.def.name }.into());
        }
        request.check_again(&self.plan)
    }

    fn queue(&self, stream: Option<&Stream>, args: &[Arg<'_>]) -> Result<()> {
        self.check(args)?;
        self.queue_checked(stream, args)
    }

    /// Queues a launch with arguments that [`PreparedLaunch::check`] has accepted.
    pub(super) fn queue_checked(&self, stream: Option<&Stream>, args: &[Arg<'_>]) -> Result<()> {
        self.request(args).queue(stream, &PlanFound { plan: self.plan.clone(), was_kept: true })
    }

    /// The config that was chosen or given.
    pub fn config(&self) -> &Config {
        &self.plan.config
    }

    /// Configs that ranked before this one, but were refused or spill, each with its reason.
    pub fn passed_over(&self) -> &[(Config, String)] {
        &self.plan.passed_over
    }

    /// How the config was chosen.
    pub fn source(&self) -> ConfigSource {
        self.plan.source
    }

    /// The resources of the kernel as the driver reports them; `None` without a driver and for an empty launch.
    pub fn facts(&self) -> Option<LaunchFacts> {
        self.loaded().filter(|k| matches!(k.code, LoadedCode::Driver(_))).map(|k| k.facts)
    }

    /// The compiled kernel; `None` on the CPU and for an empty launch.
    pub fn image(&self) -> Option<&KernelImage> {
        self.loaded().map(|k| &*k.image)
    }

    fn loaded(&self) -> Option<&LoadedKernel> {
        match &self.plan.body {
            LaunchBody::Gpu(gpu) => Some(&gpu.main.kernel),
            LaunchBody::Cpu { .. } | LaunchBody::Empty => None,
        }
    }
}
