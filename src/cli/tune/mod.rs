//! `atlas tune`: measures the most promising configs of kernels, and records which is best.
//!
//! For each size the cost model, corrected by what the record has already, ranks the tune space; a share of it is compiled by
//! workers, checked and timed by another, the slower half left out round by round. The record is written after each size, so that what is known is kept however this ends.

mod child;
mod file;
mod replay;
mod search;
mod subject;
mod tuner;
mod worker;

use self::child::{Answer, Pool, Worker};
use self::tuner::Tuner;
use super::jobs::{self, Job};
use super::{input, record, show};
use anyhow::{Context, Result, bail};
use atlas_codegen::Machine;
use atlas_dsl::Config;
use atlas_runtime::records::{Records, class_text};
use atlas_runtime::{Candidate, choose_with};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub(super) use self::worker::{Args as WorkerArgs, run as work};

/// Configs of a size that are measured at the least.
const LEAST: usize = 4;

/// What the user typed.
#[derive(clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    asked: jobs::Asked,
    /// cuda:N.
    #[arg(long, default_value = "cuda:0")]
    device: String,
    /// Draw so many sizes at random around each one given.
    #[arg(long, value_name = "COUNT")]
    draw: Option<usize>,
    /// Of the sizes drawn at random.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The share of a kernel's legal configs that is measured; 1 for all.
    #[arg(long, default_value_t = 0.2)]
    share: f64,
    /// Where the records are: FOLDER/GPU/KERNEL.toml.
    #[arg(long, value_name = "FOLDER", default_value = "records")]
    records: PathBuf,
    /// Measure sizes again that are recorded.
    #[arg(long)]
    again: bool,
    /// Stop after so many seconds; what is known by then is recorded.
    #[arg(long, value_name = "SECONDS")]
    budget: Option<u64>,
    /// Compile the candidates into the kernel cache for a GPU that is not here, and measure nothing.
    #[arg(long, value_name = "ARCH")]
    pack: Option<String>,
    /// Tell from records of all configs, made with --share 1, how well tuned sizes and others are chosen for.
    #[arg(long, value_name = "FOLDER")]
    replay: Option<PathBuf>,
    /// The GPU that records are replayed for.
    #[arg(long, default_value = "sm_90")]
    arch: String,
    /// Processes that compile; as many as there are cores unless given.
    #[arg(long)]
    jobs: Option<usize>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Tunes.
pub(super) fn run(args: &Args) -> Result<bool> {
    if !(args.share > 0.0 && args.share <= 1.0) {
        bail!("--share is more than 0 and at most 1");
    }
    if let Some(folder) = &args.replay {
        let machine: Machine = args.arch.parse().map_err(anyhow::Error::msg)?;
        return replay::run(folder, machine, args.share, args.seed, args.json);
    }
    let jobs = jobs(args)?;
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let workers = args.jobs.unwrap_or(cores).max(1);
    if let Some(arch) = &args.pack {
        let machine: Machine = arch.parse().map_err(anyhow::Error::msg)?;
        return pack(args, &jobs, machine, &Pool::new(workers, &["--arch".to_owned(), arch.clone()]));
    }
    let device = input::device(&args.device)?;
    let machine = device.machine();
    let machine = machine.context("`tune` measures GPUs, and there is none here; `atlas doctor` says why")?;
    let to_device = ["--device".to_owned(), args.device.clone()];
    let mut tuner = Tuner {
        args,
        machine,
        gpu: device.name().to_owned(),
        measured: measured_text(&device.id().to_string()),
        pool: Arc::new(Pool::new(workers, &to_device)),
        worker: Worker::new(to_device.to_vec()),
        opened: None,
    };
    drop(device);
    tuner.run(jobs)
}

fn jobs(args: &Args) -> Result<Vec<Job>> {
    let jobs = args.asked.jobs()?;
    match args.draw {
        None => Ok(jobs),
        Some(count) => {
            let drawn = jobs.iter().map(|j| jobs::drawn(j, count, args.seed)).collect::<Result<Vec<_>>>()?;
            Ok(drawn.concat())
        }
    }
}

/// How many of so many legal configs are measured.
fn measured(legal: usize, share: f64) -> usize {
    ((legal as f64 * share).ceil() as usize).max(LEAST).min(legal)
}

/// The legal configs of a job, best first, with what the model says of them.
fn ranked(job: &Job, machine: Machine, records: &Records) -> Result<Vec<Candidate>> {
    let selection = choose_with(job.def, &job.spec, &job.dims, machine, records);
    let legal: Vec<Candidate> = selection.legal().cloned().collect();
    match legal.is_empty() {
        false => Ok(legal),
        true => bail!("no config of `{}` is legal for {}", job.def.name, job.dims_text()),
    }
}

/// The records of a folder without the one of a job's own sizes: measured again, they are searched as the first time.
fn of_other_sizes(job: &Job, folder: &Path, gpu: &str) -> Records {
    let mut records = Records::none(gpu);
    if let Some(mut record) = file::read(folder, gpu, job.def.name) {
        let (types, tensors) = class_text(job.def, &job.spec);
        let dims = job.dims_text();
        record.sizes.retain(|s| (&s.types, &s.tensors, &s.dims) != (&types, &tensors, &dims));
        records.insert(record);
    }
    records
}

fn build_request(job: &Job, config: &Config) -> Value {
    let mut request = job.request("build");
    request["config"] = json!(config.to_string());
    request
}

/// Compiles what would be measured.
fn pack(args: &Args, jobs: &[Job], machine: Machine, pool: &Pool) -> Result<bool> {
    let mut progress = show::Progress::new(jobs.len());
    let (mut built, mut failed) = (0, 0);
    for job in jobs {
        progress.step(&job.text());
        let candidates = match ranked(job, machine, &Records::default()) {
            Ok(candidates) => candidates,
            Err(e) => {
                eprintln!("{}: {e:#}", job.text());
                continue;
            }
        };
        let first = candidates.iter().take(measured(candidates.len(), args.share));
        for answer in pool.ask_all(first.map(|c| build_request(job, &c.config)).collect())? {
            match answer {
                Answer::Done(_) => built += 1,
                Answer::Refused(why) | Answer::Lost(why) => {
                    failed += 1;
                    eprintln!("{}: {why}", job.text());
                }
            }
        }
    }
    drop(progress);
    println!("{built} kernels for {machine} in the kernel cache; {failed} could not be compiled");
    Ok(built > 0)
}

/// `2026-11-24, driver 580.159.04, 1980 MHz, atlas 0.1.0`.
fn measured_text(device: &str) -> String {
    let r = record::record(device);
    let text = |v: &Value| v.as_str().unwrap_or("?").to_owned();
    let (gpu, date) = (&r["gpu"], text(&r["date"]));
    let date = date.split('T').next().unwrap_or("?");
    let (driver, sm, memory) = (text(&gpu["driver_version"]), text(&gpu["clocks_sm"]), text(&gpu["clocks_mem"]));
    format!("{date}, driver {driver}, clocks {sm} and {memory} at the start, atlas {}", text(&r["atlas"]))
}
