//! Whether launches run or are only made ready: what takes several launches goes over them twice, and the first pass refuses.

use atlas_dsl::{DType, KernelDef};
use atlas_runtime::{Arg, Chain, Device, Launch, LaunchError, Result, Stream, Tensor, Workspace};

/// What a pass over launches does with each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pass {
    /// Checks its arguments and finds or compiles its kernel. It writes nothing.
    Prepare,
    /// Runs it.
    Run,
}

impl Pass {
    /// In this order nothing is written where any launch is refused.
    pub(crate) const BOTH: [Pass; 2] = [Pass::Prepare, Pass::Run];

    /// A launch on the default stream of a device.
    pub(crate) fn launch<'a>(
        self,
        kernel: &'static KernelDef,
        device: &Device,
        args: impl AsRef<[Arg<'a>]>,
    ) -> Result<()> {
        match self {
            Pass::Prepare => kernel.prepare(device, args).map(drop),
            Pass::Run => kernel.launch(device, args),
        }
    }

    /// A launch on a stream.
    pub(crate) fn launch_on<'a>(
        self,
        kernel: &'static KernelDef,
        stream: &Stream,
        args: impl AsRef<[Arg<'a>]>,
    ) -> Result<()> {
        match self {
            Pass::Prepare => kernel.prepare(stream.device(), args).map(drop),
            Pass::Run => kernel.launch_on(stream, args),
        }
    }

    /// The launches of a chain on a stream.
    pub(crate) fn chain_on<'a>(
        self,
        chain: &'static Chain,
        stream: &Stream,
        args: impl AsMut<[Arg<'a>]>,
        workspace: &mut Workspace,
    ) -> Result<()> {
        match self {
            Pass::Prepare => chain.prepare(stream.device(), args, workspace).map(drop),
            Pass::Run => chain.launch_on(stream, args, workspace),
        }
    }
}

/// Fails unless a tensor is on this device, and has this element type and these sizes of dims that are written as `[B, T, H]`.
pub(crate) fn check_tensor(
    kernel: &'static str,
    (param, tensor): (&'static str, &Tensor),
    (device, dtype): (&Device, DType),
    (dims, wanted): (&'static str, &[usize]),
) -> Result<()> {
    if tensor.device() != device {
        let (found, wanted) = tensor.device().beside(device);
        return Err(LaunchError::WrongDevice { kernel, param, found, wanted }.into());
    }
    let shape = tensor.shape().to_vec();
    if shape.len() != wanted.len() {
        return Err(LaunchError::WrongRank { kernel, param, shape, dims: dims.to_owned() }.into());
    }
    if shape != wanted {
        return Err(LaunchError::WrongShape { kernel, param, shape, dims, wanted: wanted.to_vec() }.into());
    }
    if tensor.dtype() != dtype {
        return Err(LaunchError::WrongDType { kernel, param, found: tensor.dtype(), wanted: dtype }.into());
    }
    Ok(())
}

/// The number of tokens of the first tensor, whose dims are `[B, T, H, D]`.
pub(crate) fn tokens_of(kernel: &'static str, (param, tensor): (&'static str, &Tensor)) -> Result<usize> {
    match *tensor.shape() {
        [_, count, _, _] => Ok(count),
        _ => {
            let (shape, dims) = (tensor.shape().to_vec(), "[B, T, H, D]".to_owned());
            Err(LaunchError::WrongRank { kernel, param, shape, dims }.into())
        }
    }
}

/// Fails if what one launch writes shares memory with what another one reads or writes, which no launch alone can see.
pub(crate) fn check_apart(
    kernel: &'static str,
    (output, written): (&'static str, &Tensor),
    (other, tensor): (&'static str, &Tensor),
) -> Result<()> {
    // Most tensors are far apart, so the check costs two comparisons.
    let (range, beside) = (written.address_range(), tensor.address_range());
    if range.start < beside.end && beside.start < range.end && written.shares_memory_with(tensor) {
        return Err(LaunchError::Overlap { kernel, output, other }.into());
    }
    Ok(())
}

/// Whether two tensors are the same elements of one memory.
pub(crate) fn is_same_view(a: &Tensor, b: &Tensor) -> bool {
    a.address() == b.address() && a.shape() == b.shape() && a.strides() == b.strides() && a.dtype() == b.dtype()
}
