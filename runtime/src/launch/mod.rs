//! Launches: from arguments to a queued kernel.
//!
//! # The steps of a launch
//! 1. *Words* (`problem_words`). The kernel, the caller's config and all properties of the arguments except addresses
//!    become a few words. If the device has a plan for these words, the properties that may still differ are checked
//!    again (`request`), and step 6 follows. This takes a microsecond or two of host time, without allocation.
//! 2. *Bind* (`bind`). The arguments are checked against the kernel's signature.
//! 3. *Problem* (`problem`). The specialization follows from the bound launch. It is computed once and passed on.
//! 4. *Resolve* (`resolve`). Bundles are searched first, then configs in the order of the room `select`. Each kernel is
//!    loaded from memory, from the store, or compiled. The first one that is not refused and does not spill becomes the
//!    plan.
//! 5. *Keep*. The device keeps the plan under its words.
//! 6. *Queue* (`queue`). The parameters are packed, and the kernel is queued on a stream or runs in the interpreter. If
//!    the driver refuses the kernel only now, the refusal is remembered, and the launch is resolved again.
//!
//! The room may depend on every other room. No room depends on it.
//!
//! | file | holds |
//! |---|---|
//! | `args`, `bind` | the arguments of a launch, and their checks |
//! | `problem`, `problem_words` | a checked launch with its specialization; the words that are the key of its plan |
//! | `choose` | which config runs a launch on its device |
//! | `resolve` | from a problem to a loaded kernel |
//! | `request`, `prepared`, `chain` | one launch; one that is resolved in advance; several, one after the other |
//! | `chain_facts` | what is the same in all launches of a chain |
//! | `workspace`, `chain_workspace` | what the launches of a chain pass to each other, and how it is made |
//! | `recording` | launches that are taken down, to run later |
//! | `graphs` | launches that were recorded, run as one |
//! | `parameters`, `queue` | the parameters of a compiled kernel; the only driver calls that launch |
//! | `interpreter` | launches in the interpreter: natively, on copies of a GPU's tensors, and in f64 |
//! | `raw` | PTX of any origin on plain bytes, for tools |

mod args;
mod bind;
mod chain;
mod chain_facts;
mod chain_workspace;
mod choose;
mod graphs;
mod interpreter;
mod parameters;
mod prepared;
mod problem;
mod problem_words;
mod queue;
mod raw;
mod recording;
mod request;
mod resolve;
mod workspace;

pub use args::{Arg, IntoArg};
pub use bind::{BoundArg, BoundLaunch, MAX_DIM};
pub use chain::{Chain, PreparedChain, Repeated};
pub use choose::{choose, choose_given, refusal};
pub use graphs::{Buckets, Graph, HostState};
pub use interpreter::{OracleOutput, run_f64};
pub use parameters::check_grid;
pub use prepared::PreparedLaunch;
pub use problem::{alignment, launch_strides, specialize};
#[cfg(feature = "sim")]
pub use raw::FormPrograms;
pub use raw::{CompiledLaunch, RawBuffer, RawKernel, RawLaunch, RawParam, TileArg, launch_tile_ir};
pub use workspace::Workspace;

