//! Instruction sets: which instructions code for a target may use. What a GPU holds is a [`Machine`](super::Machine).

use super::{Capabilities, Capability};
use Capability::{
    AtomicBf16, AtomicVectors, Clusters, ConvertFp8, CpAsync, MmaF64, MmaHalf, MmaTf32, SetMaxNReg, Stmatrix, Tcgen05,
    Tma, Wgmma,
};
use atlas_dsl::DType;
use atlas_dsl::op::BinaryOp;
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

/// What is known of a target.
#[derive(Clone, Copy, Debug)]
struct TargetRow {
    target: Target,
    /// Lowest PTX version that knows it.
    ptx: (u32, u32),
    has: Capabilities,
}

const fn row(sm: u32, specific: bool, ptx: (u32, u32), has: Capabilities) -> TargetRow {
    TargetRow { target: Target { sm, specific }, ptx, has }
}

const AMPERE: Capabilities = Capabilities::of(&[CpAsync, MmaHalf, MmaTf32]);
const HOPPER: Capabilities = AMPERE.and(&[ConvertFp8, MmaF64, Stmatrix, AtomicBf16, AtomicVectors, Clusters, Tma]);

/// The targets that the code generator lowers for, those that only one capability runs last.
///
/// `wgmma` is in no target but `sm_90a`, `tcgen05` in that of data-center Blackwell alone: a later number is not a larger
/// instruction set (PTX ISA 8.7, target notes of each instruction).
const ROWS: [TargetRow; 6] = [
    row(80, false, (7, 1), AMPERE),
    row(89, false, (7, 8), AMPERE.and(&[ConvertFp8])),
    row(90, false, (7, 8), HOPPER),
    row(90, true, (8, 0), HOPPER.and(&[SetMaxNReg, Wgmma])),
    row(100, true, (8, 6), HOPPER.and(&[SetMaxNReg, Tcgen05])),
    row(120, true, (8, 7), HOPPER.and(&[SetMaxNReg])),
];

/// The first CUDA version whose driver compiles PTX 8.0, which has `wgmma`.
const WGMMA_DRIVER: (u32, u32) = (12, 0);

impl Target {
    /// Every target of the table, in its order.
    pub fn known() -> impl Iterator<Item = Target> {
        rows().map(|r| r.target)
    }

    /// Every target whose code runs on later GPUs too: what kernels are compiled to where nobody asks for another.
    pub fn all() -> Vec<Target> {
        Target::known().filter(|t| !t.specific).collect()
    }

    /// The targets whose code one capability alone runs.
    pub fn specific() -> impl Iterator<Item = Target> {
        Target::known().filter(|t| t.specific)
    }

    /// The best of [`Target::all`] for a device of this compute capability: the highest not above it.
    pub fn for_capability(major: u32, minor: u32) -> Option<Target> {
        Target::all().into_iter().filter(|t| t.sm <= major * 10 + minor).max()
    }

    /// What kernels are compiled to on a device of this compute capability, whose driver serves this CUDA version: the target
    /// of its capability alone where that has instructions that the code generator uses (`wgmma`) and the driver knows its PTX,
    /// else as [`Target::for_capability`].
    pub fn for_device(major: u32, minor: u32, driver: (u32, u32)) -> Option<Target> {
        let portable = Target::for_capability(major, minor)?;
        let own = Target::specific().find(|t| t.sm == major * 10 + minor && t.has(Wgmma));
        Some(own.filter(|_| driver >= WGMMA_DRIVER).unwrap_or(portable))
    }

    /// True if the code generator lowers for it.
    pub fn is_known(self) -> bool {
        self.row().is_some()
    }

    /// True if code for it may use this. A target that is not in the table has nothing.
    pub fn has(self, capability: Capability) -> bool {
        self.row().is_some_and(|r| r.has.has(capability))
    }

    /// The first target of the table that has this, if any has.
    pub fn first_with(capability: Capability) -> Option<Target> {
        Target::known().find(|t| t.has(capability))
    }

    /// True if a GPU of this compute capability (times ten) runs its code.
    pub fn runs_on(self, sm: u32) -> bool {
        if self.specific { sm == self.sm } else { sm >= self.sm }
    }

    /// The lowest PTX ISA version that knows this target; none if the table does not.
    pub fn ptx_version(self) -> Option<(u32, u32)> {
        self.row().map(|r| r.ptx)
    }

    /// How many consecutive elements an instruction combines with those in memory; `None` if it has no instruction. Those for
    /// the greater and the less of floats give the other operand for NaN.
    pub fn combined_at_once(self, op: BinaryOp, dtype: DType) -> Option<u32> {
        let vectors = self.has(AtomicVectors);
        match (op, dtype) {
            (BinaryOp::Add, DType::Bf16) if !self.has(AtomicBf16) => None,
            (BinaryOp::Add, DType::F32 | DType::F16 | DType::Bf16) if vectors => Some(16 / dtype.bytes()),
            (BinaryOp::Add, DType::F16 | DType::Bf16) => Some(2),
            (BinaryOp::Add, DType::F32 | DType::F64 | DType::I32 | DType::I64) => Some(1),
            (BinaryOp::Max | BinaryOp::Min, DType::I32 | DType::I64) => Some(1),
            _ => None,
        }
    }

    fn row(self) -> Option<TargetRow> {
        rows().find(|r| r.target == self)
    }
}

#[cfg(not(test))]
fn rows() -> impl Iterator<Item = TargetRow> {
    ROWS.into_iter()
}

