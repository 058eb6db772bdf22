//! Tests of the ops on the CPU device: one binary.

mod cases;
mod choices;
mod controls;
mod layer;
mod muon;
mod omega;
mod plans;
mod requirements;
mod scales;
mod stream;
