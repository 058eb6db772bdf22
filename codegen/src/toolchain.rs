//! What the emitted PTX depends on besides its input: this crate and LLVM.

/// The LLVM release that the code generator is written for.
pub const LLVM_VERSION: &str = "22.1";

/// Names the code generator: part of every compiled kernel's key.
pub fn toolchain_id() -> String {
    format!("atlas-codegen {} llvm {LLVM_VERSION}", env!("CARGO_PKG_VERSION"))
}
