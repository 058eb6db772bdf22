//! The decisions about a kernel before anything is lowered. A config that cannot work is refused here, from extents only.
//!
//! The order follows from what each decision needs: the available instructions, the uses of tiles, their homes and the warps
//! that compute them, lower bounds on resources, who copies tiles, the order of programs. The passes follow these decisions.

use super::{Approximations, Bounds, Extents, Paths, Placement, Uses, order, refuse_unencodable};
use crate::arch::Machine;
use crate::arch::Target;
use crate::error::CompileError;
use crate::gpu::IndexMap;
use crate::limits::Limits;
use atlas_dsl::{Kernel, Schedule};

/// The decisions.
#[derive(Clone, Debug)]
pub struct LoweringDecisions {
    /// The uses of each value.
    pub uses: Uses,
    /// The home and the layout of each tile; each product's atom and grid of warps.
    pub placement: Placement,
    /// Who copies each tile that products read, and who stores each tile.
    pub paths: Paths,
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
    /// Refuses a schedule that nothing runs, an operation without an instruction, and a config that exceeds the machine.
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
        let paths = Paths::of(kernel, &uses, &placement, schedule, target);
        let extents = Extents::of(kernel, &placement);
        let approximations = Approximations::of(kernel, &uses);
        Ok(LoweringDecisions { uses, placement, paths, extents, approximations, order })
    }
}
