//! Classes of instructions, for the mix.

use crate::program::Op;
use crate::syntax::ast::Space;

/// A class of instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
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

impl Class {
    /// All classes, in the order of their numbers.
    pub const ALL: [Class; 15] = [
        Class::Alu,
        Class::Warp,
        Class::GlobalLoad,
        Class::GlobalStore,
        Class::SharedLoad,
        Class::SharedStore,
        Class::OtherMemory,
        Class::Atomic,
        Class::CpAsync,
        Class::Bulk,
        Class::Sync,
        Class::Mma,
        Class::Wgmma,
        Class::Control,
        Class::Other,
    ];

    /// Its name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Class::Alu => "alu",
            Class::Warp => "warp",
            Class::GlobalLoad => "ld.global",
            Class::GlobalStore => "st.global",
            Class::SharedLoad => "ld.shared",
            Class::SharedStore => "st.shared",
            Class::OtherMemory => "memory",
            Class::Atomic => "atom",
            Class::CpAsync => "cp.async",
            Class::Bulk => "bulk",
            Class::Sync => "sync",
            Class::Mma => "mma",
            Class::Wgmma => "wgmma",
            Class::Control => "control",
            Class::Other => "other",
        }
    }

    /// The class of an operation.
    pub fn of(op: &Op) -> Class {
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
            | Op::Cvta { .. } => Class::Alu,
            Op::Elect { .. }
            | Op::ActiveMask { .. }
            | Op::Shfl { .. }
            | Op::Vote { .. }
            | Op::Match { .. }
            | Op::Redux { .. } => Class::Warp,
            Op::Load { access, .. } => match access.space {
                Space::Global => Class::GlobalLoad,
                Space::Shared | Space::SharedCluster => Class::SharedLoad,
                _ => Class::OtherMemory,
            },
            Op::Store { access, .. } => match access.space {
                Space::Global => Class::GlobalStore,
                Space::Shared | Space::SharedCluster => Class::SharedStore,
                _ => Class::OtherMemory,
            },
            Op::LdMatrix { .. } => Class::SharedLoad,
            Op::StMatrix { .. } => Class::SharedStore,
            Op::Atom { .. } => Class::Atomic,
            Op::CpAsync { .. } | Op::CpAsyncCommit | Op::CpAsyncWait { .. } | Op::CpAsyncWaitAll => Class::CpAsync,
            Op::Bulk(_) | Op::BulkPrefetch | Op::BulkCommit | Op::BulkWait { .. } => Class::Bulk,
            Op::Bar { .. }
            | Op::BarWarp { .. }
            | Op::Fence(_)
            | Op::ClusterArrive { .. }
            | Op::ClusterWait { .. }
            | Op::CpAsyncMbarrierArrive { .. }
            | Op::Mbarrier { .. } => Class::Sync,
            Op::Mma(_) => Class::Mma,
            Op::Wgmma(_) | Op::WgmmaFence | Op::WgmmaCommit | Op::WgmmaWait { .. } => Class::Wgmma,
            Op::Branch { .. } | Op::BranchIndex { .. } | Op::Exit | Op::Trap => Class::Control,
            Op::Prefetch { .. } | Op::Hint | Op::SetMaxNReg { .. } => Class::Other,
        }
    }
}
