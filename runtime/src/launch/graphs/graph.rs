//! Graphs: launches that are recorded once, and run again as one.

use super::conditional::run_steps;
use super::cuda_graph::CudaGraph;
use crate::device::{Backend, Device, Stream};
use crate::error::{LaunchError, Result};
use crate::launch::recording::{RecordedStep, record, recording_of};
use crate::tensor::Tensor;
use std::fmt;
use std::sync::atomic::Ordering;

/// Launches that were recorded by [`Stream::capture`] and run again as one, in their order.
///
/// On a GPU it is a CUDA graph: the host queues all launches by one call of the driver. Elsewhere, and on a GPU where the CPU runs one of
/// the launches ([`Device::set_cpu_fallback`]), it launches them one by one.
///
/// # What it owns
/// The loaded kernels, the scratch memory of the launches, and a clone of each tensor, which shares the memory of the caller's. So it
/// can be launched after everything else is dropped, the device included, and after the device has evicted the kernels. Tensors of
/// [`Tensor::from_foreign`] keep their owners. For those of
/// [`Tensor::from_raw_parts`] the caller's promise includes the graph.
///
/// # What it reads and writes
/// Each launch of the graph reads and writes the memory of the recorded tensors, as any launch on that stream would, although it
/// borrows none of them. So write new inputs to these tensors before, and read results from them afterwards. Other work on the same
/// memory is ordered by streams: work on the same stream and on the default stream is, and so is what waits for the device, such as
/// [`Tensor::to_vec`] and [`Tensor::copy_from`]. On the CPU each launch locks its
/// tensors while it runs. Two runs of one CUDA graph never overlap; launches that run one by one are ordered as launches are, and two graphs that share tensors or a workspace race on two streams, as
/// two launches would.
///
/// Numbers are recorded as they were. [`Graph::update`] replaces tensors and numbers.
pub struct Graph {
    device: Device,
    /// `None` if the launches run one by one. It goes before what its launches need.
    cuda: Option<CudaGraph>,
    steps: Vec<RecordedStep>,
    /// How many launches these are.
    count: usize,
    /// Whether it has run, since the device was last waited for, on a stream of the caller, with which nothing is ordered.
    ran_on_raw: bool,
    /// Whether it is a part of a graph that another library recorded. That knows no owner, so what this one has stays for good.
    is_recorded: bool,
}

impl Stream {
    /// Records what a closure launches on the stream that it is given, and runs none of it. The result can be launched on any
    /// stream of the device.
    ///
    /// ```text
    /// step.prepare(&device, args!(x, &mut y))?;
    /// let mut graph = stream.capture(|recording| step.launch_on(recording, args!(x, &mut y)))?;
    /// graph.launch(&stream)?;
    /// ```
    ///
    /// - Launches of kernels, of [`Chain`](crate::Chain)s, of ops and of other graphs are recorded. What else the closure does is done at
    ///   once: it may allocate, prepare, and write tensors. Reading a tensor gives what stood there before.
    /// - Launches on the default stream of the device are recorded too, since those are ordered with the launches of every stream. So are
    ///   those of ops that take no stream.
    /// - State of an op that lives on the host, such as the place of a stream of tokens, moves while the closure runs, and not when the
    ///   graph does.
    /// - Work that other libraries queue on the raw handle of the stream is not recorded.
    ///
    /// # Errors
    /// Those of the closure, and of its launches:
    /// - [`LaunchError::RecordedUnprepared`] for a launch that was not prepared: nothing is compiled for it. Call its `prepare` before,
    ///   or launch it once.
    /// - [`LaunchError::NotRecorded`] for a launch of this thread on another stream of the device.
    ///
    /// Driver errors. Nothing is left recording after an error or a panic.
    pub fn capture(&self, closure: impl FnOnce(&Stream) -> Result<()>) -> Result<Graph> {
        let mut steps = record(self, closure)?;
        let device = self.device().clone();
        let cuda = CudaGraph::new(&device, &mut steps)?;
        let count = RecordedStep::count(&steps);
        Ok(Graph { device, cuda, steps, count, ran_on_raw: false, is_recorded: false })
    }
}

impl Graph {
    /// Queues all launches on a stream, behind the earlier runs of this graph. On a stream that records, they become launches of the
    /// graph that it records.
    ///
    /// On a stream that another library records, the launches are queued one by one, and become a part of that recording.
    ///
    /// # Errors
    /// [`LaunchError::WrongStream`] for a stream of another device; [`LaunchError::GraphRecorded`] for a graph with conditions on a stream
    /// that another library records; driver errors. If launches run one by one, also those of each
    /// launch; earlier ones have run then.
    pub fn launch(&mut self, stream: &Stream) -> Result<()> {
        if *stream.device() != self.device {
            let (found, wanted) = stream.device().beside(&self.device);
            return Err(LaunchError::WrongStream { found, wanted }.into());
        }
        let Some(name) = RecordedStep::launch_mut(&mut self.steps, 0).map(|first| first.def.name) else {
            return Ok(());
        };
        if let Some(recording) = recording_of(name, &self.device, Some(stream))? {
            return recording.extend(name, &self.steps);
        }
        if !stream.is_default() && stream.is_recorded_by_driver()? {
            // The driver would end that recording if it were given a graph.
            if self.has_blocks() {
                return Err(LaunchError::GraphRecorded {}.into());
            }
            self.is_recorded = true;
            return run_steps(&mut self.steps, stream);
        }
        self.ran_on_raw |= stream.is_raw();
        let Some(cuda) = &mut self.cuda else {
            return run_steps(&mut self.steps, stream);
        };
        let (counters, count) = (self.device.counters(), self.count as u64);
        counters.launches.fetch_add(count, Ordering::Relaxed);
        counters.warm.fetch_add(count, Ordering::Relaxed);
        RecordedStep::each(&self.steps, &mut |launch| launch.note(&self.device));
        // SAFETY: `steps` are those of `cuda` and have its kernels and tensors. They are dropped after it, and only when a stream
        // that is ordered with no other has been waited for; kernels wait for the device before they are unloaded.
        unsafe { cuda.launch(stream) }
    }

