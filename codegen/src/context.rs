//! The context of passes: what they may read, and where they record decisions.

use crate::arch::Machine;
use crate::arch::Target;
use crate::notes::Notes;
use atlas_dsl::Schedule;

/// What every pass may read, and where it records its decisions.
#[derive(Debug)]
pub struct Cx<'a> {
    /// The part of the config that says how a kernel runs.
    pub schedule: &'a Schedule,
    /// The target: which instructions are legal.
    pub target: Target,
    /// The machine: which configs are refused.
    pub machine: &'a Machine,
    /// The decisions of the pass and their reasons, for people.
    pub notes: &'a mut Notes,
}
