//! The tools on which the emitted PTX depends: the sources of this crate and of `dsl`, and LLVM.

/// A hash of the code generator's sources, which is part of every compiled kernel's key. It is equal in every checkout and
/// build of the same sources, with or without LLVM.
pub fn toolchain_id() -> String {
    format!("atlas-codegen {}", env!("ATLAS_SOURCE_HASH"))
}

/// The version that the loaded LLVM library reports, such as `22.1.8`; `None` in a build without LLVM.
pub fn llvm_version() -> Option<String> {
    #[cfg(feature = "llvm")]
    {
        let (major, minor, patch) = inkwell::support::get_llvm_version();
        Some(format!("{major}.{minor}.{patch}"))
    }
    #[cfg(not(feature = "llvm"))]
    None
}
