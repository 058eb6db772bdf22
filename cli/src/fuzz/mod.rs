//! `atlas fuzz`: compiles and executes random kernels, and compares them with the interpreter.
//!
//! A seed determines a kernel, its problem and its schedule, on every machine. A failing kernel is shrunk for as long
//! as it fails in the same way. It is shown as text, with the command that reproduces the failure.
//!
//! | file | holds |
//! |---|---|
//! | `recipe` | a kernel and its problem as a small tree |
//! | `generate`, `express` | a recipe from a seed: statements, and expressions of a wanted type |
//! | `generator` | the state of the generator, and the variables in scope |
//! | `state`, `sums` | loops that carry matrices through products, and sums |
//! | `configs` | kernels with the same meaning in every config, and their comparison |
//! | `atomics`, `small` | atomic stores, and tensors of integers below 32 bits, drawn for a recipe afterwards |
//! | `emit` | the Tile IR of a recipe, also with slightly inexact operations |
//! | `values` | the arguments: the positions and the values of their elements |
//! | `oracle` | the expected outputs, and how far a correct device may differ |
//! | `execute` | one launch in the simulator, or on a GPU |
//! | `trial` | a recipe compiled, run under every schedule and compared |
//! | `shrink` | the smallest recipe that fails in the same way |
//! | `report` | the output |

mod atomics;
mod configs;
mod emit;
mod execute;
mod express;
mod generate;
mod generator;
mod oracle;
mod recipe;
mod report;
mod shrink;
mod small;
mod state;
mod sums;
mod trial;
mod values;

use super::print::say;
use super::show::Progress;
use super::{archs, input, show, stages};
use anyhow::{Result, bail};
#[cfg(feature = "mutations")]
use atlas_codegen::mutation::Mutation;
use atlas_codegen::{Machine, Target};
use atlas_dsl::diag::Code;
use atlas_runtime::{Device, DeviceId};
use rayon::prelude::*;
use recipe::Recipe;
use report::{Found, Report};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;
use trial::{Passed, SCHEDULES, Trial, TrialFailure};

/// The error for a store that writes invalid elements.
const WRITES_INVALID: Code = Code(227);

/// The most kernels that a seed may draw until one is well formed.
const ATTEMPTS: u64 = 16;

/// The arguments of the verb.
#[derive(clap::Args)]
pub(super) struct FuzzArgs {
    /// The first seed.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How many seeds to run.
    #[arg(long, default_value_t = 100)]
    count: u64,
    /// The architectures to compile for. Without it, what the GPU here runs (sm_90a on Hopper), else sm_80, sm_89 and sm_90.
    #[arg(long, value_delimiter = ',', value_name = "ARCH,..")]
    arch: Vec<String>,
    /// Also run each kernel on this GPU, such as cuda:0, compiled only for its own architecture.
    #[arg(long, value_name = "DEVICE")]
    device: Option<String>,
    /// Draw kernels whose meaning does not depend on tile sizes, and compare each in several configs.
    #[arg(long, conflicts_with = "device")]
    configs: bool,
    /// Do not shrink failing kernels.
    #[arg(long)]
    no_shrink: bool,
    /// Print the kernel of each seed and run nothing.
    #[arg(long)]
    list: bool,
    /// Stop at the first failing kernel.
    #[arg(long)]
    first: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// Put a known mistake back into the compiler, which the kernels should reveal.
    #[cfg(feature = "mutations")]
    #[arg(long, value_name = "NAME", value_parser = mutation)]
    mutation: Option<Mutation>,
}

#[cfg(feature = "mutations")]
fn mutation(name: &str) -> std::result::Result<Mutation, String> {
    let known = || Mutation::ALL.iter().map(|m| m.name()).collect::<Vec<_>>().join(", ");
    Mutation::from_name(name).ok_or_else(|| format!("there is no mutation `{name}`; they are {}", known()))
}

/// Draws a recipe from a seed and an attempt.
type Draw = fn(u64, u64) -> Recipe;

impl FuzzArgs {
    /// The function that draws kernels.
    fn drawn(&self) -> Draw {
        if self.configs { configs::draw } else { generate::generate }
    }

    /// Runs `f` with the requested mistake.
    #[cfg(feature = "mutations")]
    fn mutated<T>(&self, f: impl FnOnce() -> T) -> T {
        match self.mutation {
            Some(mutation) => atlas_codegen::mutation::with(mutation, f),
            None => f(),
        }
    }

    #[cfg(not(feature = "mutations"))]
    fn mutated<T>(&self, f: impl FnOnce() -> T) -> T {
        f()
    }
}

