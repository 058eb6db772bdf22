//! An op of several launches at one size, to be measured as one.
//!
//! Each plan is checked against its f64 reference on a smaller problem of the same sizes of heads, chunks and windows, by the
//! same launches on the same device.

use crate::compare::Comparison;
use atlas_dsl::DType;
use atlas_runtime::{Device, Result};

/// Sizes of a plan; 0 behind its last.
pub(crate) type PlanSizes = [usize; 6];

/// Work that is ready to run: all of a plan's launches, queued on the device's default stream.
pub type Work = Box<dyn FnMut() -> Result<()>>;

/// What an op of several launches is, at any size.
pub(crate) struct Steps {
    /// Its sizes, by name.
    pub(crate) names: &'static [&'static str],
    /// The element type of what a baseline would be given.
    pub(crate) dtype: DType,
    /// The bound on the relative error.
    pub(crate) bound: f64,
    /// Bytes that cannot but be moved.
    pub(crate) bytes: fn(PlanSizes) -> f64,
    /// Floating-point operations.
    pub(crate) flops: fn(PlanSizes) -> f64,
    /// Sizes at which a CPU solves it in a moment.
    pub(crate) small: fn(PlanSizes) -> PlanSizes,
    /// Makes what the launches work on.
    pub(crate) start: fn(&Device, PlanSizes) -> Result<Work>,
    /// How far the launches are from the reference.
    pub(crate) check: fn(&Device, PlanSizes) -> Result<Comparison>,
}

/// An op of several launches at one size.
#[derive(Clone, Copy)]
pub struct Plan {
    /// The name in records.
    pub name: &'static str,
    steps: &'static Steps,
    sizes: PlanSizes,
}

impl Plan {
    pub(crate) const fn new<const N: usize>(name: &'static str, steps: &'static Steps, sizes: [usize; N]) -> Plan {
        let mut all = [0; 6];
        let mut i = 0;
        while i < N {
            all[i] = sizes[i];
            i += 1;
        }
        Plan { name, steps, sizes: all }
    }

    /// Its sizes, as they are printed.
    pub fn shape(&self) -> String {
        self.steps.names.iter().zip(self.sizes).map(|(n, s)| format!("{n}{s}")).collect::<Vec<_>>().join(" ")
    }

    /// The names of its sizes.
    pub fn dims(&self) -> &'static [&'static str] {
        self.steps.names
    }

    /// The same plan where `size` gives some of its sizes, by name, at least 1.
    #[must_use]
    pub fn resized(&self, size: impl Fn(&str) -> Option<usize>) -> Plan {
        let mut sizes = self.sizes;
        for (name, own) in self.steps.names.iter().zip(&mut sizes) {
            *own = size(name).map_or(*own, |size| size.max(1));
        }
        Plan { sizes, ..*self }
    }

    /// The element type of what a baseline would be given.
    pub fn dtype(&self) -> DType {
        self.steps.dtype
    }

    /// Bytes that cannot but be moved.
    pub fn bytes(&self) -> f64 {
        (self.steps.bytes)(self.sizes)
    }

    /// Floating-point operations.
    pub fn flops(&self) -> f64 {
        (self.steps.flops)(self.sizes)
    }

    /// The bound on the relative error.
    pub fn bound(&self) -> f64 {
        self.steps.bound
    }

    /// The same on so little that a CPU solves it in a moment.
    #[must_use]
    pub fn small(&self) -> Plan {
        Plan { sizes: (self.steps.small)(self.sizes), ..*self }
    }

    /// Makes what the launches work on.
    ///
    /// # Errors
    /// Those of tensors, and of preparing launches.
    pub fn start(&self, device: &Device) -> Result<Work> {
        (self.steps.start)(device, self.sizes)
    }

    /// How far the launches are from the reference, on the plan's small problem.
    ///
    /// # Errors
    /// As [`Plan::start`]; those of launches.
    pub fn check(&self, device: &Device) -> Result<Comparison> {
        (self.steps.check)(device, self.small().sizes)
    }
}

/// The heads of a layer with so many sequences times heads: 16, or the most that divide them.
pub(crate) fn heads_of(groups: usize) -> usize {
    (1..=16).rev().find(|heads| groups.is_multiple_of(*heads)).unwrap_or(1)
}
