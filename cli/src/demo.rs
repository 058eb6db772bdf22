//! `atlas demo`: shows the main task at real sizes. Compiles the ops to PTX for sm_80 and sm_90, runs them at the sizes
//! of the ATLAS paper's 170M and 340M models on the best device, and checks each against its f64 reference.

use super::print::say;
use super::ptxas::{self, Resources};
use super::show::{self, Progress};
use super::stages::{self, Stage};
use super::{archs, input, sample};
use anyhow::{Context, Result, bail};
use atlas_ops::{Problem, cases};
use atlas_runtime::Device;
use atlas_runtime::records::Records;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::Path;
use std::time::Instant;

/// The archs that the kernels are compiled for, independent of the device.
const ARCHS: [&str; 2] = ["sm_80", "sm_90"];

/// The arguments of the verb.
#[derive(clap::Args)]
pub(super) struct DemoArgs {
    /// cpu, cuda:N, or best: the first GPU, else the CPU.
    #[arg(long, default_value = "best")]
    device: String,
    /// Only this op or kernel.
    #[arg(long, value_name = "OP")]
    only: Option<String>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Runs the demo.
pub(super) fn run(args: &DemoArgs) -> Result<bool> {
    let mut problems = cases::demo();
    problems.retain(|p| args.only.as_deref().is_none_or(|o| o == p.op.name || o == p.kernel.name));
    if problems.is_empty() {
        let all = cases::demo();
        let names: BTreeSet<&str> = all.iter().map(|p| p.op.name).collect();
        let names = names.into_iter().collect::<Vec<_>>().join(", ");
        bail!("there is no problem of `{}` in the demo; its ops are {names}", args.only.as_deref().unwrap_or(""));
    }
    let device = input::device(&args.device)?;
    if device.simulates() {
        bail!(
            "`demo` runs at the sizes of real models, which take the simulator days; use `atlas verify --device sim`"
        );
    }
    let assembler = ptxas::find();
    let mut progress = Progress::new(problems.len());
    let mut rows = Vec::new();
    for p in &problems {
        progress.step(&p.to_string());
        let mut row = solve(p, &device).with_context(|| format!("cannot run {p} on {device}"))?;
        for arch in ARCHS {
            row[arch] =
                built(p, arch, assembler.as_deref()).with_context(|| format!("cannot compile {p} for {arch}"))?;
        }
        rows.push(row);
    }
    drop(progress);
    let failed = rows.iter().filter(|r| r["pass"] != true).count();
    if args.json {
        show::json(&json!({ "device": device.to_string(), "failed": failed, "results": rows }));
    } else {
        print(&rows);
        if !stages::CAN_COMPILE {
            say!("PTX: this program was built without its code generator (`--features jit`)");
        } else if assembler.is_none() {
            say!("registers and spills: no ptxas found (`atlas doctor` says how to get one); none is needed to run");
        }
        say!("{} of {} agree with their f64 reference", rows.len() - failed, rows.len());
    }
    Ok(failed == 0)
}

/// Solves a problem and compares the whole result.
fn solve(p: &Problem, device: &Device) -> Result<Value> {
    let inputs = p.inputs();
    let mut prepared = p.prepare(device, &inputs)?;
    let start = Instant::now();
    prepared.launch(None)?;
    device.synchronize()?;
    let first = start.elapsed().as_secs_f64() * 1e3;
    let c = prepared.compare(&p.expected(&inputs))?;
    let ms =
        if device.is_cpu() { first } else { sample::on_device(device, 50, || Ok(prepared.launch(None)?))?.median_ms };
    Ok(json!({
        "op": p.op.name, "kernel": p.kernel.name, "dtype": p.dtype.name(), "shape": p.shape(),
        "device": device.id().to_string(), "rel_f": c.rel_f, "max_error": c.max_error, "tolerance": p.bound(),
        "pass": c.passes(p.bound()), "ms": ms,
    }))
}

/// Compiles a problem's kernel. Returns the size of its PTX, and its registers and spills if there is a ptxas.
fn built(p: &Problem, arch: &str, assembler: Option<&Path>) -> Result<Value> {
    if !stages::CAN_COMPILE {
        return Ok(Value::Null);
    }
    let on = archs::platform(arch)?;
    let dims = input::dims_of(p);
    let spec = input::specialization(p.kernel, &dims, p.dtype)?;
    let chosen = input::chosen(p.kernel, &spec, &dims, on.machine, None, &Records::default())?;
    let (config, texts) =
        chosen.first(|c| stages::print((p.kernel.build)(&spec, c)?, &c.schedule, on, &[Stage::Ptx]))?;
    let ptx = texts.first().map_or("", |(_, text)| text);
    let mut row = json!({ "config": config.to_string(), "ptx_bytes": ptx.len(), "registers": null, "spills": null });
    if let Some(assembler) = assembler {
        let Resources { registers, spills, .. } = ptxas::assemble(assembler, ptx, arch)?;
        row["registers"] = json!(registers);
        row["spills"] = json!(spills);
    }
    Ok(row)
}

fn print(rows: &[Value]) {
    let mut table = show::table(&[
        "op",
        "dtype",
        "shape",
        "device",
        "error",
        "tolerance",
        "time",
        "sm_80 regs",
        "spills",
        "sm_90 regs",
        "spills",
        "ok",
    ]);
    show::right(&mut table, &[4, 5, 6, 7, 8, 9, 10]);
    let text = |v: &Value| v.as_str().unwrap_or("-").to_owned();
    let count = |v: &Value| v.as_u64().map_or_else(|| "-".to_owned(), |n| n.to_string());
    let number = |v: &Value, show: fn(f64) -> String| v.as_f64().map_or_else(|| "-".to_owned(), show);
    for r in rows {
        let [a, b] = ARCHS.map(|arch| &r[arch]);
        table.add_row([
            text(&r["kernel"]),
            text(&r["dtype"]),
            text(&r["shape"]),
            text(&r["device"]),
            number(&r["rel_f"], show::small),
            number(&r["tolerance"], show::small),
            number(&r["ms"], show::time),
            count(&a["registers"]),
            count(&a["spills"]),
            count(&b["registers"]),
            count(&b["spills"]),
            if r["pass"] == true { "yes".to_owned() } else { "NO".to_owned() },
        ]);
    }
    say!("{table}");
}
