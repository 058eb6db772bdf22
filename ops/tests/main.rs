//! Tests of the ops on the CPU device: one binary.

mod cases;
mod chains;
mod choices;
mod controls;
mod domains;
mod layer;
mod muon;
mod omega;
mod online_softmax;
mod plans;
mod refusals;
mod requirements;
mod scales;
mod stream;
mod window_sums;
