//! The simulator: its options, the report of a launch, and the faults that it finds. `Device::sim` opens one.

pub use atlas_runtime::simulator::alu::Approximation;
pub use atlas_runtime::simulator::fault::{Fault, FaultKind};
pub use atlas_runtime::{SimAccess, SimFault, SimOptions, SimPolicy, SimRun};
