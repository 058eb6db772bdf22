//! The worker of `atlas tune`: a process that compiles, loads, runs and times candidates, and that may end badly.
//!
//! It reads requests and writes answers, a line of JSON each: `build` compiles a config and, on a GPU, lets the driver assemble
//! it; `open` makes a problem's tensors; `try` runs a config and checks what it gave; `time` runs configs in turn. In the simulator
//! warp instructions stand for microseconds: that tests the search, and finds no config for any GPU.

use super::super::jobs::Job;
use super::super::{input, sample, stages};
use super::subject::Subject;
use anyhow::{Context, Result, bail};
use atlas_codegen::Machine;
use atlas_dsl::{Config, DType};
use atlas_runtime::{
    CacheDir, Device, Event, PreparedLaunch, RawKernel, Store, Tensor, build_kernel, kernel_key, timing,
};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{BufRead, Write};

/// Bytes that are copied to measure bandwidth.
const COPIED: usize = 1 << 29;

/// What a parent says.
#[derive(clap::Args)]
pub(in super::super) struct Args {
    /// cuda:N; without it the worker compiles alone.
    #[arg(long)]
    device: Option<String>,
    /// The GPU that is compiled for, where there is no device.
    #[arg(long)]
    arch: Option<String>,
}

/// Serves until its input ends.
pub(in super::super) fn run(args: &Args) -> Result<bool> {
    let mut worker = Worker::new(args)?;
    let mut out = std::io::stdout();
    for line in std::io::stdin().lock().lines() {
        let request: Value = serde_json::from_str(&line?)?;
        let answer = worker.answer(&request).unwrap_or_else(|e| json!({ "error": format!("{e:#}") }));
        writeln!(out, "{answer}")?;
        out.flush()?;
    }
    Ok(true)
}

struct Worker {
    device: Option<Device>,
    machine: Machine,
    store: Store,
    subject: Option<Subject>,
    launches: BTreeMap<String, PreparedLaunch>,
    /// Bytes per second of a copy on the device, measured once.
    copy: Option<f64>,
}

impl Worker {
    fn new(args: &Args) -> Result<Worker> {
        let device = args.device.as_deref().map(input::device).transpose()?;
        let machine = match (&device, &args.arch) {
            (Some(device), _) => device.machine().context("a CPU is not tuned for")?,
            (None, Some(arch)) => arch.parse().map_err(anyhow::Error::msg)?,
            (None, None) => bail!("--device or --arch"),
        };
        let store = Store::new(CacheDir::from_env());
        Ok(Worker { device, machine, store, subject: None, launches: BTreeMap::new(), copy: None })
    }

    fn answer(&mut self, request: &Value) -> Result<Value> {
        match request["verb"].as_str() {
            Some("build") => self.build(&Job::of_request(request)?, &config(&request["config"])?),
            Some("open") => self.open(&Job::of_request(request)?),
            Some("try") => self.try_one(request),
            Some("time") => self.time(request),
            _ => bail!("there is no such request"),
        }
    }

    fn build(&self, job: &Job, config: &Config) -> Result<Value> {
        let kernel = build_kernel(job.def, &job.spec, config)?;
        let key = kernel_key(&kernel, config.schedule, self.machine.target());
        let image = match self.store.get(&key) {
            Some(image) => image,
            None => match stages::image((*kernel).clone(), &config.schedule, self.machine.into()) {
                Ok(image) => self.store.put(&key, image),
                Err(stages::Failure::Refused(reason)) => bail!("{reason}"),
                Err(stages::Failure::Other(e)) => return Err(e),
            },
        };
        if let Some(device) = self.device.as_ref().filter(|d| !d.simulates()) {
            // The driver keeps what it assembled for the worker that measures.
            RawKernel::load(device, &image.ptx, &image.entry, image.shared_bytes)?;
        }
        Ok(json!({}))
    }

    fn device(&self) -> Result<Device> {
        self.device.clone().context("this worker has no device")
    }

