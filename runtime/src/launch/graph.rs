//! A launch that a CUDA graph repeats: recorded once, run as one piece of work.

use super::args::Arg;
use super::prepared::PreparedLaunch;
use crate::device::{Backend, Stream};
use crate::error::{DeviceError, Result};
use crate::gpu::ExecutableGraph;
use std::marker::PhantomData;

/// Several launches of one kernel with the same arguments in a CUDA graph.
///
/// It keeps the kernel loaded and borrows the arguments, so both are there whenever it runs. Scratch memory, for split programs or
/// packed operands, is its own.
pub struct LaunchGraph<'a> {
    graph: ExecutableGraph,
    stream: Stream,
    /// Keeps the scratch memory of the launches.
    _recording: Stream,
    /// Keeps the kernel loaded.
    _launch: PreparedLaunch,
    _args: PhantomData<Arg<'a>>,
}

impl PreparedLaunch {
    /// Records `count` launches with these arguments in a CUDA graph. Nothing runs.
    ///
    /// # Errors
    /// As [`PreparedLaunch::launch`]; [`DeviceError::NoGraphs`] on a device other than a GPU; driver errors, such as one for
    /// another stream of this thread that records.
    pub fn repeated<'a>(&self, count: u32, args: impl AsRef<[Arg<'a>]>) -> Result<LaunchGraph<'a>> {
        let args = args.as_ref();
        self.check(args)?;
        let device = self.device();
        let Backend::Cuda(context) = device.backend() else {
            return Err(DeviceError::NoGraphs { device: device.to_string() }.into());
        };
        // The default stream cannot record.
        let stream = Stream::new(device)?;
        // Its launches follow each other, so they share scratch memory. It is allocated now, because the graph must not do it.
        let recording = stream.to_record(context, self.scratch())?;
        let launch = || (0..count).try_for_each(|_| self.queue_checked(Some(&recording), args));
        let graph = ExecutableGraph::record(context, stream.as_raw(), launch)?;
        Ok(LaunchGraph { graph, stream, _recording: recording, _launch: self.clone(), _args: PhantomData })
    }
}

impl LaunchGraph<'_> {
    /// The stream on which the graph runs. It is ordered with the default stream.
    pub fn stream(&self) -> &Stream {
        &self.stream
    }

    /// Queues all launches of the graph on its stream.
    ///
    /// # Errors
    /// Driver errors.
    pub fn launch(&mut self) -> Result<()> {
        // SAFETY: the stream lives in this value, as do the kernel and its scratch memory. The arguments are borrowed as long as this value lives, and it
        // waits for its stream before it goes.
        unsafe { self.graph.launch(self.stream.as_raw()) }
    }
}

impl Drop for LaunchGraph<'_> {
    fn drop(&mut self) {
        // A fault of a launch is reported by the next call that waits for the device.
        let _ = self.stream.synchronize();
    }
}
