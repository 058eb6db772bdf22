//! Recorded launches as a CUDA graph of the driver.

use super::recording::RecordedLaunch;
use super::replay::replan;
use crate::device::{Backend, Device, Stream};
use crate::error::Result;
use crate::gpu::{Context, ExecutableGraph, RecordedGraph, Scratch, ScratchBytes};
use std::sync::Arc;

/// A graph of the driver. Whoever has it keeps the kernels and the tensors of its launches.
pub(super) struct CudaGraph {
    graph: ExecutableGraph,
    context: Arc<Context>,
    /// The stream on which the driver records.
    stream: Stream,
    /// Of all launches, which follow each other. The runs of one executable graph do, too, on whatever streams.
    scratch: GraphScratch,
}

/// Scratch memory that a graph keeps.
struct GraphScratch {
    context: Arc<Context>,
    scratch: Scratch,
}

impl GraphScratch {
    /// Makes room for launches that need this much. Nothing that uses the memory is running then, or all of it is on streams that are
    /// ordered with the default one.
    fn reserve(&mut self, need: ScratchBytes) -> Result<()> {
        if self.scratch.addresses(need).is_some() {
            return Ok(());
        }
        let (context, null) = (&self.context, std::ptr::null_mut());
        let scratch = Scratch::alloc(context, null, need)?;
        std::mem::replace(&mut self.scratch, scratch).free(context, null);
        // The first run may be on a stream that is ordered with no other.
        context.synchronize(null)
    }
}

impl Drop for GraphScratch {
    fn drop(&mut self) {
        self.scratch.free(&self.context, std::ptr::null_mut());
    }
}

impl CudaGraph {
    /// A graph of these launches; `None` where the driver cannot run all of them.
    pub(super) fn new(device: &Device, launches: &mut [RecordedLaunch]) -> Result<Option<CudaGraph>> {
        let Backend::Cuda(context) = device.backend() else { return Ok(None) };
        if launches.is_empty() {
            return Ok(None);
        }
        let stream = Stream::to_record_on(device)?;
        let mut scratch = GraphScratch { context: context.clone(), scratch: Scratch::default() };
        let Some(recorded) = record(device, context, &stream, &mut scratch, launches)? else { return Ok(None) };
        let graph = ExecutableGraph::new(&recorded)?;
        Ok(Some(CudaGraph { graph, context: context.clone(), stream, scratch }))
    }

    /// The same graph with these launches instead; `None` where the driver cannot run all of them.
    pub(super) fn updated(mut self, device: &Device, launches: &mut [RecordedLaunch]) -> Result<Option<CudaGraph>> {
        let CudaGraph { graph, context, stream, scratch } = &mut self;
        let Some(recorded) = record(device, context, stream, scratch, launches)? else { return Ok(None) };
        graph.update(&recorded)?;
        Ok(Some(self))
    }

    /// Queues all launches on a stream of the device.
    ///
    /// # Safety
    /// The kernels of the launches are loaded, and the memory of their tensors is allocated, until they have run. So is this value, or
    /// the stream is ordered with the default one.
    pub(super) unsafe fn launch(&mut self, stream: &Stream) -> Result<()> {
        // SAFETY: the stream is borrowed, the scratch memory is freed in the order of the default stream, and the caller is responsible
        // for the rest.
        unsafe { self.graph.launch(stream.as_raw()) }
    }
}

/// Has the driver record launches on a stream. Of a launch that it refuses, the next config is tried. Each refusal is remembered, so this ends.
fn record(
    device: &Device,
    context: &Arc<Context>,
    stream: &Stream,
    scratch: &mut GraphScratch,
    launches: &mut [RecordedLaunch],
) -> Result<Option<RecordedGraph>> {
    loop {
        if !launches.iter().all(RecordedLaunch::is_for_driver) {
            return Ok(None);
        }
        scratch
            .reserve(launches.iter().map(RecordedLaunch::scratch).fold(ScratchBytes::default(), ScratchBytes::most))?;
        let mut at = 0;
        let recorded = RecordedGraph::record(context, stream.as_raw(), || {
            launches.iter_mut().enumerate().try_for_each(|(i, launch)| {
                at = i;
                launch.queue(context, stream.as_raw(), &scratch.scratch)
            })
        });
        match recorded {
            Ok(recorded) => return Ok(Some(recorded)),
            Err(e) => replan(&mut launches[at], device, e)?,
        }
    }
}
