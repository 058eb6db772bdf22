//! The evidence for a bundle's kernels: each variant runs in the simulator on a small ragged problem of its class,
//! under three orders of its warps, and is compared with the interpreter. `atlas verify --bundle` repeats this.

use super::super::arguments::Output;
use super::super::input;
use super::super::jobs::{Job, Scalars, scalars, scalars_text};
use super::super::oracle::{Small, is_of_class, says_something, small};
use super::super::print::{say, tell};
use super::super::roundings::RoundingVerdict;
use super::super::show::{self, Progress};
use anyhow::{Context, Result, bail, ensure};
use atlas_codegen::{Machine, Target, packing};
use atlas_dsl::def::DimDef;
use atlas_dsl::{Config, KernelDef, Specialization};
use atlas_runtime::bundle::{
    Bundle, BundleWriter, Bundles, ClassEntry, Evidence, KernelEntry, MachineTable, Table, Variant, VariantCode, shown,
};
use atlas_runtime::records::{launch_hash, of_launch};
use atlas_runtime::simulator::fault::FaultKind;
use atlas_runtime::simulator::launch::Policy;
use atlas_runtime::{CacheDir, Device, RuntimeError, SimOptions, build_kernel, build_launch};
use rayon::prelude::*;
use serde_json::{Value, json};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

/// The orders of warps, with their names in a file.
const SCHEDULES: [(&str, Policy); 3] =
    [("round-robin", Policy::RoundRobin), ("adversarial", Policy::Adversarial), ("random 1", Policy::Random)];
/// The most warp instructions of one run. A larger problem is not tried. Instructions are counted and time is not, so
/// the evidence does not depend on the load of the machine.
const BUDGET: u64 = 20_000_000;

/// One variant to try.
struct VariantTrial<'a> {
    def: &'static KernelDef,
    spec: Specialization,
    class: usize,
    variant: usize,
    of: &'a Variant,
    /// The usual GPU of its target. `None` if this program does not know the target.
    machine: Option<Machine>,
    /// Numbers passed by value, other than the defaults.
    scalars: Scalars,
    /// The smallest sizes of its class that were asked for.
    asked: Option<Vec<u64>>,
    /// The sizes in its existing evidence.
    claimed: Option<Vec<u64>>,
}

/// Why there is no evidence.
enum Lack {
    /// The variant cannot be tried, and may be correct.
    Untried(String),
    /// The variant is wrong, or not what the bundle claims.
    Wrong(String),
}

