//! Small kernels, each with its result, and with the fault that follows when a part of it is missing.

mod asynchronous;
mod basic;
mod engine;
mod exchange;
mod harness;
mod memory;
mod snapshots;
