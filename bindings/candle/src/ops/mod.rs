//! The operations: what they launch, and their gradients.

pub(crate) mod attention;
pub(crate) mod memory_read;
pub(crate) mod newton_schulz;
pub(crate) mod omega;
pub(crate) mod rms_norm;
pub(crate) mod rotary;
pub(crate) mod softmax;

use atlas::device::Stream;
use atlas::kernel::{Arg, Chain};
use candle_core::{Error, Result, Tensor};

/// Launches a chain with a workspace of its own, which is allocated and freed in the order of the stream.
fn launch_chain(chain: &Chain, stream: &Stream, args: &mut [Arg<'_>], sizes: &[(&str, usize)]) -> atlas::Result<()> {
    // SAFETY: the launches below are on this stream, and it is dropped before this returns.
    let mut space = unsafe { chain.workspace_on(stream, args, sizes) }?;
    chain.launch_on(stream, args, &mut space)
}

/// The results of an operation that has so many.
fn exactly<const N: usize>(results: Vec<Tensor>) -> Result<[Tensor; N]> {
    let found = results.len();
    results.try_into().map_err(|_| Error::msg(format_args!("an operation has {found} results, and {N} were expected")))
}
