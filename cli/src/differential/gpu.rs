//! Consequences of a failed launch on the GPU for the rest of the run.

use atlas_runtime::{Device, Result};

/// A launch that returned no bytes.
pub(super) struct Failure {
    /// The driver's message.
    pub(super) what: String,
    /// True if this process can no longer use the GPU.
    pub(super) fatal: bool,
}

/// The bytes of a launch. A fault of a kernel corrupts the context, and every later call reports it.
pub(super) fn outcome<T>(device: &Device, done: Result<T>) -> std::result::Result<T, Failure> {
    done.map_err(|e| Failure { what: e.to_string(), fatal: device.synchronize().is_err() })
}
