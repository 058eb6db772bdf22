//! Files that a program embeds or reads: bundles of compiled kernels, tuning records, and the sizes that it launches.
//!
//! [`bundle!`](crate::bundle) and [`tuning_record!`](crate::tuning_record) embed files in the program. The types are
//! for programs that load files at run time.

pub use atlas_runtime::bundle::{Bundle, Bundles};
pub use atlas_runtime::records::Records;
pub use atlas_runtime::sizes::flush as flush_sizes;
