//! How a config was chosen.

use std::fmt;

/// How a config was chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConfigSource {
    /// The caller gave it.
    Given,
    /// A tuning record of exactly these sizes chose it.
    Record,
    /// The cost model ranked it first, corrected by tuning records of other sizes.
    Nearby,
    /// The cost model ranked it first.
    CostModel,
    /// The kernel's default: the first value of each knob.
    Default,
    /// A bundle has exactly these sizes.
    Bundle,
    /// A bundle has a region that contains these sizes.
    Region,
    /// No kernel was available, and the CPU may run what the GPU cannot: see `Device::set_cpu_fallback`.
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
