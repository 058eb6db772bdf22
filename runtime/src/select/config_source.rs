//! How a config came to be chosen.

use std::fmt;

/// How a config came to be chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConfigSource {
    /// The caller gave it.
    Given,
    /// A tuning record of these very sizes has it.
    Record,
    /// The cost model ranked it first, corrected by tuning records of other sizes.
    Nearby,
    /// The cost model ranked it first.
    CostModel,
    /// The kernel's default: the first value of each knob.
    Default,
    /// A bundle has these very sizes.
    Bundle,
    /// A bundle has a region of these sizes.
    Region,
    /// Nothing could be compiled, and the CPU may run what the GPU cannot: see `Device::set_cpu_fallback`.
    Cpu,
}

impl fmt::Display for ConfigSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ConfigSource::Given => "given by the caller",
            ConfigSource::Record => "tuning record",
            ConfigSource::Nearby => "cost model corrected by tuning records",
            ConfigSource::CostModel => "cost model",
            ConfigSource::Default => "default",
            ConfigSource::Bundle => "bundle, at these sizes",
            ConfigSource::Region => "bundle, by the region of these sizes",
            ConfigSource::Cpu => "default, on the CPU",
        })
    }
}
