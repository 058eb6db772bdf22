//! The key of a compiled kernel: a hash of everything that its PTX depends on.

use atlas_codegen::Target;
use atlas_dsl::Schedule;
use sha2::{Digest, Sha256};
use std::fmt;

/// Everything that a kernel's PTX depends on, except LLVM: the store has one folder for each version of LLVM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyParts<'a> {
    /// Canonical Tile IR, which holds the tile sizes and the specialization.
    pub tile_ir: &'a str,
    /// The schedule.
    pub schedule: Schedule,
    /// The target that it is compiled for.
    pub target: Target,
    /// The lowest PTX version that the target allows.
    pub ptx_version: (u32, u32),
    /// The hash of the code generator's sources: see `atlas_codegen::toolchain::toolchain_id`.
    pub toolchain: &'a str,
}

/// SHA-256 of [`KeyParts`]; prints as 64 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KernelKey(pub [u8; 32]);

impl KernelKey {
    /// The key of these parts. Each part is hashed with its length, so no two lists of parts give the same bytes.
    pub fn of(parts: &KeyParts<'_>) -> KernelKey {
        let KeyParts { tile_ir, schedule, target, ptx_version: (major, minor), toolchain } = parts;
        let (schedule, target) = (schedule.to_string(), target.to_string());
        let ptx = format!("{major}.{minor}");
        let mut hash = Sha256::new();
        for part in ["atlas kernel 1", tile_ir, &schedule, &target, &ptx, toolchain] {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part.as_bytes());
        }
        KernelKey(hash.finalize().into())
    }
}

impl fmt::Display for KernelKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for KernelKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KernelKey({self})")
    }
}
