//! Tests of the whole project in one binary of the package `atlas-gpu-cli`, because they run its binary `atlas`.

#[cfg(feature = "llvm")]
mod agreement;
mod bad_input;
mod bounds;
#[cfg(feature = "llvm")]
mod bundle;
#[cfg(feature = "llvm")]
mod bundled_packers;
mod chains;
mod cli;
mod command;
mod cost_model;
#[cfg(feature = "llvm")]
mod determinism;
#[cfg(feature = "llvm")]
mod evidence;
#[cfg(feature = "llvm")]
mod exact;
mod explain;
mod facade;
mod features;
#[cfg(target_os = "linux")]
mod files;
mod fusion;
mod gpu_interp;
#[cfg(feature = "llvm")]
mod hostile_bundles;
#[cfg(feature = "llvm")]
mod judged;
mod kernels;
#[cfg(feature = "llvm")]
mod late_refusals;
#[cfg(feature = "mutations")]
mod mutations;
#[cfg(feature = "llvm")]
mod omega;
mod options;
#[cfg(target_os = "linux")]
mod output;
#[cfg(feature = "llvm")]
mod pipeline;
#[cfg(feature = "llvm")]
mod random;
#[cfg(feature = "llvm")]
mod readers;
mod rewrite;
mod roofline;
mod shared_functions;
#[cfg(feature = "llvm")]
mod simulate;
#[cfg(feature = "llvm")]
mod snapshots;
#[cfg(feature = "llvm")]
mod spills;
#[cfg(feature = "llvm")]
mod tune;

/// The root folder of the repository.
const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
