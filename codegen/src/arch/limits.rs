//! The limits of a machine for a config. A refusal gives both numbers and says what would help.

use crate::arch::Machine;
use crate::error::CompileError;
use atlas_dsl::Schedule;

/// Registers that a thread may have. A multiprocessor has 64 Ki, and a thread at most 255.
pub(crate) fn registers_per_thread(threads: u32, occupancy: u32) -> u32 {
    (65536 / (threads * occupancy).max(1)).min(255)
}

/// The registers that tiles and the operands carried by loops may take: five sixths. The limit is measured on products: above
/// it, ptxas spills. It decides code, so it must not depend on a machine.
pub(crate) fn registers_with_operands(threads: u32, occupancy: u32) -> u32 {
    registers_per_thread(threads, occupancy) * 5 / 6
}

/// The registers that tiles may take: three quarters. The rest is for addresses, operands in flight and scheduling. The limit
/// is measured on the shipped kernels: above it, ptxas spills.
pub(crate) fn registers_of_tiles(threads: u32, occupancy: u32) -> u32 {
    most_of_tiles(registers_per_thread(threads, occupancy))
}

/// Three quarters, but for 18 registers at the least where there are more than 48. `fused_forward` spills on sm_89 with 47 of the 64
/// that eight warps have four times on a multiprocessor.
fn most_of_tiles(registers: u32) -> u32 {
    (registers * 3).div_ceil(4).min(registers.saturating_sub(18).max(36))
}

/// The resources of a machine that the CTAs of a kernel may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits<'m> {
    machine: &'m Machine,
    threads: u32,
    occupancy: u32,
}

impl<'m> Limits<'m> {
    /// Limits for CTAs of `threads` threads, `occupancy` of them resident per SM.
    pub(crate) fn of(threads: u32, occupancy: u32, machine: &'m Machine) -> Limits<'m> {
        Limits { machine, threads, occupancy }
    }

    /// Limits for a schedule.
    ///
    /// # Errors
    /// Refuses more threads than a multiprocessor holds, and schedules that no machine runs.
    pub(crate) fn of_schedule(schedule: &Schedule, machine: &'m Machine) -> Result<Limits<'m>, CompileError> {
        schedule.check().map_err(CompileError::refusal)?;
        let (threads, occupancy, most) = (schedule.warps * 32, schedule.occupancy, machine.sm_threads);
        if occupancy.saturating_mul(threads) > most {
            return Err(CompileError::refusal(format!(
                "occupancy = {occupancy} with {threads} threads; a multiprocessor of {machine} holds {most} threads"
            )));
        }
        Ok(Limits::of(threads, occupancy, machine))
    }

    /// Registers of a thread.
    fn registers(&self) -> u32 {
        let share = self.machine.sm_registers / (self.threads * self.occupancy).max(1);
        registers_per_thread(self.threads, self.occupancy).min(share)
    }

    /// The registers that tiles may take, as in [`registers_of_tiles`].
    pub(crate) fn of_tiles(&self) -> u32 {
        most_of_tiles(self.registers())
    }

    /// The same in per cent of a thread's registers.
    pub(crate) fn share_of_tiles(&self) -> u32 {
        self.of_tiles() * 100 / self.registers().max(1)
    }

    /// Refuses this many registers of a thread for tiles if they are too many.
    pub(crate) fn check_registers(&self, needed: u32, who: &str) -> Result<(), CompileError> {
        let Limits { threads, occupancy, .. } = self;
        let most = self.of_tiles();
        if needed <= most {
            return Ok(());
        }
        Err(CompileError::refusal(format!(
            "{who} about {needed} registers per thread, but with {threads} threads and an occupancy of {occupancy} they may use {most}; {}",
            self.more_registers(needed)
        )))
    }

    /// The advice in a refusal. If tiles need more than all registers of a multiprocessor, a tile has to be smaller, and a tile of
    /// a dim that is used whole has no other size. Whether another number of warps or a lower occupancy is enough is not known
    /// here: tiles may be repeated in more threads.
    fn more_registers(&self, needed: u32) -> &'static str {
        let most = (0..6).map(|n| 32 << n).map(|threads: u32| threads * registers_of_tiles(threads, 1)).max();
        if most.is_some_and(|most| needed.saturating_mul(self.threads) > most) {
            return "smaller tiles, or fewer dims used whole, would help";
        }
        "smaller tiles would help"
    }

    /// Refuses this many bytes of shared memory of a CTA if they are too many. The message mentions the stages if there are
    /// several.
    pub(crate) fn check_shared(&self, needed: u64, stages: u32, who: &str) -> Result<(), CompileError> {
        let (machine, most) = (self.machine, self.machine.cta_shared_bytes);
        if needed <= u64::from(most) {
            return Ok(());
        }
        let mend = match stages {
            _ if needed / u64::from(stages.max(1)) > u64::from(most) => {
                "smaller tiles, or fewer dims used whole, would help"
            }
            0 | 1 => "smaller tiles would help",
            _ => "fewer stages or smaller tiles would help",
        };
        Err(CompileError::refusal(format!(
            "{who} {needed} bytes of shared memory, but a CTA on {machine} has {most}; {mend}"
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_registers_hold_no_fewer_tiles() {
        assert!((0..255).all(|n| most_of_tiles(n) <= most_of_tiles(n + 1)));
        assert_eq!([32, 64, 128, 168, 255].map(most_of_tiles), [24, 46, 96, 126, 192]);
    }

    #[test]
    fn a_mend_is_named_where_it_would_help() {
        let machine = "sm_80".parse().unwrap();
        for (warps, occupancy, want) in [
            (4, 1, "smaller tiles would help"),
            (8, 1, "smaller tiles, or fewer dims used whole, would help"),
            (32, 1, "smaller tiles would help"),
            (16, 1, "smaller tiles, or fewer dims used whole, would help"),
            (2, 3, "smaller tiles would help"),
            (16, 2, "smaller tiles would help"),
        ] {
            let limits = Limits::of(warps * 32, occupancy, &machine);
            let more = limits.of_tiles() + 1;
            assert_eq!(limits.more_registers(more), want, "{warps} warps, occupancy {occupancy}");
        }
        // A row of 100000 elements, and 49152 registers for tiles: neither warps nor occupancy help.
        for (warps, occupancy) in [(1, 1), (4, 1), (32, 1), (4, 2), (8, 8)] {
            let limits = Limits::of(warps * 32, occupancy, &machine);
            let said =
                limits.check_registers(100_000_u32.div_ceil(warps * 32), "the tiles need").unwrap_err().to_string();
            assert!(said.ends_with("; smaller tiles, or fewer dims used whole, would help"), "{said}");
            let said =
                limits.check_shared(400_000 * u64::from(warps), warps, "the tiles need").unwrap_err().to_string();
            assert!(said.ends_with("; smaller tiles, or fewer dims used whole, would help"), "{said}");
        }
        let limits = Limits::of(128, 1, &machine);
        for (bytes, stages, want) in
            [(400_000, 4, "fewer stages or smaller tiles"), (170_000, 2, "fewer stages or smaller tiles")]
        {
            let said = limits.check_shared(bytes, stages, "the tiles need").unwrap_err().to_string();
            assert!(said.ends_with(&format!("; {want} would help")), "{said}");
        }
    }
}
