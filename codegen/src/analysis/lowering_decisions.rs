//! What is decided of a kernel before any of it is lowered; a config that cannot do is refused here, by extents alone.
//!
//! The order is that of what each needs: which instructions are there, what tiles are used for, where they live and which
//! warps make them, what that takes at the least, in which order programs run. The passes obey.

use super::{Approximations, Bounds, Extents, Placement, Uses, order, refuse_unencodable};
use crate::arch::Machine;
use crate::arch::Target;
use crate::error::CompileError;
use crate::gpu::IndexMap;
use crate::limits::Limits;
use atlas_dsl::{Kernel, Schedule};

/// The decisions.
#[derive(Clone, Debug)]
pub struct LoweringDecisions {
    /// What uses each value.
    pub uses: Uses,
    /// Where each tile lives and by which layout; each product's atom and grid of warps.
    pub placement: Placement,
    /// Which elements of each tile are real.
    pub extents: Extents,
    /// Which functions may be approximate.
    pub approximations: Approximations,
    /// In which order programs run.
    pub order: IndexMap,
}

impl LoweringDecisions {
    /// The decisions of a kernel for a schedule.
    ///
    /// # Errors
    /// A refusal of a schedule that nothing runs, of what no instruction does, and of what the machine has not.
    pub fn choose(
        kernel: &Kernel,
        schedule: &Schedule,
        target: Target,
        machine: &Machine,
    ) -> Result<LoweringDecisions, CompileError> {
        let limits = Limits::of_schedule(schedule, machine)?;
        let order = order(kernel, schedule)?;
        let uses = Uses::of(kernel);
        let placement = Placement::of(kernel, &uses, schedule, target)?;
        Bounds::of(kernel, &uses, &placement, schedule).check(schedule, &limits)?;
        refuse_unencodable(kernel, &uses, &placement)?;
        let extents = Extents::of(kernel, &placement);
        let approximations = Approximations::of(kernel, &uses);
        Ok(LoweringDecisions { uses, placement, extents, approximations, order })
    }
}
