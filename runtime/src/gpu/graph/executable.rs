//! Recorded work that the driver runs again as a whole.

use super::recorded::RecordedGraph;
use crate::error::Result;
use crate::gpu::context::Context;
use crate::gpu::current::Handle;
use std::ffi::c_uint;
use std::sync::Arc;

/// `CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE`: the graph differs from the executable one in more than an update may change.
const UPDATE_FAILURE: c_uint = 910;

/// A recorded piece of work that is ready to run.
pub(crate) struct ExecutableGraph {
    context: Arc<Context>,
    handle: Handle,
}

// SAFETY: the handle of an executable graph may be used from any thread, by one at a time. What uses it takes `&mut self`.
unsafe impl Send for ExecutableGraph {}

impl ExecutableGraph {
    /// Makes a recorded piece of work ready to run.
    pub(crate) fn new(recorded: &RecordedGraph) -> Result<ExecutableGraph> {
        let context = &recorded.context;
        let api = context.enter()?;
        let mut handle = std::ptr::null_mut();
        // SAFETY: out-pointer to a live handle; a live graph; no flags.
        let status = unsafe { (api.graph_instantiate)(&mut handle, recorded.handle, 0) };
        context.check("cuGraphInstantiate", status)?;
        Ok(ExecutableGraph { context: context.clone(), handle })
    }

    /// Makes it run other work from now on. In place if the driver can do that, which it can for the same kernels with other
    /// arguments and other grids.
    pub(crate) fn update(&mut self, recorded: &RecordedGraph) -> Result<()> {
        let api = self.context.enter()?;
        let Some(update) = api.graph_update else { return self.replace(recorded) };
        let (mut node, mut reason) = (std::ptr::null_mut(), 0);
        // SAFETY: a live executable graph, a live graph of the same context, and out-pointers to live values.
        match unsafe { update(self.handle, recorded.handle, &mut node, &mut reason) } {
            UPDATE_FAILURE => self.replace(recorded),
            status => self.context.check("cuGraphExecUpdate", status),
        }
    }

    /// Another executable graph in its place. The driver orders the runs of one, and not those of two, which share scratch memory: the
    /// runs of this one are waited for, on all streams that are ordered with the default one.
    fn replace(&mut self, recorded: &RecordedGraph) -> Result<()> {
        let made = ExecutableGraph::new(recorded)?;
        self.context.synchronize(std::ptr::null_mut())?;
        *self = made;
        Ok(())
    }

    /// Queues the work on a stream of the context, behind its own earlier runs.
    ///
    /// # Safety
    /// The stream is live. The kernels of the graph are loaded, and the memory that they access is allocated, until the work has
    /// run.
    pub(crate) unsafe fn launch(&mut self, stream: Handle) -> Result<()> {
        let api = self.context.enter()?;
        // SAFETY: a live executable graph; the caller is responsible for the rest.
        self.context.check("cuGraphLaunch", unsafe { (api.graph_launch)(self.handle, stream) })
    }
}

impl Drop for ExecutableGraph {
    fn drop(&mut self) {
        if let Ok(api) = self.context.enter() {
            // SAFETY: the handle came from `cuGraphInstantiateWithFlags` and is destroyed once. The driver ends a run first.
            unsafe { (api.graph_executable_destroy)(self.handle) };
        }
    }
}
