//! Small kernels, each with its result and with what happens when a piece of it is missing.

mod asynchronous;
mod basic;
mod exchange;
mod harness;
mod memory;
mod snapshots;