/// The table, and the row that a test makes up.
#[cfg(test)]
fn rows() -> impl Iterator<Item = TargetRow> {
    ROWS.into_iter().chain(tests::MADE_UP.get())
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sm_{}{}", self.sm, if self.specific { "a" } else { "" })
    }
}

/// What to say of a text that names no arch: all that are known, and the one that is meant, if it is spelled in another way or is
/// the name of a GPU.
pub(super) fn unknown_arch(text: &str, known: &[String]) -> String {
    let lower = text.to_lowercase();
    let meant = match lower.as_str() {
        "a100" | "ampere" => "sm_80".to_owned(),
        "l4" | "l40" | "l40s" | "ada" => "sm_89".to_owned(),
        "h100" | "h200" | "gh200" | "hopper" => "sm_90a".to_owned(),
        "b100" | "b200" | "blackwell" => "sm_100a".to_owned(),
        number => {
            let number = number.strip_prefix("compute").or_else(|| number.strip_prefix("sm")).unwrap_or(number);
            format!("sm_{}", number.trim_start_matches(['_', '-', ' ']).replace('.', ""))
        }
    };
    let hint = if known.contains(&meant) { format!("; did you mean `{meant}`?") } else { String::new() };
    format!("unknown arch `{text}`; this compiler lowers for {}{hint}", known.join(", "))
}

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Target, String> {
        let names = || Target::known().map(|t| t.to_string()).collect::<Vec<_>>();
        let found = Target::known().find(|t| t.to_string() == text);
        found.ok_or_else(|| unknown_arch(text, &names()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arch::{Machine, Platform};
    use std::cell::Cell;

    thread_local! {
        /// A target that no vendor has.
        pub(super) static MADE_UP: Cell<Option<TargetRow>> = const { Cell::new(None) };
    }

    #[test]
    fn every_target_is_read_as_it_is_printed() {
        for text in ["sm_80", "sm_89", "sm_90", "sm_90a", "sm_100a", "sm_120a"] {
            let target: Target = text.parse().unwrap();
            assert_eq!(target.to_string(), text);
            assert!(target.is_known());
        }
        for text in ["sm_70", "sm_80a", "sm_100", "sm_090", "sm_", ""] {
            let error = text.parse::<Target>().unwrap_err();
            let known = "this compiler lowers for sm_80, sm_89, sm_90, sm_90a, sm_100a, sm_120a";
            assert_eq!(error, format!("unknown arch `{text}`; {known}"));
        }
    }

    /// The portable target of a device.
    #[test]
    fn devices_get_code_that_later_ones_run_too() {
        for (capability, target) in [((8, 6), "sm_80"), ((9, 0), "sm_90"), ((10, 0), "sm_90"), ((12, 1), "sm_90")] {
            let best = Target::for_capability(capability.0, capability.1);
            assert_eq!(best, target.parse().ok());
        }
        assert_eq!(Target::for_capability(7, 5), None);
    }

    #[test]
    fn a_later_number_is_not_a_larger_instruction_set() {
        let having = |c: Capability| Target::known().filter(|t| t.has(c)).map(|t| t.to_string()).collect::<Vec<_>>();
        assert_eq!(having(Wgmma), ["sm_90a"]);
        assert_eq!(having(Tcgen05), ["sm_100a"]);
        assert_eq!(having(SetMaxNReg), ["sm_90a", "sm_100a", "sm_120a"]);
        assert_eq!(having(Stmatrix), ["sm_90", "sm_90a", "sm_100a", "sm_120a"]);
        assert_eq!(having(ConvertFp8), ["sm_89", "sm_90", "sm_90a", "sm_100a", "sm_120a"]);
        assert!(Target::known().all(|t| t.has(CpAsync)));
        assert!(Capability::ALL.iter().all(|&c| Target::first_with(c).is_some()));
        let unknown = Target { sm: 75, specific: false };
        assert!(Capability::ALL.iter().all(|&c| !unknown.has(c)) && unknown.ptx_version().is_none());
    }

    #[test]
    fn a_device_gets_the_target_of_its_own_where_that_pays() {
        let of = |major, minor, driver| Target::for_device(major, minor, driver).map(|t| t.to_string());
        assert_eq!(of(9, 0, (12, 0)), Some("sm_90a".to_owned()));
        assert_eq!(of(9, 0, (11, 8)), Some("sm_90".to_owned()));
        assert_eq!(of(10, 0, (13, 0)), Some("sm_90".to_owned()));
        assert_eq!(of(8, 6, (13, 0)), Some("sm_80".to_owned()));
        assert_eq!(of(7, 5, (13, 0)), None);
    }

    /// A new target is a row and nothing else: it is parsed, chosen for its devices, and has what its row says.
    #[test]
    fn a_made_up_target_is_one_row() {
        let made = row(86, false, (7, 1), AMPERE.and(&[Stmatrix]));
        assert_eq!(Target::for_capability(8, 6), "sm_80".parse().ok());
        MADE_UP.set(Some(made));
        let target: Target = "sm_86".parse().unwrap();
        assert_eq!(Target::for_capability(8, 7), Some(target));
        assert_eq!(("sm_86".parse::<Machine>().unwrap()).target(), target);
        assert_eq!("sm_86".parse::<Platform>().unwrap().target, target);
        assert!(target.has(Stmatrix) && !target.has(Tma));
        MADE_UP.set(None);
        assert!(!target.is_known());
    }
}
