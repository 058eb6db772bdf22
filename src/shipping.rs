//! What a program carries or reads beside its code: bundles of compiled kernels and tuning records; and the sizes that it launches.
//!
//! [`bundle!`](crate::bundle) and [`tuning_record!`](crate::tuning_record) make files part of the program. The types are for
//! programs that decide as they run.

pub use atlas_runtime::bundle::{Bundle, Bundles};
pub use atlas_runtime::records::Records;
pub use atlas_runtime::sizes::flush as flush_sizes;
