//! Which device: a name that holds nothing open.

use atlas_codegen::Machine;
use std::fmt;

/// Which device: the CPU, a GPU by its number, or a simulated one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DeviceId {
    /// The host: kernels run in the interpreter.
    Cpu,
    /// A GPU, numbered as the driver numbers it.
    Cuda(usize),
    /// A simulated GPU: executes the PTX for this machine on the host.
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
