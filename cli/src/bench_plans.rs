//! The part of `atlas bench` that measures ops of several launches.

use super::sample::{self, Memory};
use anyhow::{Context, Result};
use atlas_ops::plans::{Plan, plans};
use atlas_runtime::Device;
use serde_json::{Value, json};

/// The plans of this name, or all plans.
pub(super) fn chosen(only: Option<&str>) -> Vec<Plan> {
    plans().into_iter().filter(|p| only.is_none_or(|o| o == p.name)).collect()
}

/// Checks a plan on a small problem, then measures it, if that is wanted also in a CUDA graph.
pub(super) fn measure(plan: &Plan, device: &Device, samples: usize, in_graph: bool) -> Result<Value> {
    let c = plan.check(device).with_context(|| format!("cannot check `{}`", plan.name))?;
    let memory = Memory::before(device)?;
    let mut work = plan.start(device)?;
    // Memory that a step with several shapes allocates when it first meets them is part of its workspace.
    work()?;
    let mut row = json!({ "name": plan.name, "shape": plan.shape(), "dtype": plan.dtype().name() });
    memory.write(device, &mut row)?;
    let t = sample::on_device(device, samples, || Ok(work()?))?;
    let clean = sample::behind_reads(device, samples, || Ok(work()?))?;
    let host = sample::on_host(device, || Ok(work()?))?;
    if in_graph {
        let stream = device.default_stream();
        let graph = stream.capture(|_| work());
        let mut graph = graph.with_context(|| format!("cannot record `{}` in a CUDA graph", plan.name))?;
        let t = sample::on_device(device, samples, || Ok(graph.launch(&stream)?))?;
        row["graph"] = json!({ "launches": graph.len(), "median_ms": t.median_ms, "min_ms": t.min_ms });
    }
    row["config"] = json!("chosen for each launch");
    row["median_ms"] = json!(t.median_ms);
    row["min_ms"] = json!(t.min_ms);
    row["clean_l2"] = json!(clean.map(sample::Timing::to_json));
    row["rel_err"] = json!(c.rel_f);
    row["tolerance"] = json!(plan.bound());
    row["pass"] = json!(c.passes(plan.bound()));
    row["gb_s"] = json!(plan.bytes() / t.median_ms / 1e6);
    row["tflops"] = json!(plan.flops() / t.median_ms / 1e9);
    row["launch_us"] = json!(host);
    Ok(row)
}
