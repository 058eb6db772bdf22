//! Instruction sets: what code may say. What a GPU holds is a [`Machine`](crate::Machine).

use std::fmt;
use std::str::FromStr;

/// A compilation target, spelled `sm_80` or `sm_90a`: the instruction set, and so all that decides which instruction is
/// legal. It is part of a kernel's key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Target {
    /// Compute capability times ten: 80, 89, 90.
    pub sm: u32,
    /// True for the architecture-specific target (`sm_90a`), which runs on that capability alone.
    pub specific: bool,
}

/// One row per target: what the passes may assume.
struct Row {
    target: Target,
    /// Lowest PTX version that knows the target.
    ptx: (u32, u32),
    /// Has `stmatrix`.
    stmatrix: bool,
}

const fn row(sm: u32, specific: bool, ptx: (u32, u32), stmatrix: bool) -> Row {
    Row { target: Target { sm, specific }, ptx, stmatrix }
}

/// The targets that the code generator lowers for, those that only one capability runs last.
const ROWS: [Row; 6] = [
    row(80, false, (7, 1), false),
    row(89, false, (7, 8), false),
    row(90, false, (7, 8), true),
    row(90, true, (8, 0), true),
    row(100, true, (8, 6), true),
    row(120, true, (8, 7), true),
];

impl Target {
    /// Every target whose code runs on later GPUs too: what kernels are compiled to where nobody asks for another.
    pub fn all() -> Vec<Target> {
        ROWS.iter().map(|r| r.target).filter(|t| !t.specific).collect()
    }

    /// The targets whose code one capability alone runs.
    pub fn specific() -> impl Iterator<Item = Target> {
        ROWS.iter().map(|r| r.target).filter(|t| t.specific)
    }

    /// The best of [`Target::all`] for a device of this compute capability: the highest not above it.
    pub fn for_capability(major: u32, minor: u32) -> Option<Target> {
        Target::all().into_iter().rev().find(|t| t.sm <= major * 10 + minor)
    }

    /// True if the code generator lowers for it.
    pub fn is_known(self) -> bool {
        ROWS.iter().any(|r| r.target == self)
    }

    /// True if the target stores 8x8 blocks from registers to shared memory in one instruction.
    pub fn has_stmatrix(self) -> bool {
        self.row().stmatrix
    }

    /// The lowest PTX ISA version that knows this target.
    pub fn ptx_version(self) -> (u32, u32) {
        self.row().ptx
    }

    fn row(self) -> &'static Row {
        ROWS.iter().find(|r| r.target == self).unwrap_or(&ROWS[0])
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sm_{}{}", self.sm, if self.specific { "a" } else { "" })
    }
}

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Target, String> {
        let known = || ROWS.iter().map(|r| r.target.to_string()).collect::<Vec<_>>().join(", ");
        let found = ROWS.iter().map(|r| r.target).find(|t| t.to_string() == text);
        found.ok_or_else(|| format!("unknown arch `{text}`; this compiler lowers for {}", known()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_target_is_read_as_it_is_printed() {
        for text in ["sm_80", "sm_89", "sm_90", "sm_90a", "sm_100a", "sm_120a"] {
            let target: Target = text.parse().unwrap();
            assert_eq!(target.to_string(), text);
            assert!(target.is_known());
        }
        for text in ["sm_70", "sm_80a", "sm_100", "sm_090", "90a", "sm_", ""] {
            let error = text.parse::<Target>().unwrap_err();
            let known = "this compiler lowers for sm_80, sm_89, sm_90, sm_90a, sm_100a, sm_120a";
            assert_eq!(error, format!("unknown arch `{text}`; {known}"));
        }
    }

    /// Code for one capability alone is never what a device gets unasked.
    #[test]
    fn devices_get_code_that_later_ones_run_too() {
        for (capability, target) in [((8, 6), "sm_80"), ((9, 0), "sm_90"), ((10, 0), "sm_90"), ((12, 1), "sm_90")] {
            let best = Target::for_capability(capability.0, capability.1);
            assert_eq!(best, target.parse().ok());
        }
        assert_eq!(Target::for_capability(7, 5), None);
    }
}
