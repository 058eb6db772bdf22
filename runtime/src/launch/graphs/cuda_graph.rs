//! Recorded launches as a CUDA graph of the driver.

use super::replay::replan;
use crate::device::{Backend, Device, Stream};
use crate::error::Result;
use crate::gpu::{ConditionSetter, Context, ExecutableGraph, RecordedGraph, Scratch, ScratchBytes};
use crate::launch::recording::RecordedStep;
use std::sync::Arc;

/// A graph of the driver. Whoever has it keeps the kernels and the tensors of its launches.
pub(super) struct CudaGraph {
    graph: ExecutableGraph,
    parts: GraphParts,
}

/// What recording takes, and a graph keeps.
struct GraphParts {
    context: Arc<Context>,
    /// The streams on which the driver records: one, and one for each depth of blocks in blocks.
    streams: Vec<Stream>,
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
    /// A graph of these steps; `None` where the driver cannot run all of them.
    pub(super) fn new(device: &Device, steps: &mut [RecordedStep]) -> Result<Option<CudaGraph>> {
        let Backend::Cuda(context) = device.backend() else { return Ok(None) };
        if RecordedStep::count(steps) == 0 {
            return Ok(None);
        }
        let scratch = GraphScratch { context: context.clone(), scratch: Scratch::default() };
        let mut parts = GraphParts { context: context.clone(), streams: Vec::new(), scratch };
        let Some(recorded) = parts.record(device, steps)? else { return Ok(None) };
        Ok(Some(CudaGraph { graph: ExecutableGraph::new(&recorded)?, parts }))
    }

    /// The same graph with these steps instead; `None` where the driver cannot run all of them.
    pub(super) fn updated(mut self, device: &Device, steps: &mut [RecordedStep]) -> Result<Option<CudaGraph>> {
        let Some(recorded) = self.parts.record(device, steps)? else { return Ok(None) };
        self.graph.update(&recorded)?;
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

impl GraphParts {
    /// Has the driver record steps. Of a launch that it refuses, the next config is tried. Each refusal is remembered, so this ends.
    fn record(&mut self, device: &Device, steps: &mut [RecordedStep]) -> Result<Option<RecordedGraph>> {
        let depth = depth(steps);
        if depth > 0 && !ConditionSetter::is_there(&self.context)? {
            return Ok(None);
        }
        while self.streams.len() <= depth {
            self.streams.push(Stream::to_record_on(device)?);
        }
        loop {
            let (mut is_for_driver, mut need) = (true, ScratchBytes::default());
            RecordedStep::each(steps, &mut |launch| {
                is_for_driver &= launch.is_for_driver();
                need = need.most(launch.scratch());
            });
            if !is_for_driver {
                return Ok(None);
            }
            self.scratch.reserve(need)?;
            let mut progress = Progress::default();
            let stream = self.streams[0].as_raw();
            let recorded = RecordedGraph::record(&self.context, stream, || self.queue(0, steps, &mut progress));
            match recorded {
                Ok(recorded) => return Ok(Some(recorded)),
                Err(e) => match progress.queues.and_then(|number| RecordedStep::launch_mut(steps, number)) {
                    Some(launch) => replan(launch, device, e)?,
                    None => return Err(e),
                },
            }
        }
    }

    /// Queues steps on the stream of their depth, which records.
    fn queue(&self, depth: usize, steps: &mut [RecordedStep], progress: &mut Progress) -> Result<()> {
        let stream = self.streams[depth].as_raw();
        steps.iter_mut().try_for_each(|step| match step {
            RecordedStep::Launch(launch) => {
                progress.queues = Some(progress.queued);
                launch.queue(&self.context, stream, &self.scratch.scratch)?;
                progress.queues = None;
                progress.queued += 1;
                Ok(())
            }
            RecordedStep::Block(block) => {
                let (inner, number) = (self.streams[depth + 1].as_raw(), block.condition.address());
                ConditionSetter::record(&self.context, (stream, inner), (block.kind, number), || {
                    self.queue(depth + 1, &mut block.steps, progress)
                })
            }
        })
    }
}

/// How far recording has come.
#[derive(Default)]
struct Progress {
    /// How many launches are recorded.
    queued: usize,
    /// The number of the launch that is being recorded. If the driver refuses something else, it is none.
    queues: Option<usize>,
}

/// How deep blocks lie in blocks.
fn depth(steps: &[RecordedStep]) -> usize {
    let of = |step: &RecordedStep| match step {
        RecordedStep::Launch(_) => 0,
        RecordedStep::Block(block) => 1 + depth(&block.steps),
    };
    steps.iter().map(of).max().unwrap_or_default()
}
