//! `atlas tune`: measures the most promising configs of kernels, and records the best ones.
//!
//! For each size the cost model, corrected by the existing record, ranks the tune space. Workers compile a share of it.
//! Another worker checks and times these configs, and drops the slower half in each round. The record is written after
//! each size, so that nothing is lost however the search ends.

mod check;
mod child;
mod file;
mod left_out;
mod pack;
mod recount;
mod replay;
mod search;
mod subject;
mod tuner;
mod worker;

use self::child::{Pool, WorkerProcess};
use self::left_out::reasons;
use self::pack::Task;
use self::tuner::Tuner;
use super::jobs::{self, Job};
use super::print::tell;
use super::{archs, host_info, input, show, stages};
use anyhow::{Context, Result, bail};
use atlas_codegen::Machine;
use atlas_dsl::Config;
use atlas_runtime::records::{Records, class_text};
use atlas_runtime::{Candidate, Device, choose_with};
use serde_json::{Value, json};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

pub(super) use self::worker::{WorkerArgs, run as work};

/// The most processes that compile, unless the user gives another number.
const MOST_JOBS: usize = 8;
/// The least number of configs of a size that are measured.
const LEAST: usize = 4;

/// The arguments of the verb.
#[derive(clap::Args)]
pub(super) struct TuneArgs {
    #[command(flatten)]
    asked: jobs::Asked,
    /// cuda:N. To try the search without a GPU, sim or sim:ARCH: there, warp instructions counted by the simulator
    /// stand for time, and the results say nothing about a GPU.
    #[arg(long, default_value = "cuda:0", conflicts_with_all = ["pack", "replay", "recount"])]
    device: String,
    /// Instead of each given size, tune COUNT sizes drawn at random around it.
    #[arg(long, value_name = "COUNT", conflicts_with_all = ["replay", "recount"])]
    draw: Option<NonZeroUsize>,
    /// The seed for drawing sizes.
    #[arg(long, default_value_t = 1, conflicts_with_all = ["measure", "check", "recount"])]
    seed: u64,
    /// The share of a kernel's legal configs that is measured; 1 for all.
    #[arg(long, default_value_t = 0.11, conflicts_with_all = ["measure", "check", "recount"])]
    share: f64,
    /// The folder of the records: FOLDER/GPU/KERNEL.toml.
    #[arg(long, value_name = "FOLDER", default_value = "records", conflicts_with_all = ["pack", "replay", "recount"])]
    records: PathBuf,
    /// Measure recorded sizes again.
    #[arg(long, conflicts_with_all = ["pack", "replay", "recount"])]
    again: bool,
    /// Stop after this many seconds; the results so far are recorded.
    #[arg(long, value_name = "SECONDS", conflicts_with_all = ["pack", "check", "replay", "recount"])]
    budget: Option<u64>,
    /// Compile the candidates for --arch into a file, and measure nothing: for a machine that has the GPU and no compiler.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["measure", "check", "replay", "json"])]
    pack: Option<PathBuf>,
    /// Measure the candidates of a pack, which also names the problems.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["kernels", "sizes", "dims", "dtype", "set", "draw", "check", "replay"])]
    measure: Option<PathBuf>,
    /// Find records that are stale, whose config is not legal (for the GPU of this machine, or for --arch), or that no
    /// launch finds; and, among those of the GPU of this machine, those whose times no longer hold.
    #[arg(long, conflicts_with_all = ["sizes", "dims", "dtype", "set", "draw", "replay"])]
    check: bool,
    /// Evaluate, with records of all configs (made with --share 1), the choices for tuned sizes and for others.
    #[arg(long, value_name = "FOLDER", conflicts_with_all = ["kernels", "sizes", "dims", "dtype", "set"])]
    replay: Option<PathBuf>,
    /// Update the records of a folder after a change of the cost model, without measuring.
    #[arg(long, value_name = "FOLDER", conflicts_with_all = [
        "kernels", "sizes", "dims", "dtype", "set", "pack", "measure", "check", "replay", "json",
    ])]
    recount: Option<PathBuf>,
    /// The GPU that a pack is made for, or for which records of other GPUs than the one here are checked, replayed or
    /// counted.
    #[arg(long, default_value = "sm_90")]
    arch: String,
    /// Processes that compile; each takes a few hundred megabytes of the GPU. One per core and at most 8 unless given.
    #[arg(long, conflicts_with_all = ["pack", "replay", "recount"])]
    jobs: Option<NonZeroUsize>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

impl TuneArgs {
    /// Whether worker processes are started that measure.
    pub(super) fn has_workers(&self) -> bool {
        self.pack.is_none() && self.replay.is_none()
    }
}

