//! `check_registers`: refuses a config whose tiles would not fit in registers.
//!
//! Needs: lowered tiles. Establishes: an estimate within what a thread may have. Never: changes anything.

use crate::analysis::peak_registers;
use crate::error::CompileError;
use crate::gpu::Kernel;

/// Refuses a kernel whose tiles need more than about two thirds of a thread's registers; the rest is for
/// addresses, operands in flight and scheduling. Measured on the shipped kernels: above it ptxas spills.
pub fn check_registers(k: &mut Kernel) -> Result<(), CompileError> {
    // 64 Ki registers per SM; 255 per thread at most.
    let most = (65536 / k.threads).min(255);
    let limit = most * 7 / 10;
    let peak = peak_registers(k);
    if peak > limit {
        return Err(CompileError::refusal(format!(
            "the tiles need about {peak} registers per thread, but with {} threads they may use {limit}",
            k.threads
        )));
    }
    Ok(())
}
