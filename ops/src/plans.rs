//! Ops of several launches, as `atlas bench` measures them: all of the launches, on tensors that are made before.

pub use crate::plan::{Plan, Work};

use crate::op::OPS;

/// The plans of all ops.
pub fn plans() -> Vec<Plan> {
    OPS.iter().flat_map(|op| op.plans).copied().collect()
}
