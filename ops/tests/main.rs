//! Tests of the ops, on the CPU: one binary.
//!
//! `ATLAS_DEVICES=cuda:0` or `ATLAS_DEVICES=sim:sm_90a` runs them there instead, with a runtime that compiles
//! (`--features atlas-gpu-ops/verify,atlas-gpu-runtime/jit-dynamic -p atlas-gpu-ops -p atlas-gpu-runtime`). Tests that want the same bits of a sequence
//! however it is cut hold on the CPU only: elsewhere, launches of other sizes may take other configs.

use atlas_runtime::Device;

mod attention_grad;
mod cases;
mod chains;
mod choices;
mod controls;
mod domains;
mod gated_delta_rule;
mod graphs;
mod layer;
mod layer_context;
mod layer_shapes;
mod muon;
mod muon_by_name;
mod omega;
mod omega_backward;
mod omega_caller_memory;
mod omega_choice;
mod omega_forms;
mod omega_muon;
mod omega_muon_wide;
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
mod ttt_linear;
mod window_sums;

/// A result, or nothing where the config is too large for a GPU; a CPU takes every config.
#[track_caller]
fn unless_too_large<T>(result: atlas_runtime::Result<T>, what: impl std::fmt::Display) -> Option<T> {
    let is_cpu = device().machine().is_none();
    match result {
        Ok(found) => Some(found),
        Err(e) if !is_cpu && e.to_string().contains("ATL302") => None,
        Err(e) => panic!("{what}: {e}"),
    }
}

/// The device that `ATLAS_DEVICES` names, of which these tests take one, or the CPU.
fn device() -> Device {
    let name = std::env::var("ATLAS_DEVICES").unwrap_or_else(|_| "cpu".to_owned());
    let device = match name.split_once(':') {
        Some(("cuda", number)) => Device::cuda(number.parse().expect("the number of a GPU")),
        Some(("sim", arch)) => Device::sim(arch),
        _ => Ok(Device::cpu()),
    };
    device.unwrap_or_else(|e| panic!("{name}: {e}"))
}
