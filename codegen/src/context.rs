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
    /// True if the copy engine fetches operands that stand before a loop: if it may, and from `lower_tiles` on, if it does. Threads
    /// copy them where shared memory is short, for the bytes of an engine's stage are not shared with others.
    pub fetches_before_loops: bool,
    /// True if shared memory is why the kernel is refused.
    pub lacks_shared: bool,
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
        Cx {
            schedule,
            programs,
            why_single: None,
            fetches_before_loops: true,
            lacks_shared: false,
            target,
            machine,
            notes,
        }
    }
}
