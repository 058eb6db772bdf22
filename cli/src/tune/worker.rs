//! The worker of `atlas tune`: a process that compiles, loads, runs and times candidates, and that may crash.
//!
//! It reads requests and writes answers, one line of JSON each. `build` compiles a config and, on a GPU, lets the
//! driver assemble it. `open` makes a problem's tensors. `try` runs a config and checks its results. `time` runs it
//! again and times it. In the simulator, warp instructions stand for microseconds. That tests the search, but finds no
//! config for any GPU.

use super::super::jobs::Job;
use super::super::{input, sample, stages};
use super::child::line_of;
use super::pack;
use super::subject::Subject;
use anyhow::{Context, Result, bail};
use atlas_codegen::{KernelImage, Machine, packing};
use atlas_dsl::{Config, DType, Kernel, Schedule, Verified};
use atlas_runtime::bundle::{Bundle, Bundles};
use atlas_runtime::{
    CacheDir, Device, Event, PreparedLaunch, RawKernel, Store, Tensor, build_kernel, kernel_key, timing,
};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{BufRead, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// The size of the copy that measures bandwidth, in bytes.
const COPIED: usize = 1 << 29;

/// The arguments that the parent passes.
#[derive(clap::Args)]
pub(in super::super) struct WorkerArgs {
    /// cuda:N.
    #[arg(long)]
    device: String,
    /// The pack whose kernels are measured; without it they are compiled.
    #[arg(long)]
    pack: Option<PathBuf>,
}

/// Serves requests until its input ends. If the device fails, the process exits, because no later answer would be
/// reliable.
pub(in super::super) fn run(args: &WorkerArgs) -> Result<bool> {
    let mut worker = Worker::new(args)?;
    let mut out = std::io::stdout();
    for line in requests() {
        let request: Value = serde_json::from_str(&line)?;
        #[cfg(feature = "mutations")]
        chatter();
        let mut answer = worker.answer(&request).unwrap_or_else(|e| {
            let failed = worker.device.synchronize().is_err();
            json!({ "error": format!("{e:#}"), "ends": failed })
        });
        answer["number"] = request["number"].clone();
        writeln!(out, "{}", line_of(&answer))?;
        out.flush()?;
        if answer["ends"] == true {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The lines of the input. If the input ends while a request is running, the parent is gone, and this process exits.
fn requests() -> impl Iterator<Item = String> {
    let (sender, lines) = std::sync::mpsc::sync_channel(0);
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
        drop(sender);
        // A process that waits for the next line exits by itself. One that is busy would hold the GPU.
        std::thread::sleep(Duration::from_secs(1));
        std::process::abort();
    });
    lines.into_iter()
}

struct Worker {
    device: Device,
    machine: Machine,
    store: Store,
    pack: Option<Bundle>,
    subject: Option<Subject>,
    launches: BTreeMap<String, PreparedLaunch>,
    /// The bytes per second of a copy on the device, measured once.
    copy: Option<f64>,
}

impl Worker {
    fn new(args: &WorkerArgs) -> Result<Worker> {
        #[cfg(feature = "mutations")]
        if std::env::var("ATLAS_TUNE_FAULT").is_ok_and(|fault| fault == "closed") {
            bail!("the device is taken");
        }
        let device = input::device(&args.device)?;
        let machine = device.machine().context("a CPU is not tuned for")?;
        // The measured kernel is the one that the compiler makes now, or the one in the pack.
        device.set_bundles(Bundles::default());
        if let Some(pack) = &args.pack {
            device.set_compiling(false);
            device.add_bundle(Bundle::open(pack)?);
        }
        let pack = args.pack.as_ref().map(Bundle::open).transpose()?;
        let store = Store::new(CacheDir::from_env());
        Ok(Worker { device, machine, store, pack, subject: None, launches: BTreeMap::new(), copy: None })
    }

    fn answer(&mut self, request: &Value) -> Result<Value> {
        match request["verb"].as_str() {
            Some("build") => self.build(&Job::of_request(request)?, &config(&request["config"])?),
            Some("open") => self.open(&Job::of_request(request)?),
            Some("try") => self.try_one(request),
            Some("time") => self.time(request),
            Some("ping") => self.ping(),
            _ => bail!("there is no such request"),
        }
    }

    fn build(&self, job: &Job, config: &Config) -> Result<Value> {
        #[cfg(feature = "mutations")]
        match std::env::var("ATLAS_TUNE_FAULT").as_deref() {
            Ok("refuse") => bail!("refused as planned"),
            Ok("unbuilt") => std::process::abort(),
            _ => {}
        }
        let images = match &self.pack {
            Some(pack) => {
                let variant = pack::variant(pack, job, config)?;
                let images = variant.codes().map(|code| pack.image_of(&variant, code));
                images.map(|image| Ok(Arc::new(image?))).collect::<Result<_>>()?
            }
            None => self.compiled(job, config)?,
        };
        for image in images.iter().filter(|_| !self.device.simulates()) {
            // The driver caches the assembled code for the worker that measures.
            RawKernel::load(&self.device, &image.ptx, &image.entry, image.shared_bytes)?;
        }
        Ok(json!({}))
    }

    /// The kernel of a config, and those that pack its operands.
    fn compiled(&self, job: &Job, config: &Config) -> Result<Vec<Arc<KernelImage>>> {
        let kernel = build_kernel(job.def, &job.spec, config)?;
        let launch = packing::launch_kernels(kernel, &config.schedule, self.machine.target())?;
        let packers = launch.packers.into_iter().map(|packer| (packer, packing::packer_schedule()));
        let all = packers.chain([(launch.kernel, config.schedule)]);
        all.map(|(kernel, schedule)| self.compiled_one(kernel, schedule)).collect()
    }

    fn compiled_one(&self, kernel: Verified<Kernel>, schedule: Schedule) -> Result<Arc<KernelImage>> {
        let key = kernel_key(&kernel, schedule, self.machine.target());
        if let Some(image) = self.store.get(&key) {
            return Ok(image);
        }
        match stages::image(kernel.into_inner(), &schedule, self.machine.into()) {
            Ok(image) => Ok(self.store.put(&key, image)),
            Err(stages::CompileFailure::Refused(reason)) => bail!("{reason}"),
            Err(stages::CompileFailure::Other(e)) => Err(e),
        }
    }

    fn open(&mut self, job: &Job) -> Result<Value> {
        #[cfg(feature = "mutations")]
        gone(job);
        let device = self.device.clone();
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
        let (device, config) = (self.device.clone(), config(&request["config"])?);
        if request["unless_loaded"] == true && self.launches.contains_key(&config.to_string()) {
            return Ok(json!({}));
        }
        #[cfg(feature = "mutations")]
        fault(&config.to_string(), false);
        let subject = self.subject.as_mut().context("no problem is open")?;
        let launch = subject.prepare(&config, &device)?;
        let spills = launch.facts().map_or(0, |f| f.local_bytes);
        self.launches.insert(config.to_string(), launch);
        Ok(json!({ "spills": spills }))
    }

    /// Times a config that was tried before.
    fn time(&mut self, request: &Value) -> Result<Value> {
        let (device, config) = (self.device.clone(), config(&request["config"])?.to_string());
        #[cfg(feature = "mutations")]
        fault(&config, true);
        let subject = self.subject.as_mut().context("no problem is open")?;
        let launch = self.launches.get(&config).with_context(|| format!("`{config}` was not tried"))?;
        if device.simulates() {
            subject.launch(launch)?;
            let ran = device.simulated().context("nothing ran")?;
            return Ok(json!({ "us": ran.report.counters.totals().warp_instructions as f64 }));
        }
        let stream = device.default_stream();
        let (start, end) = (Event::new(&device)?, Event::new(&device)?);
        sample::flush(&device)?;
        start.record(&stream)?;
        subject.launch(launch)?;
        end.record(&stream)?;
        device.synchronize()?;
        Ok(json!({ "us": start.elapsed_ms(&end)? * 1e3 }))
    }

    /// Answers if the device responds.
    fn ping(&self) -> Result<Value> {
        #[cfg(feature = "mutations")]
        if std::env::var_os("ATLAS_TUNE_GONE_AFTER").is_some() {
            std::process::abort();
        }
        self.device.synchronize()?;
        Ok(json!({}))
    }
}

/// Ends or hangs this process at a given config, as a bad kernel would: when it is tried, or when it is timed.
#[cfg(feature = "mutations")]
fn fault(config: &str, is_timed: bool) {
    let when = std::env::var_os("ATLAS_TUNE_FAULT_TIMED").is_some();
    if when == is_timed && std::env::var("ATLAS_TUNE_FAULT_AT").is_ok_and(|at| at == config) {
        match std::env::var("ATLAS_TUNE_FAULT").as_deref() {
            Ok("abort") => std::process::abort(),
            Ok("hang") => loop {
                std::thread::park();
            },
            _ => {}
        }
    }
}

/// Prints text as the user's program might.
#[cfg(feature = "mutations")]
fn chatter() {
    if std::env::var("ATLAS_TUNE_FAULT").is_ok_and(|fault| fault == "chatter") {
        println!("{}", json!({ "us": [0.25] }));
        print!("my tools 1.0 ");
    }
}

/// Ends this process at all problems after the first, as if the GPU had failed.
#[cfg(feature = "mutations")]
fn gone(job: &Job) {
    if std::env::var("ATLAS_TUNE_GONE_AFTER").is_ok_and(|dims| dims != job.dims_text()) {
        std::process::abort();
    }
}

fn config(text: &Value) -> Result<Config> {
    let text = text.as_str().context("the request has no config")?;
    text.parse().map_err(|e| anyhow::anyhow!("{e}"))
}

/// Bytes read and written per second by the driver's own copy; infinite in the simulator, which does not measure time.
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