/// Runs the kernels of some seeds. Returns whether none fails.
pub(super) fn run(args: &FuzzArgs) -> Result<bool> {
    let left = u64::MAX - args.seed;
    if args.count == 0 || args.count - 1 > left {
        let most = left.saturating_add(1);
        bail!("--count {}: from seed {} on there are 1 to {most} seeds to try", args.count, args.seed);
    }
    let seeds = args.seed..=args.seed + (args.count - 1);
    if args.list {
        for seed in seeds {
            let (recipe, _) = well_formed(seed, args.drawn());
            say!("{}", report::text(&recipe));
        }
        return Ok(true);
    }
    if !stages::CAN_COMPILE {
        bail!("this program was built without its code generator; build it with `--features jit`");
    }
    let device = args.device.as_deref().map(gpu).transpose()?;
    let targets = match device.as_ref().and_then(Device::target) {
        Some(target) => vec![target],
        None if args.arch.is_empty() => targets(&archs::usual(archs::of_gpu()))?,
        None => targets(&args.arch)?,
    };
    let begun = Instant::now();
    let progress = Mutex::new(Progress::new(args.count as usize));
    let failed = AtomicBool::new(false);
    let one = |seed: u64| {
        if args.first && failed.load(Ordering::Relaxed) {
            return Report::default();
        }
        progress.lock().unwrap_or_else(PoisonError::into_inner).step(&format!("seed {seed}"));
        let report = args.mutated(|| match args.configs {
            true => in_configs(seed, &targets, !args.no_shrink),
            false => of_seed(seed, &targets, device.as_ref(), !args.no_shrink),
        });
        failed.fetch_or(!report.found.is_empty(), Ordering::Relaxed);
        report
    };
    // One kernel at a time on a GPU, so that a fault is attributed to the right kernel.
    let reports: Vec<Report> = match device {
        Some(_) => seeds.map(one).collect(),
        None => seeds.into_par_iter().map(one).collect(),
    };
    let mut report = Report::default();
    reports.into_iter().for_each(|other| report.merge(other));
    let seconds = begun.elapsed().as_secs_f64();
    if args.json {
        show::json(&report.json(args.seed, args.count, &targets, seconds));
    } else {
        report.print(seconds);
    }
    Ok(report.found.is_empty())
}

/// The targets of some archs.
fn targets(archs: &[String]) -> Result<Vec<Target>> {
    Ok(archs::machines(archs)?.iter().map(Machine::target).collect())
}

fn gpu(name: &str) -> Result<Device> {
    let device = input::device_or(name, "the simulator, without --device")?;
    if !matches!(device.id(), DeviceId::Cuda(_)) {
        bail!("--device of `fuzz` names a GPU, such as cuda:0; without it the simulator alone runs the kernels");
    }
    Ok(device)
}

/// The first well-formed recipe of a seed, and the codes for which earlier ones were refused.
fn well_formed(seed: u64, draw: Draw) -> (Recipe, Vec<String>) {
    let mut refused = Vec::new();
    for attempt in 0.. {
        let mut recipe = draw(seed, attempt);
        let mut trial = Trial::new(&recipe);
        if let Err(diagnostics) = &trial
            && diagnostics.0.iter().all(|d| d.code == WRITES_INVALID)
        {
            recipe::make_stores_valid(&mut recipe.body);
            trial = Trial::new(&recipe);
        }
        match trial {
            Err(diagnostics) if attempt < ATTEMPTS => {
                let code = diagnostics.0.first().map_or_else(String::new, |d| d.code.to_string());
                refused.push(code);
            }
            _ => return (recipe, refused),
        }
    }
    (draw(seed, 0), refused)
}

/// Draws the kernel of a seed and runs it for each target.
fn of_seed(seed: u64, targets: &[Target], device: Option<&Device>, shrinks: bool) -> Report {
    let (recipe, refused) = well_formed(seed, generate::generate);
    let mut report = Report::default();
    refused.into_iter().for_each(|code| report.refuse(code));
    let Ok(mut trial) = Trial::new(&recipe) else { return report };
    report.programs += 1;
    for &target in targets {
        match trial.run(target, &SCHEDULES, device) {
            Ok(passed) => report.pass(&passed),
            Err(failure) => {
                let drawn = recipe.clone();
                report.found.push(found(seed, drawn, failure, shrinks && device.is_none(), false));
                // Other targets usually fail in the same way.
                break;
            }
        }
    }
    report
}

/// Draws the config-independent kernel of a seed, and compares its configs for each target.
fn in_configs(seed: u64, targets: &[Target], shrinks: bool) -> Report {
    let (recipe, refused) = well_formed(seed, configs::draw);
    let mut report = Report::default();
    refused.into_iter().for_each(|code| report.refuse(code));
    if Trial::new(&recipe).is_err() {
        return report;
    }
    report.programs += 1;
    for &target in targets {
        match configs::run(&recipe, target) {
            Ok(passed) => passed.iter().for_each(|passed| report.pass(passed)),
            Err(failed) => {
                let (config, failure) = *failed;
                // A failure that needs two configs cannot be shrunk in one.
                let shrinks = shrinks && failure.kind != trial::Kind::Config;
                report.found.push(found(seed, config, failure, shrinks, true));
                break;
            }
        }
    }
    report
}

fn found(seed: u64, recipe: Recipe, failure: TrialFailure, shrinks: bool, configs: bool) -> Found {
    if !shrinks {
        return Found { seed, recipe, failure, configs };
    }
    let shrink::Shrunk { recipe, failure } = shrink::shrink(recipe, failure);
    Found { seed, recipe, failure, configs }
}

impl Report {
    fn pass(&mut self, passed: &Passed) {
        match &passed.refused {
            Some(reason) => self.refuse(report::without_numbers(reason)),
            None => self.compiled += 1,
        }
        self.split += usize::from(passed.is_split);
        self.launches += passed.launches;
        self.in_ring += usize::from(passed.ring);
        self.elements += passed.elements;
        self.judged += passed.judged;
    }
}
