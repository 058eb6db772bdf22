//! Streams: queues of launches on one device, and the events that time them.

use super::{Backend, Device};
use crate::error::Result;
use crate::gpu::{Context, Handle, ScratchAddresses, ScratchBytes, StreamScratch};
use std::any::Any;
use std::ffi::{c_uint, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A queue of launches that run in order. Cheap to clone.
///
/// On the CPU and in the simulator every launch has finished when it returns, so a stream is only a name.
#[derive(Clone)]
pub struct Stream {
    device: Device,
    kind: StreamKind,
}

#[derive(Clone)]
enum StreamKind {
    /// The device's default stream, ordered with every stream of this crate.
    Default,
    /// Made by this crate.
    Owned(Arc<OwnedStream>),
    /// The caller's.
    Raw(Arc<RawStream>),
    /// Its launches are recorded and not run.
    Recording(Arc<RecordingStream>),
}

/// A driver handle that threads may share.
#[derive(Clone, Copy)]
struct RawHandle(Handle);

// SAFETY: stream and event handles may be used from any thread.
unsafe impl Send for RawHandle {}
// SAFETY: as above.
unsafe impl Sync for RawHandle {}

struct OwnedStream {
    device: Device,
    handle: RawHandle,
    scratch: StreamScratch,
}

impl Drop for OwnedStream {
    fn drop(&mut self) {
        if let Backend::Cuda(context) = self.device.backend()
            && let Ok(api) = context.enter()
        {
            self.scratch.free(context, self.handle.0);
            // SAFETY: the handle came from `cuStreamCreate` and is destroyed once; queued work still runs.
            unsafe { (api.stream_destroy)(self.handle.0) };
        }
    }
}

/// The caller's stream, as long as some value wraps it. Its handle may name another stream later, so what is kept for it goes with the
/// last of these values.
struct RawStream {
    device: Device,
    handle: RawHandle,
    scratch: StreamScratch,
}

impl Drop for RawStream {
    fn drop(&mut self) {
        if let Backend::Cuda(context) = self.device.backend() {
            self.scratch.free(context, self.handle.0);
        }
    }
}

/// `CU_STREAM_NON_BLOCKING`; without flags, a stream is ordered with the default one.
const NON_BLOCKING: c_uint = 1;

/// A stream that records.
struct RecordingStream {
    /// Where everything goes that is no launch.
    on: Stream,
    /// What takes the launches down. This room knows no launches.
    recorder: Box<dyn Any + Send + Sync>,
    number: u64,
}

impl Device {
    /// The default stream.
    pub fn default_stream(&self) -> Stream {
        Stream::default_of(self)
    }
}

impl Stream {
    /// The device's default stream.
    pub fn default_of(device: &Device) -> Stream {
        Stream { device: device.clone(), kind: StreamKind::Default }
    }

    /// A new stream. Its work is ordered with the default stream's, and runs concurrently with that of other streams.
    ///
    /// # Errors
    /// `RuntimeError::Driver` if the driver cannot create one.
    pub fn new(device: &Device) -> Result<Stream> {
        Stream::create(device, 0)
    }

    /// A stream on which the driver records, and on which nothing runs. It is not ordered with the default stream: while a stream that is
    /// records, whatever other threads queue on the default stream would fail, because it would have to wait for what never runs.
    ///
    /// # Errors
    /// As [`Stream::new`].
    pub(crate) fn to_record_on(device: &Device) -> Result<Stream> {
        Stream::create(device, NON_BLOCKING)
    }

    fn create(device: &Device, flags: c_uint) -> Result<Stream> {
        let Backend::Cuda(context) = device.backend() else { return Ok(Stream::default_of(device)) };
        let api = context.enter()?;
        let mut handle = std::ptr::null_mut();
        // SAFETY: out-pointer to a live handle; flags that the driver knows.
        context.check("cuStreamCreate", unsafe { (api.stream_create)(&mut handle, flags) })?;
        let owned =
            OwnedStream { device: device.clone(), handle: RawHandle(handle), scratch: StreamScratch::default() };
        Ok(Stream { device: device.clone(), kind: StreamKind::Owned(Arc::new(owned)) })
    }

    /// Wraps a stream that another library made: its `CUstream` (or `cudaStream_t`), such as PyTorch's current stream.
    ///
    /// Keep the value for several launches. It owns the scratch memory of kernels whose programs are split.
    ///
    /// # Safety
    /// The handle is a live stream of this device's primary context, and stays live as long as this value and its
    /// clones. If it does not block on the default stream, the caller orders the two. Tensors are made and freed on the
    /// default stream. So they are made, and [`Device::synchronize`] has returned, before the first launch on this
    /// stream, and they are dropped after the last launch has run. (A [`Graph`](crate::Graph) that ran on this stream waits for the
    /// device before it drops its own.)
    pub unsafe fn from_raw(device: &Device, handle: *mut c_void) -> Stream {
        let raw = RawStream { device: device.clone(), handle: RawHandle(handle), scratch: StreamScratch::default() };
        Stream { device: device.clone(), kind: StreamKind::Raw(Arc::new(raw)) }
    }

    /// This stream, with its launches recorded instead of run.
    pub(crate) fn recording_into(&self, recorder: impl Any + Send + Sync) -> Stream {
        // The driver counts up from 1, so these are others.
        static LAST: AtomicU64 = AtomicU64::new(u64::MAX);
        let number = LAST.fetch_sub(1, Ordering::Relaxed);
        let recording = RecordingStream { on: self.clone(), recorder: Box::new(recorder), number };
        Stream { device: self.device.clone(), kind: StreamKind::Recording(Arc::new(recording)) }
    }

    /// What takes the launches down, if this stream records.
    pub(crate) fn recorder(&self) -> Option<&(dyn Any + Send + Sync)> {
        match &self.kind {
            StreamKind::Recording(recording) => Some(&*recording.recorder),
            StreamKind::Default | StreamKind::Owned(_) | StreamKind::Raw(_) => None,
        }
    }

    /// Whether this is the default stream of its device.
    pub(crate) fn is_default(&self) -> bool {
        matches!(self.kind, StreamKind::Default)
    }

    /// Whether this is a stream of the caller, which may be ordered with no other.
    pub(crate) fn is_raw(&self) -> bool {
        matches!(self.kind, StreamKind::Raw(_))
    }

    /// Whether the driver records what is queued on this stream, as somebody else asked it to.
    pub(crate) fn is_recorded_by_driver(&self) -> Result<bool> {
        match self.device.backend() {
            Backend::Cuda(context) => context.is_recording(self.as_raw()),
            Backend::Cpu | Backend::Virtual(_) => Ok(false),
        }
    }

    /// Calls `launch`, which queues one launch on this stream, with scratch memory for it.
    pub(crate) fn with_scratch(
        &self,
        context: &Context,
        need: ScratchBytes,
        launch: impl FnOnce(ScratchAddresses) -> Result<()>,
    ) -> Result<()> {
        let kept = match &self.kind {
            StreamKind::Default => self.device.default_scratch(),
            StreamKind::Owned(stream) => &stream.scratch,
            StreamKind::Raw(stream) => &stream.scratch,
            StreamKind::Recording(recording) => return recording.on.with_scratch(context, need, launch),
        };
        kept.with(context, self.as_raw(), need, launch)
    }

    /// The driver's handle; null for the default stream and without a driver.
    pub fn as_raw(&self) -> *mut c_void {
        match &self.kind {
            StreamKind::Default => std::ptr::null_mut(),
            StreamKind::Owned(s) => s.handle.0,
            StreamKind::Raw(s) => s.handle.0,
            StreamKind::Recording(recording) => recording.on.as_raw(),
        }
    }

    /// The stream's device.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Whether a graph records what is queued, so that nothing runs. The default stream records nothing.
    ///
    /// # Errors
    /// `RuntimeError::Driver` if the driver does not answer.
    pub fn is_recording(&self) -> Result<bool> {
        if self.recorder().is_some() { Ok(true) } else { self.is_recorded_by_driver() }
    }

    /// A number of the recording that takes down what is queued, which streams that record one graph share, and no other recording of this
    /// process has. `None` if what is queued runs. A driver that does not tell the number gives 0.
    ///
    /// # Errors
    /// `RuntimeError::Driver` if the driver does not answer.
    pub fn recording(&self) -> Result<Option<u64>> {
        match (&self.kind, self.device.backend()) {
            (StreamKind::Recording(recording), _) => Ok(Some(recording.number)),
            (_, Backend::Cuda(context)) => context.recording_of(self.as_raw()),
            (_, Backend::Cpu | Backend::Virtual(_)) => Ok(None),
        }
    }

    /// Waits until everything queued has run.
    ///
    /// # Errors
    /// `RuntimeError::Driver`, also for a fault of an earlier launch.
    pub fn synchronize(&self) -> Result<()> {
        match self.device.backend() {
            Backend::Cpu | Backend::Virtual(_) => Ok(()),
            Backend::Cuda(context) => context.synchronize(self.as_raw()),
        }
    }
}

/// A point in a stream, with the time at which the device reached it.
pub struct Event {
    device: Device,
    kind: EventKind,
}

enum EventKind {
    Host(std::sync::Mutex<Option<std::time::Instant>>),
    Cuda(RawHandle),
}

impl Event {
    /// An event that has not been recorded.
    ///
    /// # Errors
    /// `RuntimeError::Driver` if the driver cannot create one.
    pub fn new(device: &Device) -> Result<Event> {
        let kind = match device.backend() {
            Backend::Cpu | Backend::Virtual(_) => EventKind::Host(std::sync::Mutex::new(None)),
            Backend::Cuda(context) => {
                let api = context.enter()?;
                let mut handle = std::ptr::null_mut();
                // SAFETY: out-pointer to a live handle.
                context.check("cuEventCreate", unsafe { (api.event_create)(&mut handle, 0) })?;
                EventKind::Cuda(RawHandle(handle))
            }
        };
        Ok(Event { device: device.clone(), kind })
    }

    /// Records the event after everything that is queued on the stream now.
    ///
    /// # Errors
    /// `RuntimeError::Driver`, also if the stream belongs to another device.
    pub fn record(&self, stream: &Stream) -> Result<()> {
        match (&self.kind, self.device.backend()) {
            (EventKind::Cuda(event), Backend::Cuda(context)) => {
                let api = context.enter()?;
                // SAFETY: a live event; the stream is live as long as its value.
                context.check("cuEventRecord", unsafe { (api.event_record)(event.0, stream.as_raw()) })
            }
            (EventKind::Host(at), _) => {
                *at.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(std::time::Instant::now());
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Waits for both events and returns the time between them in milliseconds. On the CPU it is 0 if one was never
    /// recorded.
    ///
    /// # Errors
    /// `RuntimeError::Driver`, also if an event of a GPU was never recorded.
    pub fn elapsed_ms(&self, end: &Event) -> Result<f64> {
        match (&self.kind, &end.kind, self.device.backend()) {
            (EventKind::Cuda(start), EventKind::Cuda(end), Backend::Cuda(context)) => {
                let api = context.enter()?;
                let mut ms = 0.0_f32;
                // SAFETY: live events; the out-pointer is a live float.
                unsafe {
                    context.check("cuEventSynchronize", (api.event_synchronize)(end.0))?;
                    context.check("cuEventElapsedTime", (api.event_elapsed)(&mut ms, start.0, end.0))?;
                }
                Ok(f64::from(ms))
            }
            (EventKind::Host(start), EventKind::Host(end), _) => {
                let at = |e: &std::sync::Mutex<Option<std::time::Instant>>| {
                    *e.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
                };
                Ok(match (at(start), at(end)) {
                    (Some(a), Some(b)) => b.saturating_duration_since(a).as_secs_f64() * 1e3,
                    _ => 0.0,
                })
            }
            _ => Ok(0.0),
        }
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        if let (EventKind::Cuda(event), Backend::Cuda(context)) = (&self.kind, self.device.backend())
            && let Ok(api) = context.enter()
        {
            // SAFETY: the handle came from `cuEventCreate` and is destroyed once.
            unsafe { (api.event_destroy)(event.0) };
        }
    }
}
