//! What goes wrong, by kind: the parts of [`RuntimeError`](crate::RuntimeError), and of what files are refused for.

pub use atlas_dsl::diag::Code;
pub use atlas_dsl::{Diagnostic, Diagnostics};
pub use atlas_runtime::bundle::BundleError;
pub use atlas_runtime::records::RecordError;
pub use atlas_runtime::{CompileFailure, DeviceError, DriverFailure, LaunchError, TensorError};