/// The entries of a bundle, with the evidence from running its bytes.
pub(super) fn gather(
    bytes: Vec<u8>,
    entries: &[(&'static KernelDef, KernelEntry)],
    jobs: &[Job],
) -> Result<Vec<(&'static str, KernelEntry)>> {
    let mut trials: Vec<VariantTrial<'_>> = entries.iter().flat_map(|(def, entry)| of_entry(def, entry)).collect();
    for trial in &mut trials {
        let of_kernel = || jobs.iter().filter(|j| j.def.name == trial.def.name);
        let work = |job: &&Job| job.dims.iter().fold(1, |product: u64, n| product.saturating_mul(*n));
        let of_class = of_kernel().filter(|j| j.spec == trial.spec).min_by_key(work);
        trial.asked = of_class.or_else(|| of_kernel().min_by_key(work)).map(|j| j.dims.clone());
        trial.scalars = of_kernel().next().map(|j| j.scalars.clone()).unwrap_or_default();
    }
    let found = run(&Bundle::read("being tried", bytes)?, &trials);
    let mut whole: Vec<(&'static str, KernelEntry)> = entries.iter().map(|(d, e)| (d.name, e.clone())).collect();
    for (trial, found) in trials.iter().zip(found) {
        let Some((_, entry)) = whole.iter_mut().find(|(name, _)| *name == trial.def.name) else { continue };
        let variant = &mut entry.classes[trial.class].variants[trial.variant];
        let wrong = match found {
            Ok(evidence) => {
                let worst = evidence.iter().find(|e| e.error > e.bound).cloned();
                variant.evidence = evidence;
                worst.map(|e| format!("error {:.1e}, bound {:.1e}, at {} ({})", e.error, e.bound, e.sizes, e.schedule))
            }
            Err(Lack::Untried(why)) => {
                variant.no_evidence = Some(why);
                None
            }
            Err(Lack::Wrong(why)) => Some(why),
        };
        if let Some(why) = wrong {
            let (name, Variant { config, target, .. }) = (trial.def.name, trial.of);
            bail!("`{name}` with `{config}` for {target} is wrong in the simulator: {why}; this is a bug of Atlas");
        }
    }
    Ok(whole)
}

/// Tries every variant of a bundle again, and prints the results. Returns whether all are as they should be.
pub(crate) fn verify(path: &Path, as_json: bool) -> Result<bool> {
    let bundle = Bundle::open(path)?;
    bundle.check()?;
    let mut entries = Vec::new();
    let names: Vec<String> = bundle.kernels().map(str::to_owned).collect();
    for name in names {
        let Some(entry) = bundle.entry(&name).transpose()? else { continue };
        // If several kernels have the name, the one that was compiled. If that is none of them, the one that the name
        // means here.
        let named = || atlas_dsl::registry().into_iter().filter(|d| d.name == name);
        match named().find(|def| is_of(def, &entry)).or_else(|| input::kernel(&name).ok()).or_else(|| named().next()) {
            Some(def) => entries.push((def, entry)),
            None => tell!("skipped: this program has no kernel `{}`", shown(&name)),
        }
    }
    let trials: Vec<VariantTrial<'_>> = entries.iter().flat_map(|(def, entry)| of_entry(def, entry)).collect();
    let found = run(&bundle, &trials);
    let rows: Vec<Value> = trials.iter().zip(found).map(|(trial, found)| row(trial, found)).collect();
    let failed = rows.iter().filter(|r| r["pass"] == false).count();
    let untried = rows.iter().filter(|r| r["pass"].is_null()).count();
    let passed = rows.len() - failed - untried;
    if as_json {
        show::json(&json!({ "bundle": path, "passed": passed, "failed": failed, "untried": untried, "results": rows }));
    } else {
        print(&rows);
        say!(
            "{passed} of {} variants of {} are as they were made, {failed} are not, {untried} were not tried",
            rows.len(),
            path.display()
        );
    }
    Ok(failed == 0 && passed > 0)
}

/// Whether some variant of an entry was compiled from the current version of this kernel.
fn is_of(def: &'static KernelDef, entry: &KernelEntry) -> bool {
    let is_own = |spec: &Specialization, v: &Variant| {
        let (config, target) = (v.config.parse::<Config>().ok(), v.target.parse::<Target>().ok());
        let launch = config.zip(target).and_then(|(config, target)| build_launch(def, spec, &config, target).ok());
        launch.is_some_and(|launch| launch_hash(&launch) == v.tile_ir)
    };
    let mut classes = entry.classes.iter().filter_map(|c| Some((c.spec(def)?, c)));
    classes.any(|(spec, class)| class.variants.iter().any(|v| is_own(&spec, v)))
}

/// The result of a trial, compared with the bundle's evidence.
fn row(trial: &VariantTrial<'_>, found: Result<Vec<Evidence>, Lack>) -> Value {
    let claimed = &trial.of.evidence;
    let what = match &found {
        Err(Lack::Untried(why)) if claimed.is_empty() => format!("not tried: {why}"),
        Err(Lack::Untried(why) | Lack::Wrong(why)) => format!("FAILED: {why}"),
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

/// Equality up to the digit that numbers may lose in a file.
fn is_same(a: &[Evidence], b: &[Evidence]) -> bool {
    let same = |(a, b): (&Evidence, &Evidence)| {
        a.schedule == b.schedule && a.sizes == b.sizes && (a.error - b.error).abs() <= 1e-9 * b.error
    };
    a.len() == b.len() && a.iter().zip(b).all(same)
}

fn print(rows: &[Value]) {
    let mut table = show::table(&["kernel", "target", "config", "sizes", "outcome"]);
    for r in rows {
        let text = |key: &str| {
            r[key].as_str().map_or_else(|| "-".to_owned(), |s| s.lines().map(shown).collect::<Vec<_>>().join(" "))
        };
        table.add_row(vec![text("kernel"), text("target"), text("config"), text("sizes"), text("outcome")]);
    }
    say!("{table}");
}

/// The variants of an entry, each with the usual GPU of its target, which has the most memory among the machines that
/// it is compiled for.
fn of_entry<'a>(def: &'static KernelDef, entry: &'a KernelEntry) -> Vec<VariantTrial<'a>> {
    let mut trials = Vec::new();
    for (at, class) in entry.classes.iter().enumerate() {
        let Some(spec) = class.spec(def) else { continue };
        for (place, of) in class.variants.iter().enumerate() {
            let machine = of.target.parse::<Target>().ok().map(Machine::from);
            // Evidence names its sizes, and the numbers that were given.
            let text = of.evidence.first().map_or("", |e| &e.sizes);
            let mut scalars = scalars(text).unwrap_or_default();
            let size = |d: &DimDef| scalars.get(d.name).map(|&n| n as u64);
            let claimed: Option<Vec<u64>> = def.dims.iter().map(size).collect();
            let claimed = claimed.filter(|dims| !of.evidence.is_empty() && is_of_class(def, &spec, dims));
            scalars.retain(|name, _| def.dims.iter().all(|d| d.name != name));
            trials.push(VariantTrial {
                def,
                spec: spec.clone(),
                class: at,
                variant: place,
                of,
                machine,
                scalars,
                asked: None,
                claimed,
            });
        }
    }
    trials
}

/// The result of each trial, or why there is none.
fn run(bundle: &Bundle, trials: &[VariantTrial<'_>]) -> Vec<Result<Vec<Evidence>, Lack>> {
    let _paused = atlas_runtime::sizes::pause();
    let progress = Mutex::new(Progress::new(trials.len()));
    let one = |trial: &VariantTrial<'_>| {
        let what = format!("{} {} {} in the simulator", trial.def.name, trial.of.target, trial.of.config);
        progress.lock().unwrap_or_else(PoisonError::into_inner).step(&what);
        attempt(bundle, trial).unwrap_or_else(|e| Err(Lack::Wrong(format!("{e:#}"))))
    };
    trials.par_iter().map(one).collect()
}

/// Any error counts against the variant, except the reasons for not trying it.
fn attempt(bundle: &Bundle, trial: &VariantTrial<'_>) -> Result<Result<Vec<Evidence>, Lack>> {
    let VariantTrial { def, spec, of, scalars, .. } = trial;
    let untried = |why: String| Ok(Err(Lack::Untried(why)));
    let Some(machine) = trial.machine else {
        return untried(format!("this program knows no target `{}`", of.target));
    };
    let config: Config = of.config.parse().map_err(anyhow::Error::msg)?;
    let kernel = build_kernel(def, spec, &config)?;
    let launch = packing::launch_kernels(kernel.clone(), &config.schedule, machine.target())?;
    ensure!(launch_hash(&launch) == of.tile_ir, "the kernel has changed since the bundle was made");
    if of_launch(def, spec, &[]) != *spec {
        return untried("no launch has the views of its class".to_owned());
    }
    let sizes = || small(def, spec, &kernel, &config, trial.asked.as_deref());
    let Some(dims) = trial.claimed.clone().or_else(sizes) else {
        return untried("no small problem of its class is known".to_owned());
    };
    let sizes = format!("{} {}", def.dims_text(&dims), scalars_text(scalars)).trim_end().to_owned();
    let small = Small { def, spec, kernel: &kernel, dims: &dims, config: &config, scalars };
    let (values, wanted) = match small.wanted() {
        Ok(wanted) => wanted,
        Err(e) => return untried(format!("the interpreter cannot solve {sizes}: {e:#}")),
    };
    if !says_something(&wanted) {
        return untried(format!("its results at {sizes} are no numbers"));
    }
    let (image, alone) = (bundle.image(of)?, alone(bundle, trial, machine)?);
    let simulator = |policy: Policy, budget: u64| -> Result<Device> {
        let options = SimOptions { policy, seed: 1, budget, ..SimOptions::default() };
        let device = Device::sim_with(machine, options, CacheDir::Off);
        device.set_compiling(false);
        device.set_bundles(Bundles::default());
        device.add_bundle(Bundle::read("being tried", alone.clone())?);
        Ok(device)
    };
    // The outputs; `None` if the run exceeded its budget.
    let run = |policy: Policy, budget: u64| -> Result<Option<(Device, Vec<Output>)>> {
        let device = simulator(policy, budget)?;
        match small.outputs(&device, values) {
            Ok(found) => Ok(Some((device, found))),
            Err(e) if is_too_long(&e) => Ok(None),
            Err(e) => Err(e),
        }
    };
    let mut evidence = Vec::new();
    for (name, policy) in SCHEDULES {
        let ran = run(policy, BUDGET).with_context(|| format!("{sizes} ({name})"))?;
        let Some((device, found)) = ran else {
            return untried(format!("{sizes} takes more than {} million instructions", BUDGET / 1_000_000));
        };
        let ran = device.simulated().context("nothing ran")?;
        ensure!(ran.image.ptx == image.ptx, "another kernel ran");
        let RoundingVerdict { error, bound, doubt } = small.judge(values, &wanted, &found);
        if let Some(why) = doubt {
            return untried(format!("it cannot be judged at {sizes}: {why}"));
        }
        evidence.push(Evidence { schedule: name.to_owned(), sizes: sizes.clone(), error, bound });
    }
    Ok(Ok(evidence))
}

fn is_too_long(e: &anyhow::Error) -> bool {
    matches!(e.downcast_ref(), Some(RuntimeError::Fault(f)) if f.fault.kind == FaultKind::Budget)
}

/// A bundle of only this variant, for its own target, so that nothing else can run.
fn alone(bundle: &Bundle, trial: &VariantTrial<'_>, machine: Machine) -> Result<Vec<u8>> {
    let mut writer = BundleWriter::new();
    let mut class = ClassEntry::new(trial.def, &trial.spec);
    let mut add = |code: VariantCode| -> Result<VariantCode> {
        Ok(VariantCode { image: writer.image(&bundle.image_of(trial.of, code)?), cubin: None })
    };
    let packers = trial.of.packers.iter().map(|&code| add(code)).collect::<Result<_>>()?;
    let VariantCode { image, cubin } = add(trial.of.code())?;
    class.variants.push(Variant { image, cubin, packers, ..trial.of.clone() });
    let bounds = vec![Vec::new(); trial.def.dims.len()];
    let table = Table { machine: machine.to_string(), bounds, cells: vec![0], order: vec![0], ..Table::default() };
    class.tables.push(MachineTable { target: trial.of.target.clone(), table });
    writer.kernel(trial.def.name, &KernelEntry { classes: vec![class] });
    Ok(writer.finish())
}

#[cfg(all(test, feature = "llvm"))]
mod tests {
    use super::*;

    /// No bundle contains a kernel that faults in the simulator without saying so.
    #[test]
    fn a_fault_ends_the_making() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.atlas");
        let out = file.display().to_string();
        let args = ["atlas", "bundle", "softmax", "--dims", "N=8,D=64", "--arch", "sm_80", "--variants", "1"];
        crate::run([&args[..], &["--no-evidence", "--only-these", "--out", &out]].concat()).unwrap();
        let bundle = Bundle::open(&file).unwrap();
        let mut entry = (*bundle.entry("softmax").unwrap().unwrap()).clone();
        let def = input::kernel("softmax").unwrap();
        let mut writer = BundleWriter::new();
        for variant in entry.classes.iter_mut().flat_map(|c| &mut c.variants) {
            let mut image = bundle.image(variant).unwrap();
            // The kernel does not end normally.
            image.ptx = image.ptx.replace("ret;", "trap;");
            variant.image = writer.image(&image);
        }
        writer.kernel("softmax", &entry);
        let why = gather(writer.finish(), &[(def, entry)], &[]).map(drop).unwrap_err().to_string();
        assert!(why.contains("is wrong in the simulator") && why.contains("Trap"), "{why}");
    }
}
