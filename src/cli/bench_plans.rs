//! The part of `atlas bench` that measures ops of several launches.

use super::sample;
use anyhow::{Context, Result};
use atlas_ops::plans::{PLANS, Plan};
use atlas_runtime::Device;
use serde_json::{Value, json};

/// The plans of a name, or all of them.
pub(super) fn chosen(only: Option<&str>) -> Vec<Plan> {
    PLANS.into_iter().filter(|p| only.is_none_or(|o| o == p.name)).collect()
}

/// Checks a plan on a small problem, then measures it.
pub(super) fn measure(plan: &Plan, device: &Device, samples: usize) -> Result<Value> {
    // Of a process that measures one plan: the driver keeps what earlier tensors had.
    let free = device.free_bytes()?;
    let c = plan.check(device).with_context(|| format!("cannot check `{}`", plan.name))?;
    device.synchronize()?;
    let before = device.tensor_bytes().0;
    let mut work = plan.start(device)?;
    let tensors = device.tensor_bytes().0 - before;
    work()?;
    device.synchronize()?;
    // What a step of several shapes allocates when it sees them for the first time is its workspace, too.
    let workspace = device.tensor_bytes().0 - before - tensors;
    let taken = free.zip(device.free_bytes()?).map(|(before, after)| before.saturating_sub(after));
    let t = sample::on_device(device, samples, || Ok(work()?))?;
    let host = sample::on_host(device, || Ok(work()?))?;
    Ok(json!({
        "name": plan.name,
        "shape": plan.shape(),
        "dtype": plan.dtype().name(),
        "config": "chosen for each launch",
        "median_ms": t.median_ms,
        "min_ms": t.min_ms,
        "rel_err": c.rel_f,
        "tolerance": plan.bound(),
        "pass": c.passes(plan.bound()),
        "gb_s": plan.bytes() / t.median_ms / 1e6,
        "tflops": plan.flops() / t.median_ms / 1e9,
        "launch_us": host,
        "tensor_bytes": tensors + workspace,
        "device_bytes": taken,
    }))
}
