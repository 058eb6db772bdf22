//! The tools on which the emitted PTX depends: the sources of this crate and of `dsl`, and LLVM.

/// A hash of the code generator's sources, which is part of every compiled kernel's key. It is equal in every checkout and
/// build of the same sources, with or without LLVM.
pub fn toolchain_id() -> String {
    let short = |hash: &'static str| hash.get(..16).unwrap_or(hash);
    let [vocabulary, dsl] = [atlas_dsl::VOCABULARY_HASH, atlas_dsl::SOURCE_HASH].map(short);
    format!("atlas-gpu-codegen {vocabulary}.{dsl}.{}", short(env!("ATLAS_SOURCE_HASH")))
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

#[cfg(test)]
mod tests {
    use std::path::Path;

    /// Each crate that decides what a kernel compiles to has its part.
    #[test]
    fn this_build_carries_the_hashes_of_its_sources() {
        let package = Path::new(env!("CARGO_MANIFEST_DIR"));
        let short = |folder: &str| atlas_source_hash::of(&package.join(folder)).unwrap()[..16].to_owned();
        let parts = ["../dsl/vocabulary/src", "../dsl/src", "src"].map(short);
        assert_eq!(super::toolchain_id(), format!("atlas-gpu-codegen {}", parts.join(".")));
    }
}