    fn open(&mut self, job: &Job) -> Result<Value> {
        let device = self.device()?;
        self.launches.clear();
        self.subject = None;
        device.release_memory()?;
        let subject = Subject::new(job, &device)?;
        let bytes = subject.bytes();
        self.subject = Some(subject);
        let copy = match self.copy {
            Some(copy) => copy,
            None => *self.copy.insert(copy_rate(&device)?),
        };
        Ok(json!({ "copy_us": bytes / copy * 1e6 }))
    }

    fn try_one(&mut self, request: &Value) -> Result<Value> {
        let (device, config) = (self.device()?, config(&request["config"])?);
        if request["unless_loaded"] == true && self.launches.contains_key(&config.to_string()) {
            return Ok(json!({}));
        }
        #[cfg(feature = "mutations")]
        fault(&config);
        let subject = self.subject.as_mut().context("no problem is open")?;
        let launch = subject.prepare(&config, &device)?;
        let spills = launch.facts().map_or(0, |f| f.local_bytes);
        self.launches.insert(config.to_string(), launch);
        Ok(json!({ "spills": spills }))
    }

    fn time(&mut self, request: &Value) -> Result<Value> {
        let device = self.device()?;
        let runs = request["runs"].as_u64().unwrap_or(1);
        let names: Vec<&str> = request["configs"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let subject = self.subject.as_mut().context("no problem is open")?;
        let launches = names.iter().map(|n| self.launches.get(*n).with_context(|| format!("`{n}` was not tried")));
        let launches = launches.collect::<Result<Vec<_>>>()?;
        if device.simulates() {
            let mut counted = Vec::new();
            for launch in launches {
                subject.launch(launch)?;
                let run = device.simulated().context("nothing ran")?;
                counted.push(vec![run.report.counters.totals().warp_instructions as f64; runs as usize]);
            }
            return Ok(json!({ "us": counted }));
        }
        let stream = device.default_stream();
        let mut events: Vec<Vec<(Event, Event)>> = names.iter().map(|_| Vec::new()).collect();
        for _ in 0..runs {
            for (launch, events) in launches.iter().zip(&mut events) {
                let (start, end) = (Event::new(&device)?, Event::new(&device)?);
                sample::flush(&device)?;
                start.record(&stream)?;
                subject.launch(launch)?;
                end.record(&stream)?;
                events.push((start, end));
            }
        }
        device.synchronize()?;
        let us = |(start, end): &(Event, Event)| start.elapsed_ms(end).map(|ms| ms * 1e3);
        let times = events.iter().map(|e| e.iter().map(us).collect::<Result<Vec<f64>, _>>());
        Ok(json!({ "us": times.collect::<Result<Vec<_>, _>>()? }))
    }
}

/// Ends or hangs this process at a config, as a bad kernel would.
#[cfg(feature = "mutations")]
fn fault(config: &Config) {
    if std::env::var("ATLAS_TUNE_FAULT_AT").is_ok_and(|at| at == config.to_string()) {
        match std::env::var("ATLAS_TUNE_FAULT").as_deref() {
            Ok("abort") => std::process::abort(),
            Ok("hang") => loop {
                std::thread::park();
            },
            _ => {}
        }
    }
}

fn config(text: &Value) -> Result<Config> {
    let text = text.as_str().context("the request has no config")?;
    text.parse().map_err(|e: String| anyhow::anyhow!("{e}"))
}

/// Bytes read and written per second by the driver's own copy; endless in the simulator, which has no time.
fn copy_rate(device: &Device) -> Result<f64> {
    if device.simulates() {
        return Ok(f64::INFINITY);
    }
    let from = Tensor::zeros(device, DType::Bf16, [COPIED / 2])?;
    let mut to = Tensor::zeros(device, DType::Bf16, [COPIED / 2])?;
    let stream = device.default_stream();
    let t = sample::on_device(device, 10, || Ok(timing::copy_on_device(&from, &mut to, &stream)?))?;
    Ok(2.0 * COPIED as f64 / (t.median_ms / 1e3))
}
