//! What a bundle's kernels were tried on: each variant in the simulator, on a small ragged problem of its class, under
//! three orders of its warps, beside the interpreter. `atlas verify --bundle` does the same again.

use super::super::arguments::bound;
use super::super::oracle::{ELEMENT, apart, outputs, small, types};
use super::super::show::{self, Progress};
use anyhow::{Context, Result, bail, ensure};
use atlas_codegen::{Machine, Platform, Target};
use atlas_dsl::{Config, KernelDef, Specialization};
use atlas_runtime::bundle::{Bundle, Evidence, KernelEntry, Variant};
use atlas_runtime::records::tile_ir_hash;
use atlas_runtime::simulator::launch::Policy;
use atlas_runtime::{CacheDir, Device, SimOptions, build_kernel};
use rayon::prelude::*;
use serde_json::{Value, json};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

/// Orders of warps, by their names in a file.
const SCHEDULES: [(&str, Policy); 3] =
    [("round-robin", Policy::RoundRobin), ("adversarial", Policy::Adversarial), ("random 1", Policy::Random)];
/// Warp instructions of one run, after which a problem is too large to try.
const BUDGET: u64 = 20_000_000;

/// One variant to try.
struct Trial<'a> {
    def: &'static KernelDef,
    spec: Specialization,
    class: usize,
    variant: usize,
    of: &'a Variant,
    machine: Machine,
}

