//! The decisions about a kernel before anything is lowered. A config that cannot work is refused here, from extents only.
//!
//! *Persistent programs.* Where the schedule does not say, a CTA runs many programs if the copy engine fetches its tiles and these
//! fill more than half of a multiprocessor's shared memory. Otherwise a second program is there, which computes while the first
//! one begins and ends: on an H200, products of 128 x 256 take 0.97 of the time of single programs, kernels of smaller tiles up
//! to 1.3. A tile beside the accumulator counts only where registers leave no room for a second program: otherwise `start_loads`
//! leaves its load behind the loop, where it takes bytes of the loop's tiles.
//!
//! The order follows from what each decision needs: the available instructions, the uses of tiles, their homes and the warps
//! that compute them, lower bounds on resources, who copies tiles, the order of programs. The passes follow these decisions.

use super::order::rows_of_resident;
use super::{Approximations, Bounds, Extents, Paths, Placement, Uses, cluster_size, order, refuse_unencodable};
use crate::arch::Machine;
use crate::arch::Target;
use crate::arch::limits::Limits;
use crate::error::CompileError;
use crate::gpu::IndexMap;
use atlas_dsl::config::Programs;
use atlas_dsl::{Inst, Kernel, Schedule};

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
    /// The number of CTAs of a cluster.
    pub cluster: u32,
    /// How many programs a CTA runs.
    pub programs: Programs,
}

impl LoweringDecisions {
    /// The decisions of a kernel for a schedule. `fetches_before_loops` says whether the copy engine may fetch operands that stand
    /// before a loop.
    ///
    /// # Errors
    /// Refuses a schedule that nothing runs, an operation without an instruction, and a config that exceeds the machine.
    pub fn choose(
        kernel: &Kernel,
        schedule: &Schedule,
        fetches_before_loops: bool,
        target: Target,
        machine: &Machine,
    ) -> Result<LoweringDecisions, CompileError> {
        let limits = Limits::of_schedule(schedule, machine)?;
        let cluster = cluster_size(kernel, schedule, target)?;
        let mut order = order(kernel, schedule)?;
        let uses = Uses::of(kernel);
        let placement = Placement::of(kernel, &uses, schedule, target)?;
        let bounds = Bounds::of(kernel, &uses, &placement, schedule);
        bounds.check(schedule, &limits)?;
        refuse_unencodable(kernel, &uses, &placement)?;
        let paths_of =
            |schedule: &Schedule| Paths::of(kernel, &uses, &placement, schedule, fetches_before_loops, target);
        let mut paths = paths_of(schedule);
        let is_fetched = |inst: Inst| paths.by_engine(inst);
        // Machines of one target get one text.
        let usual = Machine::from(target);
        let beside = if bounds.leaves_registers_for_two(schedule) { 0 } else { paths.bytes_beside() };
        let fills_sm = (bounds.shared_bytes + beside) * 2 > u64::from(usual.sm_shared_bytes);
        let chosen = match fills_sm && cluster == 1 && schedule.split_k == 1 && kernel.insts.keys().any(is_fetched) {
            true => Programs::Persistent,
            false => Programs::Single,
        };
        let programs = schedule.programs.unwrap_or(chosen);
        if programs == Programs::Persistent && schedule.programs.is_none() {
            // Stores of persistent programs have another default.
            let persistent = Schedule { programs: Some(programs), ..*schedule };
            paths = paths_of(&persistent);
        }
        if programs == Programs::Persistent && schedule.order.is_none() {
            order.group = order.group.map(|_| rows_of_resident(&order, &usual));
        }
        let extents = Extents::of(kernel, &placement);
        let approximations = Approximations::of(kernel, &uses);
        Ok(LoweringDecisions { uses, placement, paths, extents, approximations, order, cluster, programs })
    }
}
