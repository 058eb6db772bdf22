//! What a failed launch on the GPU means for the rest.

use atlas_runtime::{Device, Result};

/// A launch that gave no bytes.
pub(super) struct Failure {
    /// What the driver says.
    pub(super) what: String,
    /// True if nothing runs on this GPU any more in this process.
    pub(super) fatal: bool,
}

/// The bytes of a launch. A fault of a kernel stays with the context: every later call reports it.
pub(super) fn outcome<T>(device: &Device, done: Result<T>) -> std::result::Result<T, Failure> {
    done.map_err(|e| Failure { what: e.to_string(), fatal: device.synchronize().is_err() })
}
