//! What a GPU holds: memory, threads and registers, from its driver or from the table of GPUs that exist.
//!
//! A machine decides which configs are refused and which is chosen, never which instruction is legal. What a kernel is
//! compiled to follows from the [`Target`] alone, so one compiled kernel serves every machine that does not refuse it. A
//! [`Platform`] is the two together: what a kernel is compiled for.

use crate::target::Target;
use std::fmt;
use std::str::FromStr;

/// A GPU, as far as the choice of a config depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Machine {
    /// Compute capability times ten: 80, 86, 120.
    pub sm: u32,
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
}

/// One row per compute capability: what its GPUs hold, with the multiprocessors and the L2 cache of the usual one.
struct Row {
    sm: u32,
    /// In KiB, of a CTA and of a multiprocessor.
    shared: (u32, u32),
    threads: u32,
    sms: u32,
    l2: u64,
}

/// V100, T4, A100, A10, Orin, RTX 4090, H100, B200, B300, Thor, RTX 5090, GB10.
const ROWS: [Row; 12] = [
    Row { sm: 70, shared: (96, 96), threads: 2048, sms: 80, l2: 6_291_456 },
    Row { sm: 75, shared: (64, 64), threads: 1024, sms: 40, l2: 4_194_304 },
    Row { sm: 80, shared: (163, 164), threads: 2048, sms: 108, l2: 41_943_040 },
    Row { sm: 86, shared: (99, 100), threads: 1536, sms: 72, l2: 6_291_456 },
    Row { sm: 87, shared: (163, 164), threads: 1536, sms: 16, l2: 4_194_304 },
    Row { sm: 89, shared: (99, 100), threads: 1536, sms: 128, l2: 75_497_472 },
    Row { sm: 90, shared: (227, 228), threads: 2048, sms: 132, l2: 52_428_800 },
    Row { sm: 100, shared: (227, 228), threads: 2048, sms: 148, l2: 132_644_864 },
    Row { sm: 103, shared: (227, 228), threads: 2048, sms: 148, l2: 132_644_864 },
    Row { sm: 110, shared: (227, 228), threads: 2048, sms: 20, l2: 33_554_432 },
    Row { sm: 120, shared: (99, 100), threads: 1536, sms: 170, l2: 100_663_296 },
    Row { sm: 121, shared: (99, 100), threads: 1536, sms: 48, l2: 25_165_824 },
];

/// 32-bit registers of a multiprocessor, in every generation so far.
const REGISTERS: u32 = 65536;

impl Machine {
    /// The GPUs of the table that some target runs on.
    pub fn all() -> Vec<Machine> {
        ROWS.iter().filter_map(Row::machine).collect()
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

    /// What kernels are compiled to for it where nobody asks for another: the best target that runs here, and on later
    /// machines too.
    pub fn target(&self) -> Target {
        Target::for_capability(self.sm / 10, self.sm % 10).unwrap_or(Target { sm: self.sm, specific: false })
    }

    fn running(target: Target) -> impl Iterator<Item = Machine> {
        let runs = move |m: &Machine| if target.specific { m.sm == target.sm } else { m.sm >= target.sm };
        Machine::all().into_iter().filter(runs)
    }
}

impl Row {
    fn machine(&self) -> Option<Machine> {
        Target::for_capability(self.sm / 10, self.sm % 10)?;
        Some(Machine {
            sm: self.sm,
            cta_shared_bytes: self.shared.0 * 1024,
            sm_shared_bytes: self.shared.1 * 1024,
            sm_threads: self.threads,
            sm_registers: REGISTERS,
            sms: self.sms,
            l2_bytes: self.l2,
        })
    }
}

impl From<Target> for Machine {
    /// The usual GPU of the target's own generation.
    fn from(target: Target) -> Machine {
        let all = Machine::all();
        *all.iter().rev().find(|m| m.sm <= target.sm).unwrap_or(&all[0])
    }
}

impl fmt::Display for Machine {
    /// Its arch: `sm_86`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sm_{}", self.sm)
    }
}

impl FromStr for Machine {
    type Err = String;

    fn from_str(text: &str) -> Result<Machine, String> {
        let all = Machine::all();
        let known = || all.iter().map(Machine::to_string).collect::<Vec<_>>().join(", ");
        let found = all.iter().find(|m| m.to_string() == text).copied();
        found.ok_or_else(|| format!("unknown arch `{text}`; this compiler lowers for {}", known()))
    }
}

/// What a kernel is compiled for: what its code may say, and the limits that its config has to keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Platform {
    /// What code may say.
    pub target: Target,
    /// What the GPU holds.
    pub machine: Machine,
}

impl From<Machine> for Platform {
    fn from(machine: Machine) -> Platform {
        Platform { target: machine.target(), machine }
    }
}

impl From<Target> for Platform {
    /// Exactly that target, on the usual GPU of its generation.
    fn from(target: Target) -> Platform {
        Platform { target, machine: target.into() }
    }
}

impl fmt::Display for Platform {
    /// Its arch: the machine's, or a target that only this machine runs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.target.specific { self.target.fmt(f) } else { self.machine.fmt(f) }
    }
}

impl FromStr for Platform {
    type Err = String;

    fn from_str(text: &str) -> Result<Platform, String> {
        match (text.parse::<Target>(), text.parse::<Machine>()) {
            (Ok(target), _) if target.specific => Ok(target.into()),
            (_, Ok(machine)) => Ok(machine.into()),
            (_, Err(e)) => {
                let specific: Vec<String> = Target::specific().map(|t| t.to_string()).collect();
                Err(format!("{e}, {}", specific.join(", ")))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let known =
            "this compiler lowers for sm_80, sm_86, sm_87, sm_89, sm_90, sm_100, sm_103, sm_110, sm_120, sm_121";
        for text in ["sm_75", "sm_90a", "sm_85", "80", ""] {
            assert_eq!(text.parse::<Machine>(), Err(format!("unknown arch `{text}`; {known}")));
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
    fn a_platform_is_a_machine_or_a_target_of_its_own() {
        let read = |text: &str| text.parse::<Platform>().map(|p| (p.to_string(), p.target.to_string(), p.machine.sm));
        let row = |text: &str, target: &str, sm| Ok((text.to_owned(), target.to_owned(), sm));
        assert_eq!(read("sm_86"), row("sm_86", "sm_80", 86));
        assert_eq!(read("sm_90"), row("sm_90", "sm_90", 90));
        assert_eq!(read("sm_90a"), row("sm_90a", "sm_90a", 90));
        assert_eq!(read("sm_120a"), row("sm_120a", "sm_120a", 120));
        let wrong = read("sm_86a");
        assert!(
            wrong.is_err_and(
                |e| e.starts_with("unknown arch `sm_86a`") && e.ends_with("sm_121, sm_90a, sm_100a, sm_120a")
            )
        );
    }

    #[test]
    fn code_may_use_what_its_largest_machine_holds() {
        let sm = |sm, specific| Target { sm, specific };
        assert_eq!(Machine::most_shared_bytes(sm(80, false)), 227 * 1024);
        assert_eq!(Machine::most_shared_bytes(sm(89, true)), 99 * 1024);
        assert_eq!(Machine::most_threads(sm(89, true)), 1536);
    }
}
