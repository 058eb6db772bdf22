//! Instruction sets: what code may say. What a GPU holds is a [`Machine`](crate::Machine).

use std::fmt;
use std::str::FromStr;

/// A compilation target, spelled `sm_80` or `sm_90a`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Target {
    /// Compute capability times ten: 80, 89, 90.
    pub sm: u32,
    /// True for the architecture-specific target (`sm_90a`), which runs on that capability alone.
    pub specific: bool,
}

/// One row per generation: what the passes may assume.
struct Row {
    sm: u32,
    /// Lowest PTX version that knows the target.
    ptx: (u32, u32),
    /// Has `stmatrix`.
    stmatrix: bool,
}

/// The targets that the code generator lowers for.
const ROWS: [Row; 3] = [
    Row { sm: 80, ptx: (7, 1), stmatrix: false },
    Row { sm: 89, ptx: (7, 8), stmatrix: false },
    Row { sm: 90, ptx: (7, 8), stmatrix: true },
];

impl Target {
    /// Every supported target.
    pub fn all() -> Vec<Target> {
        ROWS.iter().map(|r| Target { sm: r.sm, specific: false }).collect()
    }

    /// The best supported target for a device of this compute capability: the highest not above it.
    pub fn for_capability(major: u32, minor: u32) -> Option<Target> {
        let sm = major * 10 + minor;
        ROWS.iter().rev().find(|r| r.sm <= sm).map(|r| Target { sm: r.sm, specific: false })
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
        ROWS.iter().find(|r| r.sm == self.sm).unwrap_or(&ROWS[0])
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
        let known = || Target::all().iter().map(Target::to_string).collect::<Vec<_>>().join(", ");
        text.parse_sm()
            .filter(|t| !t.specific && ROWS.iter().any(|r| r.sm == t.sm))
            .ok_or_else(|| format!("unknown arch `{text}`; this compiler lowers for {}", known()))
    }
}

trait ParseSm {
    fn parse_sm(&self) -> Option<Target>;
}

impl ParseSm for str {
    fn parse_sm(&self) -> Option<Target> {
        let rest = self.strip_prefix("sm_")?;
        let (digits, specific) = match rest.strip_suffix('a') {
            Some(d) => (d, true),
            None => (rest, false),
        };
        Some(Target { sm: digits.parse().ok()?, specific })
    }
}
