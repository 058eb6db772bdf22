//! Comparisons with f64: a problem of a shipped kernel with its reference, and any launch with the interpreter.

pub use atlas_ops::cases::problem;
pub use atlas_ops::layer::reference::{HostContext, HostLayer, reference as layer_reference};
pub use atlas_ops::{Comparison, Problem};
pub use atlas_runtime::{OracleOutput, run_f64};
