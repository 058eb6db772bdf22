//! Consequences of a failed launch on the GPU for the rest of the run.

use atlas_runtime::{Device, Result};

/// A launch that returned no bytes.
pub(super) struct LaunchFailure {
    /// The driver's message.
    pub(super) what: String,
    /// True if this process can no longer use the GPU.
    pub(super) fatal: bool,
}

/// The bytes of a launch. A fault of a kernel corrupts the context, and every later call reports it.
pub(super) fn outcome<T>(device: &Device, done: Result<T>) -> std::result::Result<T, LaunchFailure> {
    done.map_err(|e| LaunchFailure { what: e.to_string(), fatal: device.synchronize().is_err() })
}
