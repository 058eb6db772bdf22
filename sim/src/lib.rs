//! A simulator of PTX: executes the text that Atlas ships, and reports mistakes that hardware would tolerate.

#![forbid(unsafe_code)]

pub mod alu;
pub mod decode;
mod execution;
pub mod fault;
pub mod forms;
pub mod launch;
pub mod memory;
mod operand;
pub mod program;
pub mod race;
mod schedule;
pub mod stats;
pub mod syntax;
pub mod tensor;
pub mod tma;
