//! `atlas verify --device sim`: small problems of every op in the simulator, over targets and configs, on all cores.

use super::show::Progress;
use super::verify;
use anyhow::{Result, anyhow};
use atlas_codegen::Machine;
use atlas_ops::Op;
use atlas_ops::simulate::{Cover, Job, Simulated, jobs};
use atlas_runtime::simulator::launch::Policy;
use atlas_runtime::{CacheDir, SimOptions};
use rayon::prelude::*;
use serde_json::{Value, json};
use std::sync::{Mutex, PoisonError};

/// What the user typed about the simulator.
#[derive(clap::Args)]
#[group(skip)]
pub(super) struct Args {
    /// In the simulator: the architectures.
    #[arg(long, value_delimiter = ',', value_name = "ARCH,..", default_value = "sm_80,sm_89,sm_90")]
    arch: Vec<String>,
    /// In the simulator: which warp runs next.
    #[arg(long, value_enum, default_value_t = Schedule::RoundRobin)]
    schedule: Schedule,
    /// In the simulator: seed of the schedule.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// In the simulator: every accepted config on every problem, not only a cover of all pairs of knob values.
    #[arg(long)]
    all_configs: bool,
}

/// Schedules of the simulator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Schedule {
    /// Each warp until it blocks, in order.
    RoundRobin,
    /// One warp starves while others run; asynchronous operations are late.
    Adversarial,
    /// By the seed.
    Random,
}

impl Args {
    fn machines(&self) -> Result<Vec<Machine>> {
        super::compile::machines(&self.arch)
    }

    fn options(&self) -> SimOptions {
        let policy = match self.schedule {
            Schedule::RoundRobin => Policy::RoundRobin,
            Schedule::Adversarial => Policy::Adversarial,
            Schedule::Random => Policy::Random,
        };
        SimOptions { policy, seed: self.seed, ..SimOptions::default() }
    }
}

/// The machines that a device's name asks for: those of `--arch` for `sim`; `None` if it is no simulator.
pub(super) fn machines(device: &str, args: &Args) -> Result<Option<Vec<Machine>>> {
    match (device, device.strip_prefix("sim:")) {
        ("sim", _) => args.machines().map(Some),
        (_, Some(arch)) => arch.parse().map(|m| Some(vec![m])).map_err(|e: String| anyhow!("--device: {e}")),
        _ => Ok(None),
    }
}

/// A row for each launch.
pub(super) fn rows(ops: &[&'static Op], only: Option<&str>, machines: &[Machine], args: &Args) -> Result<Vec<Value>> {
    let cover = if args.all_configs { Cover::All } else { Cover::Pairs };
    let jobs = jobs(machines, cover, |p| {
        ops.iter().any(|op| op.name == p.op.name) && only.is_none_or(|name| name == p.op.name || name == p.kernel.name)
    })?;
    let progress = Mutex::new(Progress::new(jobs.len()));
    let row = |job: &Job| {
        progress.lock().unwrap_or_else(PoisonError::into_inner).step(&job.to_string());
        check(job, args.options())
    };
    Ok(jobs.par_iter().map(row).collect())
}

fn check(job: &Job, options: SimOptions) -> Value {
    let mut row = verify::row_of(&job.problem);
    row["arch"] = json!(job.machine.to_string());
    row["config"] = json!(job.config.as_ref().map(ToString::to_string));
    match job.run(options, CacheDir::from_env()) {
        Ok(Simulated { comparison, run }) => {
            verify::fill(&mut row, &job.problem, &comparison);
            row["bank_conflicts"] = json!(run.as_ref().map_or(0, |run| run.conflicts()));
            row["instructions"] = json!(run.as_ref().map_or(0, |run| run.report.warp_instructions));
        }
        Err(e) => row["error"] = json!(e.to_string()),
    }
    row
}