/// The entries of a bundle with the evidence that its bytes give.
pub(super) fn gather(
    bytes: Vec<u8>,
    entries: &[(&'static KernelDef, KernelEntry)],
    machines: &[Platform],
) -> Result<Vec<(&'static str, KernelEntry)>> {
    let mut trials = Vec::new();
    for (def, entry) in entries {
        trials.extend(of_entry(def, entry, |target| machines.iter().find(|p| p.target == target).map(|p| p.machine)));
    }
    let found = run(&bytes, &trials)?;
    let mut whole: Vec<(&'static str, KernelEntry)> = entries.iter().map(|(d, e)| (d.name, e.clone())).collect();
    for (trial, evidence) in trials.iter().zip(found) {
        if let Some(e) = evidence.iter().flatten().find(|e| e.error > e.bound) {
            let (name, config) = (trial.def.name, &trial.of.config);
            bail!(
                "`{name}` with `{config}` is wrong in the simulator: error {:.1e}, bound {:.1e}, at {} ({}); this is a bug of Atlas",
                e.error,
                e.bound,
                e.sizes,
                e.schedule
            );
        }
        if let Some((_, entry)) = whole.iter_mut().find(|(name, _)| *name == trial.def.name) {
            // What cannot be tried has no evidence, and says so by having none.
            entry.classes[trial.class].variants[trial.variant].evidence = evidence.unwrap_or_default();
        }
    }
    Ok(whole)
}

/// Tries every variant of a bundle again, and prints what came of it; whether all are as they should be.
pub(crate) fn verify(path: &Path, as_json: bool) -> Result<bool> {
    let bytes = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    let bundle = Bundle::read(&path.display().to_string(), bytes.clone())?;
    bundle.check()?;
    let mut entries = Vec::new();
    let names: Vec<String> = bundle.kernels().map(str::to_owned).collect();
    for name in names {
        let Some(entry) = bundle.entry(&name).transpose()? else { continue };
        match atlas_dsl::registry().into_iter().find(|d| d.name == name) {
            Some(def) => entries.push((def, entry)),
            None => eprintln!("skipped: this program has no kernel `{name}`"),
        }
    }
    let trials: Vec<Trial<'_>> =
        entries.iter().flat_map(|(def, entry)| of_entry(def, entry, |target| Some(target.into()))).collect();
    let found = run(&bytes, &trials)?;
    let rows: Vec<Value> = trials.iter().zip(found).map(|(trial, found)| row(trial, found)).collect();
    let failed = rows.iter().filter(|r| r["pass"] == false).count();
    let untried = rows.iter().filter(|r| r["pass"].is_null()).count();
    let passed = rows.len() - failed - untried;
    if as_json {
        show::json(&json!({ "bundle": path, "passed": passed, "failed": failed, "untried": untried, "results": rows }));
    } else {
        print(&rows);
        println!(
            "{passed} of {} variants of {} are as they were made, {failed} are not, {untried} were not tried",
            rows.len(),
            path.display()
        );
    }
    Ok(failed == 0 && passed > 0)
}

/// What a trial found, beside what the bundle says.
fn row(trial: &Trial<'_>, found: Result<Vec<Evidence>, String>) -> Value {
    let claimed = &trial.of.evidence;
    let what = match &found {
        Err(why) if claimed.is_empty() => format!("not tried: {why}"),
        Err(why) => format!("FAILED: {why}"),
        Ok(now) if !claimed.is_empty() && !is_same(now, claimed) => {
            "FAILED: other figures than the bundle has".to_owned()
        }
        Ok(now) => match now.iter().find(|e| e.error > e.bound) {
            Some(e) => format!("FAILED: error {:.1e}, bound {:.1e}, {}", e.error, e.bound, e.schedule),
            None => format!("{} schedules, error {:.1e}", now.len(), now.iter().map(|e| e.error).fold(0.0, f64::max)),
        },
    };
    json!({
        "kernel": trial.def.name, "class": format!("{:?}", trial.spec.dims), "config": trial.of.config,
        "target": trial.of.target, "sizes": claimed.first().map(|e| e.sizes.clone()),
        "outcome": what, "pass": if what.starts_with("not tried") { None } else { Some(!what.starts_with("FAILED")) },
    })
}

/// Numbers lose a digit in a file.
fn is_same(a: &[Evidence], b: &[Evidence]) -> bool {
    let same = |(a, b): (&Evidence, &Evidence)| {
        a.schedule == b.schedule && a.sizes == b.sizes && (a.error - b.error).abs() <= 1e-9 * b.error
    };
    a.len() == b.len() && a.iter().zip(b).all(same)
}

fn print(rows: &[Value]) {
    let mut table = show::table(&["kernel", "target", "config", "sizes", "outcome"]);
    for r in rows {
        let text = |key: &str| r[key].as_str().unwrap_or("-").to_owned();
        table.add_row(vec![text("kernel"), text("target"), text("config"), text("sizes"), text("outcome")]);
    }
    println!("{table}");
}

fn of_entry<'a>(
    def: &'static KernelDef,
    entry: &'a KernelEntry,
    machine: impl Fn(Target) -> Option<Machine>,
) -> Vec<Trial<'a>> {
    let mut trials = Vec::new();
    for (at, class) in entry.classes.iter().enumerate() {
        let Some(spec) = class.spec(def) else { continue };
        for (place, of) in class.variants.iter().enumerate() {
            let Some(machine) = of.target.parse().ok().and_then(&machine) else { continue };
            trials.push(Trial { def, spec: spec.clone(), class: at, variant: place, of, machine });
        }
    }
    trials
}

/// What each trial finds, or why it could not be made.
fn run(bytes: &[u8], trials: &[Trial<'_>]) -> Result<Vec<Result<Vec<Evidence>, String>>> {
    let progress = Mutex::new(Progress::new(trials.len()));
    let one = |trial: &Trial<'_>| {
        let what = format!("{} {} {} in the simulator", trial.def.name, trial.of.target, trial.of.config);
        progress.lock().unwrap_or_else(PoisonError::into_inner).step(&what);
        attempt(bytes, trial).map_err(|e| format!("{e:#}"))
    };
    Ok(trials.par_iter().map(one).collect())
}

fn attempt(bytes: &[u8], trial: &Trial<'_>) -> Result<Vec<Evidence>> {
    let Trial { def, spec, of, machine, .. } = trial;
    let config: Config = of.config.parse().map_err(anyhow::Error::msg)?;
    let kernel = build_kernel(def, spec, &config)?;
    ensure!(tile_ir_hash(&kernel) == of.tile_ir, "the kernel has changed since the bundle was made");
    let dims = small(def, spec, &kernel, &config).context("no small problem of its class")?;
    let on_cpu = outputs(def, spec, &dims, &Device::cpu(), &config)?;
    let sizes = def.dims.iter().zip(&dims).map(|(d, n)| format!("{}={n}", d.name)).collect::<Vec<_>>().join(" ");
    let mut evidence = Vec::new();
    for (name, policy) in SCHEDULES {
        let options = SimOptions { policy, seed: 1, budget: BUDGET };
        let device = Device::sim_with(*machine, options, CacheDir::Off);
        device.set_compiling(false);
        device.add_bundle(Bundle::read("being tried", bytes.to_vec())?);
        let found = outputs(def, spec, &dims, &device, &config)?;
        let ran = device.simulated().context("nothing ran")?;
        let image = Bundle::read("being tried", bytes.to_vec())?.image(of)?;
        ensure!(ran.image.ptx == image.ptx, "another variant serves such problems");
        let (schedule, bound) = (name.to_owned(), bound(def, &types(def, spec)));
        let (all, one) = apart(&on_cpu, &found);
        evidence.push(Evidence { schedule, sizes: sizes.clone(), error: all.max(one / ELEMENT), bound });
    }
    Ok(evidence)
}