    /// Records other launches, which take the place of these: the same with other tensors or numbers, or different ones.
    ///
    /// It is made for the same launches on tensors of the same shapes. Then the driver updates the graph in place, which takes a few
    /// microseconds a launch. Otherwise the driver makes a new graph. Runs that are queued already are not affected.
    ///
    /// # Errors
    /// As [`Stream::capture`]. The graph does what it did then; after an error of the driver, launch by launch.
    pub fn update(&mut self, closure: impl FnOnce(&Stream) -> Result<()>) -> Result<()> {
        let mut steps = record(&self.device.default_stream(), closure)?;
        self.wait_for_raw()?;
        self.give_up();
        // If this fails, the launches that stay run one by one.
        self.cuda = match self.cuda.take() {
            Some(cuda) => cuda.updated(&self.device, &mut steps)?,
            None => CudaGraph::new(&self.device, &mut steps)?,
        };
        self.count = RecordedStep::count(&steps);
        self.steps = steps;
        Ok(())
    }

    /// Whether a number in memory decides on a part of it.
    fn has_blocks(&self) -> bool {
        self.steps.iter().any(|step| matches!(step, RecordedStep::Block(_)))
    }

    /// Waits until what is dropped next is in use on no stream of the caller. Memory is freed in the order of the default stream, with
    /// which the streams of this crate are ordered.
    fn wait_for_raw(&mut self) -> Result<()> {
        if self.ran_on_raw {
            self.device.synchronize()?;
        }
        self.ran_on_raw = false;
        Ok(())
    }

    /// Leaves what a graph of another library uses to it.
    fn give_up(&mut self) {
        if std::mem::take(&mut self.is_recorded) {
            std::mem::forget((self.cuda.take(), self.steps.clone()));
        }
    }

    /// The device.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// The number of launches that were recorded. How often those behind a condition run is known when the graph does.
    pub fn len(&self) -> usize {
        self.count
    }

    /// The tensors of its launches, in the order of the launches and of their arguments, and conditions where they are read. One that
    /// several launches have comes several times.
    pub fn tensors(&self) -> impl Iterator<Item = &Tensor> {
        RecordedStep::tensors(&self.steps).into_iter()
    }

    /// Whether nothing was launched while it was recorded.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        // A fault of a launch is reported by the next call that waits for the device.
        let _ = self.wait_for_raw();
        self.give_up();
        // The driver ends a recording of this thread that meanwhile destroys a graph, also one of another library.
        let context = match self.device.backend() {
            Backend::Cuda(context) => context.relaxed().ok(),
            Backend::Cpu | Backend::Virtual(_) => None,
        };
        self.cuda = None;
        drop(context);
    }
}

impl fmt::Debug for Graph {
    /// `Graph(12 launches on cpu)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Graph({} launches on {})", self.count, self.device.id())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compile::KernelKey;
    use crate::gpu::LoadedKernel;
    use crate::launch::Launch;
    use crate::launch::problem_words::ProblemWords;
    use crate::launch::tests::{NOTHING, plan_of};
    use std::sync::{Arc, Weak};

    /// A device that has a plan for `nothing`, and the kernel of that plan, which only the device holds.
    fn prepared() -> (Device, Weak<LoadedKernel>) {
        let device = Device::absent(0);
        let kernel = device.plans().keep_loaded(Arc::new(LoadedKernel::idle(KernelKey([1; 32]))), 0);
        let (seen, plan) = (Arc::downgrade(&kernel), plan_of(kernel));
        let plans = device.plans();
        plans.keep(ProblemWords::new(&NOTHING, None, &[]).as_slice(), &Arc::new(plan), plans.generation());
        (device, seen)
    }

    #[test]
    fn the_graph_is_what_keeps_an_evicted_kernel() {
        for has_graph in [false, true] {
            let (device, kernel) = prepared();
            let stream = device.default_stream();
            let graph = has_graph.then(|| stream.capture(|recording| NOTHING.launch_on(recording, [])).unwrap());
            device.plans().refuse(&KernelKey([1; 32]), "as if it had been evicted");
            assert_eq!(kernel.upgrade().is_some(), has_graph);
            if let Some(mut graph) = graph {
                graph.launch(&stream).unwrap();
                assert_eq!(kernel.upgrade().map(|kernel| kernel.launched()), Some(1));
                graph.update(|_| Ok(())).unwrap();
                assert!(kernel.upgrade().is_none());
            }
        }
    }
}
