//! Names of devices. A name does not hold the device open.

use atlas_codegen::Machine;
use std::fmt;

/// The name of a device: the CPU, a GPU by its number, or a simulated GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DeviceId {
    /// The host: kernels run in the interpreter.
    Cpu,
    /// A GPU, numbered as the driver numbers it.
    Cuda(usize),
    /// A simulated GPU: the host executes the PTX for this machine.
    Sim(Machine),
}

impl fmt::Display for DeviceId {
    /// `cpu`, `cuda:0` or `sim:sm_90`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DeviceId::Cpu => f.write_str("cpu"),
            DeviceId::Cuda(i) => write!(f, "cuda:{i}"),
            DeviceId::Sim(machine) => write!(f, "sim:{machine}"),
        }
    }
}
