//! Errors by kind: the variants of [`RuntimeError`](crate::RuntimeError), and the reasons why files are refused.

pub use atlas_dsl::config::ConfigError;
pub use atlas_dsl::diag::Code;
pub use atlas_dsl::{Diagnostic, Diagnostics};
pub use atlas_runtime::bundle::BundleError;
pub use atlas_runtime::records::RecordError;
pub use atlas_runtime::{CompileFailure, DeviceError, DriverFailure, LaunchError, TensorError};
