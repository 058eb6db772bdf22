//! `atlas verify --device sim`: runs small problems of every op in the simulator, for several targets and configs, on
//! all cores.

use super::archs;
use super::show::Progress;
use super::verify_row::{fill, row_of};
use anyhow::{Result, anyhow, bail};
use atlas_codegen::Machine;
use atlas_ops::Op;
use atlas_ops::simulate::{Cover, Job, Simulated, jobs};
use atlas_runtime::simulator::launch::Policy;
use atlas_runtime::{CacheDir, SimOptions};
use rayon::prelude::*;
use serde_json::{Value, json};
use std::sync::{Mutex, PoisonError};

/// The arguments that concern the simulator.
#[derive(clap::Args)]
#[group(skip)]
pub(super) struct SimulateArgs {
    /// With --device sim: the architectures. Without it, what the GPU here runs (sm_90a on Hopper), else sm_80, sm_89 and sm_90.
    #[arg(long, value_delimiter = ',', value_name = "ARCH,..")]
    arch: Vec<String>,
    /// In the simulator: which warp runs next; round-robin unless given.
    #[arg(long, value_enum)]
    schedule: Option<Schedule>,
    /// In the simulator: seed of the schedule; 0 unless given.
    #[arg(long)]
    seed: Option<u64>,
    /// In the simulator: every accepted config on every problem, not only a cover of all pairs of knob values.
    #[arg(long)]
    all_configs: bool,
}

/// The schedules of the simulator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Schedule {
    /// Each warp until it blocks, in order.
    RoundRobin,
    /// One warp starves while others run; asynchronous operations are late.
    Adversarial,
    /// Depends on the seed.
    Random,
}

impl SimulateArgs {
    fn machines(&self) -> Result<Vec<Machine>> {
        archs::machines(&if self.arch.is_empty() { archs::usual(archs::of_gpu()) } else { self.arch.clone() })
    }

    /// Refuses options that have no effect on a device that is not a simulator.
    pub(super) fn unused(&self, device: &str) -> Result<()> {
        let given = [
            ("--arch", !self.arch.is_empty()),
            ("--schedule", self.schedule.is_some()),
            ("--seed", self.seed.is_some()),
            ("--all-configs", self.all_configs),
        ];
        match given.iter().find(|(_, is_given)| *is_given) {
            Some((option, _)) => bail!("{option} is for the simulator, --device sim, and not for --device {device}"),
            None => Ok(()),
        }
    }

    fn options(&self) -> SimOptions {
        let policy = match self.schedule.unwrap_or(Schedule::RoundRobin) {
            Schedule::RoundRobin => Policy::RoundRobin,
            Schedule::Adversarial => Policy::Adversarial,
            Schedule::Random => Policy::Random,
        };
        SimOptions { policy, seed: self.seed.unwrap_or(0), ..SimOptions::default() }
    }
}

/// The machines that a device's name selects: those of `--arch` for `sim`. `None` if it is not a simulator.
pub(super) fn machines(device: &str, args: &SimulateArgs) -> Result<Option<Vec<Machine>>> {
    match (device, device.strip_prefix("sim:")) {
        ("sim", _) => args.machines().map(Some),
        (_, Some(_)) if !args.arch.is_empty() => {
            bail!("--device {device} names its architecture; --arch is for --device sim")
        }
        (_, Some(arch)) => arch.parse().map(|m| Some(vec![m])).map_err(|e: String| anyhow!("--device: {e}")),
        _ => Ok(None),
    }
}

/// A row for each launch.
pub(super) fn rows(
    ops: &[&'static Op],
    only: Option<&str>,
    machines: &[Machine],
    args: &SimulateArgs,
) -> Result<Vec<Value>> {
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
    let mut row = row_of(&job.problem);
    row["arch"] = json!(job.machine.to_string());
    row["config"] = json!(job.config.as_ref().map(ToString::to_string));
    match job.run(options, CacheDir::from_env()) {
        Ok(Simulated { comparison, run }) => {
            fill(&mut row, &job.problem, &comparison);
            row["bank_conflicts"] = json!(run.as_ref().map_or(0, |run| run.conflicts()));
            row["instructions"] = json!(run.as_ref().map_or(0, |run| run.report.warp_instructions));
        }
        Err(e) => row["error"] = json!(e.to_string()),
    }
    row
}
