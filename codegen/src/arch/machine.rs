//! What a GPU holds and how fast it is, from its driver or from the table of GPUs that exist.
//!
//! A machine decides which configs are refused and which is chosen, never which instruction is legal. What a kernel is
//! compiled to follows from the [`Target`] alone, so one compiled kernel serves every machine that does not refuse it. A
//! [`Platform`](super::Platform) is the two together: what a kernel is compiled for.

use super::Target;
use super::target::unknown_arch;
use std::fmt;
use std::str::FromStr;

/// A GPU, as far as the choice of a config depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Machine {
    /// Compute capability times ten: 80, 86, 120.
    pub sm: u32,
    /// What kernels are compiled to for it.
    pub target: Target,
    /// Shared memory that one CTA may ask for, in bytes.
    pub cta_shared_bytes: u32,
    /// Shared memory of a multiprocessor, in bytes.
    pub sm_shared_bytes: u32,
    /// Threads that a multiprocessor holds.
    pub sm_threads: u32,
    /// 32-bit registers of a multiprocessor.
    pub sm_registers: u32,
    /// Multiprocessors.
    pub sms: u32,
    /// Size of the L2 cache, in bytes.
    pub l2_bytes: u64,
    /// What a multiprocessor does in a clock.
    pub rates: Rates,
}

/// What a multiprocessor of a generation does in a clock, and how many CTAs it tracks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Rates {
    /// Fused multiply-adds of `mma.sync` on 16-bit operands into f32, as many as real code gets.
    pub tensor: u32,
    /// Its share of DRAM, in tenths of a byte.
    pub dram_tenths: u32,
    /// Its share of L2, in bytes.
    pub l2_bytes: u32,
    /// CTAs that it tracks.
    pub ctas: u32,
}

/// One row per compute capability: what its GPUs hold, with the multiprocessors and the L2 cache of the usual one.
struct MachineRow {
    sm: u32,
    /// In KiB, of a CTA and of a multiprocessor.
    shared: (u32, u32),
    threads: u32,
    sms: u32,
    l2: u64,
    rates: Rates,
}

const fn rates(tensor: u32, dram_tenths: u32, l2_bytes: u32, ctas: u32) -> Rates {
    Rates { tensor, dram_tenths, l2_bytes, ctas }
}

/// A100, A10, Orin, RTX 4090, H100, B200, B300, Thor, RTX 5090, GB10; sorted by compute capability.
///
/// Rates come from data sheets, except Hopper's, which are fitted to H200 measurements (`runtime/src/cost/model.rs` says how). A
/// generation gets the share of its data sheet's DRAM bandwidth that Hopper gets of its own, for the clock and the number of
/// multiprocessors that stand beside it. Kernels use no tensor core instruction of data centers that came after Hopper, so
/// those count as Hopper's.
const ROWS: [MachineRow; 10] = [
    MachineRow { sm: 80, shared: (163, 164), threads: 2048, sms: 108, l2: 41_943_040, rates: rates(920, 120, 28, 32) },
    // 600 GB/s for 72 at 1.70 GHz.
    MachineRow { sm: 86, shared: (99, 100), threads: 1536, sms: 72, l2: 6_291_456, rates: rates(460, 43, 16, 16) },
    // 205 GB/s for 16 at 1.3 GHz.
    MachineRow { sm: 87, shared: (163, 164), threads: 1536, sms: 16, l2: 4_194_304, rates: rates(920, 80, 28, 16) },
    MachineRow { sm: 89, shared: (99, 100), threads: 1536, sms: 128, l2: 75_497_472, rates: rates(230, 30, 16, 24) },
    MachineRow { sm: 90, shared: (227, 228), threads: 2048, sms: 132, l2: 52_428_800, rates: rates(1600, 163, 60, 32) },
    // 8 TB/s for 148 at 1.97 GHz, and so the next.
    MachineRow {
        sm: 100,
        shared: (227, 228),
        threads: 2048,
        sms: 148,
        l2: 132_644_864,
        rates: rates(1600, 217, 60, 32),
    },
    MachineRow {
        sm: 103,
        shared: (227, 228),
        threads: 2048,
        sms: 148,
        l2: 132_644_864,
        rates: rates(1600, 217, 60, 32),
    },
    // 273 GB/s for 20 at 1.57 GHz.
    MachineRow { sm: 110, shared: (227, 228), threads: 2048, sms: 20, l2: 33_554_432, rates: rates(1600, 68, 60, 24) },
    // 1.79 TB/s for 170 at 2.41 GHz; half rate where sums are single precision, as on 89.
    MachineRow { sm: 120, shared: (99, 100), threads: 1536, sms: 170, l2: 100_663_296, rates: rates(230, 35, 16, 24) },
    // 273 GB/s for 48 at 2.4 GHz.
    MachineRow { sm: 121, shared: (99, 100), threads: 1536, sms: 48, l2: 25_165_824, rates: rates(230, 19, 16, 24) },
];

/// 32-bit registers of a multiprocessor, in every generation so far.
const REGISTERS: u32 = 65536;

impl Machine {
    /// The GPUs of the table.
    pub fn all() -> Vec<Machine> {
        ROWS.iter().map(MachineRow::machine).collect()
    }

    /// The GPU of the table that is nearest to one of this compute capability (times ten): the latest that is not later.
    /// None if all are later.
    pub fn nearest(sm: u32) -> Option<Machine> {
        ROWS.iter().rev().find(|r| r.sm <= sm).map(MachineRow::machine)
    }

