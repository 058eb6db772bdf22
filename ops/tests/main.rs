//! Tests of the ops on the CPU device: one binary.

mod attention_grad;
mod cases;
mod chains;
mod choices;
mod controls;
mod domains;
mod gated_delta_rule;
mod layer;
mod layer_context;
mod muon;
mod muon_by_name;
mod omega;
mod omega_backward;
mod omega_forms;
mod omega_muon;
mod omega_wide;
mod online_softmax;
mod plans;
mod refusals;
mod requirements;
mod rotary;
mod scales;
mod stream;
mod training;
mod training_controls;
mod window_sums;
