//! `check_registers`: refuses a config whose tiles would not fit in registers.
//!
//! Needs: lowered tiles. Establishes: an estimate within the limit of a thread. Never: changes anything. Refuses: an estimate
//! above it. Constructs: removes nothing; adds nothing.
//!
//! # Promise
//! A config is accepted, or refused with a reason. No kernel is changed, and no refused kernel runs.
//!
//! # Argument
//! The estimate is that of `gpu/analysis/registers.rs`. Its header describes its accuracy, and the second estimate, in order, for a
//! kernel that would be refused. The pass runs before buffers get addresses, because what `allocate_shared` and
//! `insert_barriers` add takes no registers for tiles.
//!
//! # Breaks it
//! A config of large tiles by few warps: tests/agreement/arguments.rs::what_another_carried_tile_starts_with_is_not_overwritten
//! has one that is refused beside one that runs.

use crate::arch::limits::Limits;
use crate::context::Cx;
use crate::error::CompileError;
use crate::gpu::Kernel;
use crate::gpu::analysis::tile_registers;
use atlas_dsl::ir::Loc;

/// Refuses a kernel whose tiles need more registers of a thread than they may take.
pub fn check_registers(k: &mut Kernel, cx: &mut Cx<'_>) -> Result<(), CompileError> {
    let limits = Limits::of(k.threads, k.occupancy, cx.machine);
    let limit = limits.of_tiles();
    let peak = tile_registers(k, limit);
    limits.check_registers(peak, "the tiles need")?;
    cx.notes.push("registers", Loc::default(), || {
        let because = format!(
            "the estimate for tiles; {} % of what {} threads at an occupancy of {} have",
            limits.share_of_tiles(),
            k.threads,
            k.occupancy
        );
        (format!("about {peak} of {limit} a thread"), because)
    });
    Ok(())
}
