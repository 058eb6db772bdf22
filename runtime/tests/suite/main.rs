//! Tests of the runtime that need no GPU and no LLVM, in one binary. Those in `gpu` are run by hand.

mod binding;
mod conditions;
mod devices;
mod failures;
mod foreign;
#[cfg(unix)]
mod forked;
mod gpu;
mod gpu_graphs;
mod gpu_split;
mod graphs;
mod kernels;
mod keys;
mod launching;
mod pools;
mod ptx;
mod records;
mod selection;
#[cfg(feature = "sim")]
mod sim;
mod sizes;
mod split;
mod storing;
mod views;
