//! What a target may have that others lack.

use atlas_dsl::table;

/// What a capability is called.
#[derive(Clone, Copy, Debug)]
pub struct CapabilityInfo {
    /// As in the PTX ISA.
    pub name: &'static str,
}

const fn called(name: &'static str) -> CapabilityInfo {
    CapabilityInfo { name }
}

table! {
    /// An instruction, or a unit with instructions of its own, that some targets have.
    Capability: CapabilityInfo {
        /// Copies from global to shared memory that threads issue and wait for.
        CpAsync = called("cp.async"),
        /// Products of 16-bit operands by `mma.sync.m16n8k16`.
        MmaHalf = called("mma.m16n8k16"),
        /// Products of tf32 operands by `mma.sync.m16n8k8`.
        MmaTf32 = called("mma.m16n8k8.tf32"),
        /// Products of f64 by `mma.sync.m16n8k8`.
        MmaF64 = called("mma.m16n8k8.f64"),
        /// Conversions from and to floats of 8 bits, two at once.
        ConvertFp8 = called("cvt.e4m3x2"),
        /// Stores of 8x8 blocks from registers to shared memory.
        Stmatrix = called("stmatrix"),
        /// Atomic sums of bf16.
        AtomicBf16 = called("red.add.bf16"),
        /// Atomic sums of 16 bytes of f32, f16 or bf16.
        AtomicVectors = called("red.add.v4.f32"),
        /// Clusters of CTAs that read each other's shared memory.
        Clusters = called("clusters"),
        /// The copy engine: tensor maps, bulk copies, and barriers that expect bytes.
        Tma = called("tma"),
        /// Warpgroups that give registers to each other.
        SetMaxNReg = called("setmaxnreg"),
        /// Asynchronous products of a warpgroup.
        Wgmma = called("wgmma"),
        /// Products that accumulate in tensor memory.
        Tcgen05 = called("tcgen05"),
    }
}

/// A set of capabilities.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities(u32);

impl Capabilities {
    /// The set of these.
    pub const fn of(all: &[Capability]) -> Capabilities {
        Capabilities(0).and(all)
    }

    /// This set and these.
    pub const fn and(self, more: &[Capability]) -> Capabilities {
        let (mut set, mut i) = (self.0, 0);
        while i < more.len() {
            set |= 1 << more[i] as u32;
            i += 1;
        }
        Capabilities(set)
    }

    /// True if it has this one.
    pub const fn has(self, one: Capability) -> bool {
        self.0 & 1 << one as u32 != 0
    }
}
