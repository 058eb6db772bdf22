//! Times work on a device: events around each run, a flushed L2 cache before it, and the median of many runs.

use anyhow::Result;
use atlas_dsl::DType;
use atlas_ops::log_sum_exp::log_sum_exp;
use atlas_runtime::{Device, DeviceMemory, Event, Graph, Launch, Tensor, args};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// The bytes that are overwritten before each run; more than any L2 cache has.
const FLUSH_BYTES: usize = 256 << 20;
/// The elements of a row of the tensor that is read before each run.
const READ_ROW: usize = 1 << 15;
/// The number of runs before the first one that counts.
const WARM_UP: usize = 5;
/// The number of launches that are timed on the host; fewer, but some, of work that takes longer than this altogether.
const LAUNCHES: usize = 200;
const LAUNCHES_AT_LEAST: usize = 5;
const LAUNCHES_TAKE: Duration = Duration::from_secs(2);
/// Runs of work that takes longer than this altogether are fewer, but so many.
const RUNS_TAKE: Duration = Duration::from_secs(10);
const RUNS_AT_LEAST: usize = 5;

/// Times of one piece of work.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timing {
    /// Median time on the device, in milliseconds.
    pub(super) median_ms: f64,
    /// Shortest time on the device, in milliseconds.
    pub(super) min_ms: f64,
}

impl Timing {
    pub(super) fn to_json(self) -> Value {
        json!({ "median_ms": self.median_ms, "min_ms": self.min_ms })
    }
}

/// Times `work` on the device's default stream, `count` times. Before each run, the L2 cache is overwritten by a fill.
pub(super) fn on_device(device: &Device, count: usize, work: impl FnMut() -> Result<()>) -> Result<Timing> {
    // The fill keeps the device busy while the host queues the rest, so that the device never waits for a launch.
    behind(device, count, || flush(device), work)
}

/// [`on_device`], but before each run a kernel reads the L2 cache full. What a fill leaves in the cache must be written to
/// memory before a run can put anything in its place, which takes part of the run's bandwidth. What was only read is dropped.
/// `None` if the kernel that reads cannot be run here.
pub(super) fn behind_reads(device: &Device, count: usize, work: impl FnMut() -> Result<()>) -> Result<Option<Timing>> {
    let x = Tensor::zeros(device, DType::F32, [FLUSH_BYTES / 4 / READ_ROW, READ_ROW])?;
    let mut y = Tensor::zeros(device, DType::F32, [FLUSH_BYTES / 4 / READ_ROW])?;
    if log_sum_exp.launch(device, args!(x, &mut y)).is_err() {
        return Ok(None);
    }
    let mut read = || {
        flush(device)?;
        Ok(log_sum_exp.launch(device, args!(x, &mut y))?)
    };
    behind(device, count, &mut read, work).map(Some)
}

/// Times `work` behind other work, which is not timed: `count` times, or fewer if that takes long.
fn behind(
    device: &Device,
    count: usize,
    mut before: impl FnMut() -> Result<()>,
    mut work: impl FnMut() -> Result<()>,
) -> Result<Timing> {
    let stream = device.default_stream();
    work()?;
    device.synchronize()?;
    let begin = Instant::now();
    work()?;
    device.synchronize()?;
    let fit = RUNS_TAKE.as_secs_f64() / begin.elapsed().as_secs_f64().max(1e-9);
    let count = count.min((fit as usize).max(RUNS_AT_LEAST));
    for _ in 2..WARM_UP.min(count) {
        work()?;
    }
    device.synchronize()?;
    let mut events = Vec::new();
    for _ in 0..count {
        let (start, end) = (Event::new(device)?, Event::new(device)?);
        before()?;
        start.record(&stream)?;
        work()?;
        end.record(&stream)?;
        events.push((start, end));
    }
    device.synchronize()?;
    let times = events.iter().map(|(start, end)| start.elapsed_ms(end)).collect::<Result<Vec<f64>, _>>()?;
    let (median_ms, min_ms) = median(times);
    Ok(Timing { median_ms, min_ms })
}

/// Times all launches of a graph, `count` times. Nothing is flushed: each run finds what the one before left in the L2 cache.
pub(super) fn of_graph(device: &Device, graph: &mut Graph, count: usize) -> Result<Timing> {
    let stream = device.default_stream();
    for _ in 0..WARM_UP {
        graph.launch(&stream)?;
    }
    stream.synchronize()?;
    let mut events = Vec::new();
    for _ in 0..count {
        let (start, end) = (Event::new(device)?, Event::new(device)?);
        start.record(&stream)?;
        graph.launch(&stream)?;
        end.record(&stream)?;
        events.push((start, end));
    }
    stream.synchronize()?;
    let times = events.iter().map(|(start, end)| start.elapsed_ms(end)).collect::<Result<Vec<f64>, _>>()?;
    let (median_ms, min_ms) = median(times);
    Ok(Timing { median_ms, min_ms })
}

/// Median host time of one warm call of `work`, in microseconds.
pub(super) fn on_host(device: &Device, mut work: impl FnMut() -> Result<()>) -> Result<f64> {
    let (mut times, begin) = (Vec::new(), Instant::now());
    while times.len() < LAUNCHES_AT_LEAST || times.len() < LAUNCHES && begin.elapsed() < LAUNCHES_TAKE {
        let start = Instant::now();
        work()?;
        times.push(start.elapsed().as_secs_f64() * 1e6);
        // The queue is kept short, so that a launch never waits for room in it.
        if times.len() % 50 == 0 || start.elapsed() > LAUNCHES_TAKE / LAUNCHES as u32 {
            device.synchronize()?;
        }
    }
    device.synchronize()?;
    Ok(median(times).0)
}

/// Overwrites the L2 cache.
pub(super) fn flush(device: &Device) -> Result<()> {
    if !device.is_cpu() {
        drop(Tensor::zeros(device, DType::F32, [FLUSH_BYTES / 4])?);
    }
    Ok(())
}

fn median(mut times: Vec<f64>) -> (f64, f64) {
    times.sort_by(f64::total_cmp);
    (times.get(times.len() / 2).copied().unwrap_or(0.0), times.first().copied().unwrap_or(0.0))
}

/// Memory figures of a device before some work allocates its tensors.
pub(super) struct Memory {
    tensors: u64,
    driver: Option<DeviceMemory>,
}

impl Memory {
    /// The current figures, after freed tensors were returned to the system.
    pub(super) fn before(device: &Device) -> Result<Memory> {
        device.release_memory()?;
        Ok(Memory { tensors: device.tensor_bytes().0, driver: device.memory()? })
    }

    /// Writes the memory that the work uses, in bytes. `tensor_bytes` counts the live tensors (inputs, outputs, state
    /// and workspace). `peak_bytes` is the most that was allocated at once. `device_bytes` is the decrease of the
    /// system's free memory, which includes the driver's large blocks and compiled kernels.
    pub(super) fn write(&self, device: &Device, row: &mut Value) -> Result<()> {
        device.synchronize()?;
        row["tensor_bytes"] = json!(device.tensor_bytes().0 - self.tensors);
        if let (Some(before), Some(now)) = (self.driver, device.memory()?) {
            row["peak_bytes"] = json!(now.most_used.saturating_sub(before.used));
            row["device_bytes"] = json!(before.free.saturating_sub(now.free));
        }
        Ok(())
    }
}
