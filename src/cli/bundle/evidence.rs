//! What a bundle's kernels were tried on: each variant in the simulator, on a small ragged problem of its class, under
//! three orders of its warps, beside the interpreter. `atlas verify --bundle` does the same again.

use super::super::arguments::Arguments;
use super::super::show::{self, Progress};
use anyhow::{Context, Result, bail, ensure};
use atlas_codegen::{Machine, Platform, Target};
use atlas_dsl::def::{DimDef, ParamDef};
use atlas_dsl::ir::GridExtent;
use atlas_dsl::specialization::DimFact;
use atlas_dsl::{Config, DType, Kernel, KernelDef, Specialization};
use atlas_runtime::bundle::{Bundle, Evidence, KernelEntry, Variant};
use atlas_runtime::records::tile_ir_hash;
use atlas_runtime::simulator::launch::Policy;
use atlas_runtime::{CacheDir, Device, Launch, SimOptions, build_kernel};
use rayon::prelude::*;
use serde_json::{Value, json};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

/// Orders of warps, by their names in a file.
const SCHEDULES: [(&str, Policy); 3] =
    [("round-robin", Policy::RoundRobin), ("adversarial", Policy::Adversarial), ("random 1", Policy::Random)];
/// Warp instructions of one run, after which a problem is too large to try; the product of all dims, and elements of one tensor.
const BUDGET: u64 = 20_000_000;
const MOST_WORK: u64 = 1 << 28;
const MOST_ELEMENTS: u64 = 1 << 21;

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
    let failed = rows.iter().filter(|r| r["pass"] != true).count();
    if as_json {
        show::json(&json!({ "bundle": path, "passed": rows.len() - failed, "failed": failed, "results": rows }));
    } else {
        print(&rows);
        println!("{} of {} variants of {} are as they were made", rows.len() - failed, rows.len(), path.display());
    }
    Ok(failed == 0)
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
        "outcome": what, "pass": !what.starts_with("FAILED"),
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
    ensure!(spec.tensors.is_empty(), "its tensors are views");
    let dims = small(def, spec, &kernel, &config).context("no small problem of its class")?;
    let types: Vec<DType> = def.types.iter().map(|t| spec.types.get(t.name).copied().unwrap_or(DType::F32)).collect();
    let on_cpu = outputs(def, &types, &dims, &Device::cpu(), &config)?;
    let sizes = def.dims.iter().zip(&dims).map(|(d, n)| format!("{}={n}", d.name)).collect::<Vec<_>>().join(" ");
    let mut evidence = Vec::new();
    for (name, policy) in SCHEDULES {
        let options = SimOptions { policy, seed: 1, budget: BUDGET };
        let device = Device::sim_with(*machine, options, CacheDir::Off);
        device.set_compiling(false);
        device.add_bundle(Bundle::read("being tried", bytes.to_vec())?);
        let found = outputs(def, &types, &dims, &device, &config)?;
        let ran = device.simulated().context("nothing ran")?;
        let image = Bundle::read("being tried", bytes.to_vec())?.image(of)?;
        ensure!(ran.image.ptx == image.ptx, "another variant serves such problems");
        let (schedule, bound) = (name.to_owned(), bound(&types));
        evidence.push(Evidence { schedule, sizes: sizes.clone(), error: apart(&on_cpu, &found), bound });
    }
    Ok(evidence)
}

fn outputs(
    def: &'static KernelDef,
    types: &[DType],
    dims: &[u64],
    device: &Device,
    config: &Config,
) -> Result<Vec<Vec<f64>>> {
    let mut arguments = Arguments::of(def, types, dims, device)?;
    def.launch_with(device, config, arguments.args())?;
    arguments.outputs(usize::MAX)
}

/// Sizes of a class that make a few tiles of each dim, the last of them ragged where the class admits it.
fn small(def: &KernelDef, spec: &Specialization, kernel: &Kernel, config: &Config) -> Option<Vec<u64>> {
    let ragged = |tile: u32| u64::from(tile) + u64::from(tile / 2);
    let largest = config.tile.values().copied().max().unwrap_or(1).min(64);
    let wanted = |d: &DimDef| {
        let own = kernel.grid.iter().find_map(|axis| match axis.extent {
            GridExtent::Points(dim) => (kernel.dims[dim].name == d.name).then_some(2),
            GridExtent::Tiles { dim, size } | GridExtent::UpTo { dim, size } => {
                (kernel.dims[dim].name == d.name).then(|| ragged(size))
            }
        });
        own.unwrap_or_else(|| ragged(largest))
    };
    // An odd multiple of the divisor is of no narrower class.
    let odd = |divisor: u64, at_least: u64| divisor * (at_least.div_ceil(divisor) | 1);
    let sizes = |least: &dyn Fn(&DimDef) -> u64| -> Vec<u64> {
        let size = |d: &DimDef| match spec.dims.get(d.name) {
            Some(DimFact::Const(n)) => *n,
            Some(DimFact::Dynamic(divisor)) => odd(u64::from(*divisor), least(d)),
            None => odd(1, least(d)),
        };
        def.dims.iter().map(size).collect()
    };
    let most = def.dims.iter().map(&wanted).max().unwrap_or(1);
    let within = |sizes: Vec<u64>, most: u64| {
        sizes.iter().try_fold(1_u64, |n, size| n.checked_mul(*size)).is_some_and(|n| n <= most)
    };
    let fits = |dims: &Vec<u64>| {
        def.requires.iter().all(|r| r.holds(dims))
            && within(dims.clone(), MOST_WORK)
            && def.params.iter().all(|p| match p {
                ParamDef::Tensor { dims: axes, .. } => within(axes.iter().map(|&d| dims[d]).collect(), MOST_ELEMENTS),
                ParamDef::Scalar { .. } => true,
            })
    };
    [sizes(&wanted), sizes(&|_| most), sizes(&|_| 1)].into_iter().find(fits)
}

/// How far results may lie apart, relative to their size: the interpreter and the kernel sum in other orders.
fn bound(types: &[DType]) -> f64 {
    let of = |t: &DType| match t {
        DType::Bf16 => 3e-2,
        DType::F16 => 5e-3,
        _ => 1e-4,
    };
    types.iter().map(of).fold(1e-4, f64::max)
}

/// The distance of two results, relative to the first; infinite where one has a number and the other none.
fn apart(a: &[Vec<f64>], b: &[Vec<f64>]) -> f64 {
    let pairs = || a.iter().flatten().zip(b.iter().flatten());
    if pairs().any(|(x, y)| x.is_finite() != y.is_finite()) {
        return f64::INFINITY;
    }
    let sum = |f: &dyn Fn(f64, f64) -> f64| pairs().filter(|(x, _)| x.is_finite()).map(|(x, y)| f(*x, *y)).sum::<f64>();
    let (apart, size) = (sum(&|x, y| (x - y).powi(2)), sum(&|x, _| x.powi(2)));
    if apart == 0.0 { 0.0 } else { (apart / size).sqrt() }
}
