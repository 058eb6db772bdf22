//! Launch plans: what a launch of one exact problem does, resolved once.

use crate::compile::KernelKey;
use crate::error::RuntimeError;
use crate::gpu::{BoundMap, LoadedKernel, ScratchBytes};
use crate::records::sizes::Tally;
use crate::select::ConfigSource;
use atlas_dsl::{Config, DType, Kernel, Verified};
use std::ops::Range;
use std::sync::Arc;

/// A config that was refused, or passed over for a better one, and the reason.
pub(crate) type PassedOver = (Config, String);

/// What a launch of one exact problem does.
pub(crate) struct LaunchPlan {
    pub(crate) config: Config,
    pub(crate) source: ConfigSource,
    pub(crate) body: LaunchBody,
    /// The configs that ranked before this one.
    pub(crate) passed_over: Vec<PassedOver>,
    /// The count of its launches, if sizes are recorded.
    pub(crate) tally: Option<Arc<Tally>>,
    /// The parameters that are numbers, with their types. Each launch passes its own values, which must fit.
    pub(crate) numbers: Box<[(usize, DType)]>,
}

/// The body of a launch.
pub(crate) enum LaunchBody {
    /// An empty launch.
    Empty,
    /// Tile IR for the interpreter.
    Cpu { kernel: Arc<Verified<Kernel>>, dims: Vec<u64> },
    /// Loaded kernels.
    Gpu(GpuLaunch),
}

/// The kernels of a launch on a GPU.
pub(crate) struct GpuLaunch {
    /// The kernel.
    pub(crate) main: KernelLaunch,
    /// What runs before it, to fill the workspaces.
    pub(crate) packers: Vec<KernelLaunch>,
    /// The scratch memory that they need.
    pub(crate) scratch: Option<ScratchBytes>,
}

/// A loaded kernel, with its grid, the recipe for its parameters, and its tensor maps.
pub(crate) struct KernelLaunch {
    pub(crate) kernel: Arc<LoadedKernel>,
    pub(crate) grid: u32,
    pub(crate) params: Vec<LaunchParam>,
    pub(crate) maps: Vec<BoundMap>,
    /// The byte ranges of the workspaces that it writes, from the first one's beginning.
    pub(crate) fills: Vec<Range<u64>>,
}

impl GpuLaunch {
    /// All kernels, in the order in which they run.
    pub(crate) fn kernels(&self) -> impl Iterator<Item = &KernelLaunch> {
        self.packers.iter().chain([&self.main])
    }
}

impl LaunchPlan {
    /// The kernel to mark as refused after a failed launch, if another config may work: the driver refused it before it
    /// ran, and the caller did not ask for it.
    pub(crate) fn refused_by(&self, error: &RuntimeError) -> Option<(KernelKey, String)> {
        match (&self.body, error) {
            (LaunchBody::Gpu(gpu), RuntimeError::Driver(e)) if e.refuses() && self.source != ConfigSource::Given => {
                Some((gpu.main.kernel.key, e.to_string()))
            }
            _ => None,
        }
    }
}

impl LaunchBody {
    /// Bytes of local memory per thread: more than 0 if registers of the kernel spill.
    pub(crate) fn local_bytes(&self) -> u32 {
        match self {
            LaunchBody::Gpu(gpu) => gpu.kernels().map(|launch| launch.kernel.facts.local_bytes).max().unwrap_or(0),
            LaunchBody::Empty | LaunchBody::Cpu { .. } => 0,
        }
    }
}

/// One parameter of the `.entry`, as far as the plan knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LaunchParam {
    /// A known value: a size, a stride or a count.
    Bits(u64),
    /// The address of a tensor.
    Address(LaunchTensor),
    /// The number that is passed as an argument.
    Number(usize, DType),
    /// The tensor map of this number, and the tensor that it is of.
    Map(u8, LaunchTensor),
    /// The address of the arrivals of the launch.
    Arrivals,
    /// The address of its partial tiles.
    Partials,
}

#[cfg(test)]
impl GpuLaunch {
    /// A launch of one kernel.
    pub(crate) fn of(main: KernelLaunch) -> GpuLaunch {
        GpuLaunch { main, packers: Vec::new(), scratch: None }
    }
}

#[cfg(test)]
impl KernelLaunch {
    /// A launch of a kernel without parameters.
    pub(crate) fn plain(kernel: Arc<LoadedKernel>) -> KernelLaunch {
        KernelLaunch { kernel, grid: 1, params: Vec::new(), maps: Vec::new(), fills: Vec::new() }
    }
}

/// A tensor of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LaunchTensor {
    /// The argument with this number.
    Argument(usize),
    /// The workspace that begins at this byte, from the first one's beginning.
    Workspace(u64),
}