use self::request::LaunchRequest;
use crate::device::{Device, Stream};
use crate::error::Result;
use crate::select::Selection;
use atlas_dsl::{Config, KernelDef};

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

    /// Runs the kernel on a stream. [`Stream::capture`] records it in a [`Graph`], which owns the kernel and the tensors. A CUDA graph
    /// that another library records does not: the device unloads the kernel after many launches of other kernels, so prepare the
    /// launch and keep the [`PreparedLaunch`]. On a stream of another library
    /// ([`Stream::from_raw`]), a kernel that is recorded stays loaded.
    ///
    /// # Errors
    /// As [`Launch::launch`].
    fn launch_on<'a>(&'static self, stream: &Stream, args: impl AsRef<[Arg<'a>]>) -> Result<()>;

    /// Runs the kernel with the caller's config. Tile sizes that it leaves out get their defaults.
    ///
    /// # Errors
    /// As [`Launch::launch`]. A config that does not fit is an error, and no other one is tried.
    fn launch_with<'a>(&'static self, device: &Device, config: &Config, args: impl AsRef<[Arg<'a>]>) -> Result<()>;

    /// Does everything except the launch, so that later launches of this problem only queue. [`Stream::capture`] records only launches
    /// that were prepared or that have run once.
    ///
    /// # Errors
    /// As [`Launch::launch`].
    fn prepare<'a>(&'static self, device: &Device, args: impl AsRef<[Arg<'a>]>) -> Result<PreparedLaunch>;

    /// [`Launch::prepare`] with the caller's config.
    ///
    /// # Errors
    /// As [`Launch::launch_with`].
    fn prepare_with<'a>(
        &'static self,
        device: &Device,
        config: &Config,
        args: impl AsRef<[Arg<'a>]>,
    ) -> Result<PreparedLaunch>;

    /// Only checks the arguments.
    ///
    /// # Errors
    /// `RuntimeError::Launch` if they do not fit the signature.
    fn bind<'a>(&'static self, device: &Device, args: impl AsRef<[Arg<'a>]>) -> Result<BoundLaunch>;

    /// Ranks the configs for this problem, with the reasons.
    ///
    /// # Errors
    /// `RuntimeError::Launch` if the arguments do not fit the signature.
    fn select<'a>(&'static self, device: &Device, args: impl AsRef<[Arg<'a>]>) -> Result<Selection>;
}

impl Launch for KernelDef {
    fn launch<'a>(&'static self, device: &Device, args: impl AsRef<[Arg<'a>]>) -> Result<()> {
        LaunchRequest { def: self, device, config: None, args: args.as_ref() }.launch(None)
    }

    fn launch_on<'a>(&'static self, stream: &Stream, args: impl AsRef<[Arg<'a>]>) -> Result<()> {
        LaunchRequest { def: self, device: stream.device(), config: None, args: args.as_ref() }.launch(Some(stream))
    }

    fn launch_with<'a>(&'static self, device: &Device, config: &Config, args: impl AsRef<[Arg<'a>]>) -> Result<()> {
        LaunchRequest { def: self, device, config: Some(config), args: args.as_ref() }.launch(None)
    }

    fn prepare<'a>(&'static self, device: &Device, args: impl AsRef<[Arg<'a>]>) -> Result<PreparedLaunch> {
        PreparedLaunch::new(LaunchRequest { def: self, device, config: None, args: args.as_ref() })
    }

    fn prepare_with<'a>(
        &'static self,
        device: &Device,
        config: &Config,
        args: impl AsRef<[Arg<'a>]>,
    ) -> Result<PreparedLaunch> {
        PreparedLaunch::new(LaunchRequest { def: self, device, config: Some(config), args: args.as_ref() })
    }

    fn bind<'a>(&'static self, device: &Device, args: impl AsRef<[Arg<'a>]>) -> Result<BoundLaunch> {
        BoundLaunch::new(self, device, args.as_ref())
    }

    fn select<'a>(&'static self, device: &Device, args: impl AsRef<[Arg<'a>]>) -> Result<Selection> {
        choose(&BoundLaunch::new(self, device, args.as_ref())?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args;
    use crate::device::{GpuLaunch, KernelLaunch, LaunchBody, LaunchPlan};
    use crate::gpu::LoadedKernel;
    use crate::select::ConfigSource;
    use crate::tensor::Tensor;
    use atlas_dsl::def::{DTypeRef, DimDef, ParamDef};
    use atlas_dsl::ir::Access;
    use atlas_dsl::{DType, Diagnostics};
    use std::sync::Arc;

    pub(super) static KEEP: KernelDef = KernelDef {
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

    pub(super) static NOTHING: KernelDef = KernelDef {
        name: "nothing",
        doc: "",
        file: "",
        types: &[],
        dims: &[],
        params: &[],
        tune: &[],
        grid: &[],
        requires: &[],
        build: &|_, _| Err(Diagnostics::default()),
        refused: None,
    };

    /// A plan for a GPU that is not there.
    pub(super) fn plan_of(kernel: Arc<LoadedKernel>) -> LaunchPlan {
        let body = LaunchBody::Gpu(GpuLaunch::of(KernelLaunch::plain(kernel)));
        let (config, source, passed_over) = (Config::default(), ConfigSource::Default, Vec::new());
        LaunchPlan { config, source, body, passed_over, tally: None, numbers: Box::default() }
    }

    #[test]
    fn tensors_and_streams_are_on_the_device_of_the_launch() {
        // It has no elements, so nothing has to be built.
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
