//! Fusion: `fuse!`, its refusals, the tensors that stay in memory, and that fused kernels compute what their parts do.

mod edges;
mod extents;
mod growth;
mod random;
mod refusals;
mod rows;
mod signatures;
#[cfg(feature = "llvm")]
mod simulated;
mod stages;
