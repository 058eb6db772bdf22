//! `check_registers`: refuses a config whose tiles would not fit in registers.
//!
//! Needs: lowered tiles. Establishes: an estimate within what a thread may have. Never: changes anything. Refuses: an
//! estimate above it. Features: removes nothing; adds nothing.
//!
//! # Promise
//! A config is accepted or refused with a reason; no kernel is changed by it, and none that is refused runs.
//!
//! # Argument
//! The estimate is that of `analysis/registers.rs`, whose head says what it is worth. It runs before buffers get addresses:
//! what `allocate_shared` and `insert_barriers` add takes no registers of tiles.
//!
//! # Breaks it
//! A config of large tiles by few warps: tests/agreement/arguments.rs::what_another_carried_tile_starts_with_is_not_overwritten
//! has one that is refused beside one that runs.

use crate::analysis::{carried_operands, peak_registers, registers_per_thread};
use crate::context::Cx;
use crate::error::CompileError;
use crate::gpu::Kernel;
use crate::machine::Machine;
use atlas_dsl::ir::Loc;

/// What a thread may have.
fn held(k: &Kernel, machine: &Machine) -> u32 {
    registers_per_thread(k.threads, k.occupancy).min(machine.sm_registers / (k.threads * k.occupancy).max(1))
}

/// What tiles may take with the operands that loops carry: five sixths. Measured on products: above it ptxas spills.
pub(super) fn limit_with_operands(k: &Kernel, machine: &Machine) -> u32 {
    held(k, machine) * 5 / 6
}

/// What gives the tiles clearly more room. The threads of a CTA share tiles, so more of them have more registers for
/// these, up to all that a multiprocessor has.
fn mend(k: &Kernel) -> &'static str {
    let all = |threads: u32| threads * registers_per_thread(threads, k.occupancy);
    match (k.occupancy > 1, k.threads < 1024 && all(k.threads) * 5 / 4 < all(k.threads * 2)) {
        (true, true) => "a lower occupancy, more warps or smaller tiles would help",
        (true, false) => "a lower occupancy or smaller tiles would help",
        (false, true) => "more warps or smaller tiles would help",
        (false, false) => "smaller tiles would help",
    }
}

/// Refuses a kernel whose tiles need more than three quarters of a thread's registers; the rest is for
/// addresses, operands in flight and scheduling. Measured on the shipped kernels: above it ptxas spills.
pub fn check_registers(k: &mut Kernel, cx: &mut Cx<'_>) -> Result<(), CompileError> {
    let limit = (held(k, cx.machine) * 3).div_ceil(4);
    let peak = peak_registers(k).saturating_sub(carried_operands(k));
    if peak > limit {
        return Err(CompileError::refusal(format!(
            "the tiles need about {peak} registers per thread, but with {} threads and an occupancy of {} they may use {limit}; {}",
            k.threads,
            k.occupancy,
            mend(k)
        )));
    }
    cx.notes.push("registers", Loc::default(), || {
        let because = format!(
            "the estimate for tiles; 75 % of what {} threads at an occupancy of {} have",
            k.threads, k.occupancy
        );
        (format!("about {peak} of {limit} a thread"), because)
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mend_is_named_where_it_would_help() {
        for (warps, occupancy, want) in [
            (4, 1, "more warps or smaller tiles would help"),
            (8, 1, "smaller tiles would help"),
            (32, 1, "smaller tiles would help"),
            (2, 3, "a lower occupancy, more warps or smaller tiles would help"),
            (16, 2, "a lower occupancy or smaller tiles would help"),
        ] {
            let mut k = Kernel::new("k", "sm_80".parse().unwrap(), warps * 32);
            k.occupancy = occupancy;
            assert_eq!(mend(&k), want, "{warps} warps, occupancy {occupancy}");
        }
    }
}