    /// The most shared memory that one CTA has on any GPU that runs this target, in bytes: what code for it may use
    /// somewhere.
    pub fn most_shared_bytes(target: Target) -> u32 {
        Machine::running(target).map(|m| m.cta_shared_bytes).max().unwrap_or(0)
    }

    /// The most threads that a multiprocessor holds on any GPU that runs this target.
    pub fn most_threads(target: Target) -> u32 {
        Machine::running(target).map(|m| m.sm_threads).max().unwrap_or(0)
    }

    /// What kernels are compiled to for it. A machine of the table has the best target that later machines run too; a device has
    /// [`Target::for_device`].
    pub fn target(&self) -> Target {
        self.target
    }

    fn running(target: Target) -> impl Iterator<Item = Machine> {
        Machine::all().into_iter().filter(move |m| target.runs_on(m.sm))
    }
}

impl MachineRow {
    fn machine(&self) -> Machine {
        let target = Target::for_capability(self.sm / 10, self.sm % 10);
        Machine {
            sm: self.sm,
            target: target.unwrap_or(Target { sm: self.sm, specific: false }),
            cta_shared_bytes: self.shared.0 * 1024,
            sm_shared_bytes: self.shared.1 * 1024,
            sm_threads: self.threads,
            sm_registers: REGISTERS,
            sms: self.sms,
            l2_bytes: self.l2,
            rates: self.rates,
        }
    }
}

impl From<Target> for Machine {
    /// The usual GPU of the target's own generation; of a target that is older than all, which nothing is compiled for, the
    /// oldest.
    fn from(target: Target) -> Machine {
        Machine { target, ..Machine::nearest(target.sm).unwrap_or_else(|| ROWS[0].machine()) }
    }
}

impl fmt::Display for Machine {
    /// Its arch: `sm_86`, or a target that no other machine runs, `sm_90a`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.target.specific { self.target.fmt(f) } else { write!(f, "sm_{}", self.sm) }
    }
}

impl FromStr for Machine {
    type Err = String;

    fn from_str(text: &str) -> Result<Machine, String> {
        let specific = Target::specific().map(Machine::from);
        let all: Vec<Machine> = Machine::all().into_iter().chain(specific).collect();
        let names = || all.iter().map(Machine::to_string).collect::<Vec<_>>();
        let found = all.iter().find(|m| m.to_string() == text).copied();
        found.ok_or_else(|| unknown_arch(text, &names()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sorted_and_each_row_runs_a_target() {
        assert!(ROWS.is_sorted_by_key(|r| r.sm));
        for machine in Machine::all() {
            assert!(machine.target().is_known() && Machine::nearest(machine.sm) == Some(machine));
        }
        assert_eq!(Machine::nearest(101).map(|m| m.sm), Some(100));
        assert_eq!(Machine::nearest(75), None);
    }

    #[test]
    fn a_gpu_holds_less_than_the_target_that_it_runs() {
        let row = |arch: &str| {
            let m: Machine = arch.parse().unwrap();
            (m.target().to_string(), m.cta_shared_bytes / 1024, m.sm_shared_bytes / 1024, m.sm_threads)
        };
        assert_eq!(row("sm_80"), ("sm_80".to_owned(), 163, 164, 2048));
        assert_eq!(row("sm_86"), ("sm_80".to_owned(), 99, 100, 1536));
        assert_eq!(row("sm_87"), ("sm_80".to_owned(), 163, 164, 1536));
        assert_eq!(row("sm_89"), ("sm_89".to_owned(), 99, 100, 1536));
        assert_eq!(row("sm_103"), ("sm_90".to_owned(), 227, 228, 2048));
        assert_eq!(row("sm_120"), ("sm_90".to_owned(), 99, 100, 1536));
    }

    #[test]
    fn an_arch_is_a_gpu_that_a_target_runs_on() {
        let known = "this compiler lowers for sm_80, sm_86, sm_87, sm_89, sm_90, sm_100, sm_103, sm_110, sm_120, sm_121, \
             sm_90a, sm_100a, sm_120a";
        assert_eq!("sm_90a".parse::<Machine>().map(|m| (m.sm, m.target().to_string())), Ok((90, "sm_90a".to_owned())));
        for text in ["sm_75", "sm_86a", "sm_85", ""] {
            assert_eq!(text.parse::<Machine>(), Err(format!("unknown arch `{text}`; {known}")));
        }
        for (text, meant) in
            [("80", "sm_80"), ("sm90", "sm_90"), ("compute_103", "sm_103"), ("SM_90A", "sm_90a"), ("H100", "sm_90a")]
        {
            let wanted = format!("unknown arch `{text}`; {known}; did you mean `{meant}`?");
            assert_eq!(text.parse::<Machine>(), Err(wanted));
        }
    }

    #[test]
    fn a_target_stands_for_the_gpu_of_its_generation() {
        for target in Target::all() {
            let machine = Machine::from(target);
            assert_eq!((machine.sm, machine.target()), (target.sm, target));
            assert_eq!(Ok(machine), target.to_string().parse());
        }
    }

    #[test]
    fn code_may_use_what_its_largest_machine_holds() {
        let sm = |sm, specific| Target { sm, specific };
        assert_eq!(Machine::most_shared_bytes(sm(80, false)), 227 * 1024);
        assert_eq!(Machine::most_shared_bytes(sm(89, true)), 99 * 1024);
        assert_eq!(Machine::most_threads(sm(89, true)), 1536);
    }
}
