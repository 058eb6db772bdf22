//! What passes read, and where they say what they decided.

use crate::arch::Machine;
use crate::arch::Target;
use crate::notes::Notes;
use atlas_dsl::Schedule;

/// What every pass may read, and where it says what it decided.
#[derive(Debug)]
pub struct Cx<'a> {
    /// The config's part that says how a kernel runs.
    pub schedule: &'a Schedule,
    /// What code may say: which instructions are legal.
    pub target: Target,
    /// What the GPU holds: which configs are refused.
    pub machine: &'a Machine,
    /// What the pass decided and why, for people.
    pub notes: &'a mut Notes,
}
