//! Classes of instructions, for the mix.

use crate::program::Op;
use crate::syntax::ast::Space;

/// A class of instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum InstructionClass {
    /// Arithmetic, comparisons, moves.
    Alu,
    /// Between lanes: shuffles, votes, matches.
    Warp,
    /// Loads of global memory.
    GlobalLoad,
    /// Stores to global memory.
    GlobalStore,
    /// Loads of shared memory, `ldmatrix` too.
    SharedLoad,
    /// Stores to shared memory, `stmatrix` too.
    SharedStore,
    /// Local, constant, parameter and generic accesses.
    OtherMemory,
    /// `atom`, `red`.
    Atomic,
    /// `cp.async` and its groups.
    CpAsync,
    /// Bulk and tensor copies and their groups.
    Bulk,
    /// Barriers, mbarriers, fences.
    Sync,
    /// `mma`.
    Mma,
    /// `wgmma` and its groups.
    Wgmma,
    /// Branches and exits.
    Control,
    /// Hints.
    Other,
}

impl InstructionClass {
    /// All classes, in the order of their numbers.
    pub const ALL: [InstructionClass; 15] = [
        InstructionClass::Alu,
        InstructionClass::Warp,
        InstructionClass::GlobalLoad,
        InstructionClass::GlobalStore,
        InstructionClass::SharedLoad,
        InstructionClass::SharedStore,
        InstructionClass::OtherMemory,
        InstructionClass::Atomic,
        InstructionClass::CpAsync,
        InstructionClass::Bulk,
        InstructionClass::Sync,
        InstructionClass::Mma,
        InstructionClass::Wgmma,
        InstructionClass::Control,
        InstructionClass::Other,
    ];

    /// Its name in reports.
    pub fn name(self) -> &'static str {
        match self {
            InstructionClass::Alu => "alu",
            InstructionClass::Warp => "warp",
            InstructionClass::GlobalLoad => "ld.global",
            InstructionClass::GlobalStore => "st.global",
            InstructionClass::SharedLoad => "ld.shared",
            InstructionClass::SharedStore => "st.shared",
            InstructionClass::OtherMemory => "memory",
            InstructionClass::Atomic => "atom",
            InstructionClass::CpAsync => "cp.async",
            InstructionClass::Bulk => "bulk",
            InstructionClass::Sync => "sync",
            InstructionClass::Mma => "mma",
            InstructionClass::Wgmma => "wgmma",
            InstructionClass::Control => "control",
            InstructionClass::Other => "other",
        }
    }

    /// The class of an operation.
    pub fn of(op: &Op) -> InstructionClass {
        match op {
            Op::Alu { .. }
            | Op::Approximate { .. }
            | Op::Setp { .. }
            | Op::Set { .. }
            | Op::Selp { .. }
            | Op::PredLogic { .. }
            | Op::Carry { .. }
            | Op::MovSpecial { .. }
            | Op::Pack { .. }
            | Op::Unpack { .. }
            | Op::IsSpace { .. }
            | Op::Mapa { .. }
            | Op::Cvta { .. } => InstructionClass::Alu,
            Op::Elect { .. }
            | Op::ActiveMask { .. }
            | Op::Shfl { .. }
            | Op::Vote { .. }
            | Op::Match { .. }
            | Op::Redux { .. } => InstructionClass::Warp,
            Op::Load { access, .. } => match access.space {
                Space::Global => InstructionClass::GlobalLoad,
                Space::Shared | Space::SharedCluster => InstructionClass::SharedLoad,
                _ => InstructionClass::OtherMemory,
            },
            Op::Store { access, .. } => match access.space {
                Space::Global => InstructionClass::GlobalStore,
                Space::Shared | Space::SharedCluster => InstructionClass::SharedStore,
                _ => InstructionClass::OtherMemory,
            },
            Op::LdMatrix { .. } => InstructionClass::SharedLoad,
            Op::StMatrix { .. } => InstructionClass::SharedStore,
            Op::Atom { .. } => InstructionClass::Atomic,
            Op::CpAsync { .. } | Op::CpAsyncCommit | Op::CpAsyncWait { .. } | Op::CpAsyncWaitAll => {
                InstructionClass::CpAsync
            }
            Op::Bulk(_) | Op::BulkPrefetch { .. } | Op::BulkCommit | Op::BulkWait { .. } => InstructionClass::Bulk,
            Op::Bar { .. }
            | Op::BarWarp { .. }
            | Op::Fence(_)
            | Op::ClusterArrive { .. }
            | Op::ClusterWait { .. }
            | Op::CpAsyncMbarrierArrive { .. }
            | Op::Mbarrier { .. } => InstructionClass::Sync,
            Op::Mma(_) => InstructionClass::Mma,
            Op::Wgmma(_) | Op::WgmmaFence | Op::WgmmaCommit | Op::WgmmaWait { .. } => InstructionClass::Wgmma,
            Op::Branch { .. } | Op::BranchIndex { .. } | Op::Exit | Op::Trap => InstructionClass::Control,
            Op::Prefetch { .. } | Op::Hint | Op::SetMaxNReg { .. } => InstructionClass::Other,
        }
    }
}