/// Runs the search, or one of the other modes.
pub(super) fn run(args: &TuneArgs) -> Result<bool> {
    if !(args.share > 0.0 && args.share <= 1.0) {
        bail!("--share is more than 0 and at most 1");
    }
    if let Some(folder) = &args.replay {
        let machine: Machine = args.arch.parse().map_err(anyhow::Error::msg)?;
        return replay::run(folder, machine, args.share, args.seed, args.json);
    }
    if let Some(folder) = &args.recount {
        return recount::run(folder, args.arch.parse().map_err(anyhow::Error::msg)?);
    }
    if let Some(file) = &args.pack {
        let on = archs::platform(&args.arch)?;
        args.asked.spare("--pack", file)?;
        return pack::make(file, &jobs(args)?, on, &Records::default(), args.share);
    }
    if args.check {
        let device = input::device(&args.device).ok().filter(|d| d.machine().is_some());
        if device.is_some() && !stages::CAN_COMPILE {
            tell!(
                "warning: no time is measured again: this program was built without its code generator, the feature `jit`"
            );
        }
        let mut tuner = device.filter(|_| stages::CAN_COMPILE).map(|device| tuner(args, &device)).transpose()?;
        let usual = archs::machine(&args.arch)?;
        return check::run(&args.records, args.asked.kernels(), tuner.as_mut(), usual, args.json);
    }
    let tasks = match &args.measure {
        Some(file) => pack::tasks(file)?,
        None if !stages::CAN_COMPILE => bail!(
            "`tune` compiles what it measures, and this program was built without its code generator: build it with the feature \
             `jit`, or `--measure` a pack"
        ),
        None => jobs(args)?.into_iter().map(|job| Task { job, only: None }).collect(),
    };
    let device = input::device_or(&args.device, "--device sim, which tries the search out")?;
    let mut tuner = tuner(args, &device)?;
    if let Some(file) = &args.measure {
        tuner.machine = pack::machine_of(file, tuner.machine)?;
    }
    tuner.run(tasks)
}

/// The tuner for a device.
fn tuner<'a>(args: &'a TuneArgs, device: &Device) -> Result<Tuner<'a>> {
    let machine = device.machine().with_context(|| {
        format!(
            "`tune` measures GPUs, and {device} is none: name one, such as --device cuda:0, of which `atlas doctor` says whether it is \
             here, or try the search out with --device sim"
        )
    })?;
    let mut to_worker = vec!["--device".to_owned(), args.device.clone()];
    if let Some(pack) = &args.measure {
        to_worker.extend(["--pack".to_owned(), pack.display().to_string()]);
    }
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    Ok(Tuner {
        args,
        machine,
        device: device.clone(),
        gpu: device.name().to_owned(),
        measured: measured_text(device),
        pool: Arc::new(Pool::new(workers(args.jobs, cores), &to_worker)),
        worker: WorkerProcess::new(to_worker),
        opened: None,
        busy: Duration::ZERO,
        is_gone: false,
        deadline: None,
    })
}

fn jobs(args: &TuneArgs) -> Result<Vec<Job>> {
    let jobs = args.asked.jobs()?;
    match args.draw {
        None => Ok(jobs),
        Some(count) => {
            let drawn = jobs.iter().map(|j| jobs::drawn(j, count.get(), args.seed)).collect::<Result<Vec<_>>>()?;
            Ok(drawn.concat())
        }
    }
}

/// The number of processes that compile: one per core, but bounded, because each uses some of the GPU's memory.
fn workers(asked: Option<NonZeroUsize>, cores: usize) -> usize {
    asked.map_or(cores.clamp(1, MOST_JOBS), NonZeroUsize::get)
}

/// How many of `legal` configs are measured.
fn measured(legal: usize, share: f64) -> usize {
    ((legal as f64 * share) as usize).max(LEAST).min(legal)
}

/// The legal configs of a job, best first, with the model's costs.
fn ranked(job: &Job, machine: Machine, records: &Records) -> Result<Vec<Candidate>> {
    let selection = choose_with(job.def, &job.spec, &job.dims, machine, records);
    let legal: Vec<Candidate> = selection.legal().cloned().collect();
    match legal.is_empty() {
        false => Ok(legal),
        true => {
            let why = reasons(selection.refused());
            bail!("no config of `{}` is legal for {} ({why})", job.def.name, job.dims_text())
        }
    }
}

/// The records of a folder without the sizes of some tasks.
fn of_other_sizes(job: &Job, without: &[Task], folder: &Path, gpu: &str) -> Records {
    let mut records = Records::none(gpu);
    if let Some(mut record) = file::read(folder, gpu, job.def.name) {
        let same = without.iter().map(|t| &t.job).filter(|j| j.def.name == job.def.name);
        let without: Vec<_> = same.map(|j| (class_text(j.def, &j.spec), j.dims_text())).collect();
        record.sizes.retain(|s| !without.iter().any(|((types, tensors), dims)| s.is_of(types, tensors, dims)));
        records.insert(record);
    }
    records
}

fn build_request(job: &Job, config: &Config) -> Value {
    let mut request = job.request("build");
    request["config"] = json!(config.to_string());
    request
}

/// `2026-11-24, driver 580.159.04, 1980 MHz, atlas 0.1.0`.
fn measured_text(device: &Device) -> String {
    let r = host_info::host_info(device);
    let text = |v: &Value| v.as_str().unwrap_or("?").to_owned();
    let (gpu, date) = (&r["gpu"], text(&r["date"]));
    let date = date.split('T').next().unwrap_or("?");
    if device.simulates() {
        return format!("{date}, counted in the simulator: warp instructions, no times; atlas {}", text(&r["atlas"]));
    }
    let (driver, sm, memory) = (text(&gpu["driver_version"]), text(&gpu["clocks_sm"]), text(&gpu["clocks_mem"]));
    format!("{date}, driver {driver}, clocks {sm} and {memory} at the start, atlas {}", text(&r["atlas"]))
}

#[cfg(test)]
mod tests {
    use super::workers;
    use std::num::NonZeroUsize;

    #[test]
    fn a_host_of_many_cores_has_few_workers_unless_it_is_asked_for_more() {
        assert_eq!([workers(None, 224), workers(None, 2), workers(NonZeroUsize::new(20), 2)], [8, 2, 20]);
    }
}
