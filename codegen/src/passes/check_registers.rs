//! `check_registers`: refuses a config whose tiles would not fit in registers.
//!
//! Needs: lowered tiles. Establishes: an estimate within what a thread may have. Never: changes anything. Refuses: an
//! estimate above it. Constructs: removes nothing; adds nothing.
//!
//! # Promise
//! A config is accepted or refused with a reason; no kernel is changed by it, and none that is refused runs.
//!
//! # Argument
//! The estimate is that of `analysis/registers.rs`, whose head says what it is worth and that a kernel which it would refuse is
//! estimated in order besides. It runs before buffers get addresses:
//! what `allocate_shared` and `insert_barriers` add takes no registers of tiles.
//!
//! # Breaks it
//! A config of large tiles by few warps: tests/agreement/arguments.rs::what_another_carried_tile_starts_with_is_not_overwritten
//! has one that is refused beside one that runs.

use crate::analysis::tile_registers;
use crate::context::Cx;
use crate::error::CompileError;
use crate::gpu::Kernel;
use crate::limits::Limits;
use atlas_dsl::ir::Loc;

/// Refuses a kernel whose tiles need more of a thread's registers than they may have.
pub fn check_registers(k: &mut Kernel, cx: &mut Cx<'_>) -> Result<(), CompileError> {
    let limits = Limits::of(k.threads, k.occupancy, cx.machine);
    let limit = limits.of_tiles();
    let peak = tile_registers(k, limit);
    limits.check_registers(peak, "the tiles need")?;
    cx.notes.push("registers", Loc::default(), || {
        let because = format!(
            "the estimate for tiles; 75 % of what {} threads at an occupancy of {} have",
            k.threads, k.occupancy
        );
        (format!("about {peak} of {limit} a thread"), because)
    });
    Ok(())
}
