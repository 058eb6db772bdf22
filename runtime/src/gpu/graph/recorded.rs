//! Work that a stream records instead of running it.

use crate::error::Result;
use crate::gpu::context::Context;
use crate::gpu::current::Handle;
use std::ffi::c_uint;
use std::sync::Arc;

/// `CU_STREAM_CAPTURE_MODE_THREAD_LOCAL`: while one thread records, the others may do what they want.
pub(super) const THREAD_LOCAL: c_uint = 1;

/// A recorded piece of work.
pub(crate) struct RecordedGraph {
    pub(super) context: Arc<Context>,
    /// Null if the driver gave none.
    pub(super) handle: Handle,
}

impl RecordedGraph {
    /// Records what `work` queues on a stream of the context that this crate made. If `work` fails, the stream records no more,
    /// and the error is that of `work`. It must not wait for the device.
    pub(crate) fn record(
        context: &Arc<Context>,
        stream: Handle,
        work: impl FnOnce() -> Result<()>,
    ) -> Result<RecordedGraph> {
        let _alone = context.begin_recording();
        let api = context.enter()?;
        // SAFETY: a live stream of this context.
        context.check("cuStreamBeginCapture", unsafe { (api.capture_begin)(stream, THREAD_LOCAL) })?;
        let mut capture = Capture { context, stream, is_open: true };
        work()?;
        capture.end()
    }
}

impl Drop for RecordedGraph {
    fn drop(&mut self) {
        if let Ok(api) = self.context.enter()
            && !self.handle.is_null()
        {
            // SAFETY: the handle came from `cuStreamEndCapture` and is destroyed once. What was made of it does not need it.
            unsafe { (api.graph_destroy)(self.handle) };
        }
    }
}

/// Ends what a stream of the context records, and gives the graph. After an error the driver has dropped it.
pub(super) fn end_capture(context: &Context, stream: Handle) -> Result<Handle> {
    let api = context.enter()?;
    let mut handle = std::ptr::null_mut();
    // SAFETY: the stream is live and records; an out-pointer to a live handle.
    let status = unsafe { (api.capture_end)(stream, &mut handle) };
    context.check("cuStreamEndCapture", status)?;
    Ok(handle)
}

/// A stream that records. It stops when this is dropped.
struct Capture<'c> {
    context: &'c Arc<Context>,
    stream: Handle,
    is_open: bool,
}

impl Capture<'_> {
    /// Stops recording.
    fn end(&mut self) -> Result<RecordedGraph> {
        self.is_open = false;
        let handle = end_capture(self.context, self.stream)?;
        Ok(RecordedGraph { context: self.context.clone(), handle })
    }
}

impl Drop for Capture<'_> {
    fn drop(&mut self) {
        if self.is_open {
            // What was recorded is dropped; the error that led here is reported.
            let _ = self.end();
        }
    }
}
