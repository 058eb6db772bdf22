//! The context of passes: what they may read, and where they record decisions.

use crate::arch::Machine;
use crate::arch::Target;
use crate::notes::Notes;
use atlas_dsl::Schedule;
use atlas_dsl::config::Programs;

/// What every pass may read, and where it records its decisions.
#[derive(Debug)]
pub struct Cx<'a> {
    /// The part of the config that says how a kernel runs.
    pub schedule: &'a Schedule,
    /// How many programs a CTA runs: as the schedule says, or as `lower_tiles` chooses.
    pub programs: Programs,
    /// Why a CTA runs one program although more were chosen or asked for. A pass that finds out refuses the kernel; the pipeline
    /// then lowers it again as one of single programs.
    pub why_single: Option<String>,
    /// The target: which instructions are legal.
    pub target: Target,
    /// The machine: which configs are refused.
    pub machine: &'a Machine,
    /// The decisions of the pass and their reasons, for people.
    pub notes: &'a mut Notes,
}

impl<'a> Cx<'a> {
    /// A context before the first pass.
    pub fn new(schedule: &'a Schedule, target: Target, machine: &'a Machine, notes: &'a mut Notes) -> Cx<'a> {
        let programs = schedule.programs.unwrap_or(Programs::Single);
        Cx { schedule, programs, why_single: None, target, machine, notes }
    }
}
