//! Runs one kernel on the CPU, on every simulated GPU under three schedules and as many choices of approximate results,
//! and on a real GPU on request, and compares the results.
//!
//! The CPU device is the reference. Each other device runs the config of its own choice and every config of the tune
//! space, up to a limit. `agrees_with` also compares the CPU with a plain f64 loop. `ATLAS_DEVICES=cuda:0` adds devices
//! to the simulated ones, and `ATLAS_NO_SIM=1` leaves those out.

mod absolute;
mod advice;
mod advice_clusters;
mod advice_elsewhere;
mod advice_forms;
mod ahead;
mod arguments;
mod atomics;
mod before_loops;
mod bits;
mod clusters;
mod doubles;
mod edges_of_derivatives;
mod elementwise;
mod engine_stores;
mod epilogues;
mod exchanges;
mod extents;
mod fitting;
mod fp8;
mod fp8_in_use;
mod functions_of_two;
mod gallery;
mod gathers;
mod gathers_in_use;
mod gradients;
mod grids;
mod grouped_heads;
mod hopper;
mod infinite;
mod long_loops;
mod long_runs;
mod magnified;
mod packed;
mod pairs;
mod panels;
mod persistent;
mod pinned;
mod pipelines;
mod places_apart;
mod precisions;
mod random_numbers;
mod scalars;
mod scales;
mod scans;
mod scans_and_atomics_in_use;
mod signed_zeros;
mod small_integers;
mod small_integers_elsewhere;
mod split;
mod starts;
mod sums;
mod tile_numbers;
mod turned;
mod wrong_code;

use crate::command::folder;
use crate::kernels::Executed;
use atlas_dsl::rounding::{to_bf16, to_f16};
use atlas_dsl::{Config, DType, KernelDef};
use atlas_runtime::simulator::alu::Approximation;
use atlas_runtime::simulator::launch::Policy;
use atlas_runtime::{Arg, CacheDir, Device, Element, KernelImage, Launch, RuntimeError, SimOptions, Target, Tensor};
use float8::{F8E4M3, F8E5M2};
use tempfile::TempDir;

/// The number of configs to try beside the chosen one.
const CONFIGS: usize = 4;

/// An argument on the host.
#[derive(Clone)]
pub(crate) enum Given {
    /// Read by the kernel.
    In(Data),
    /// Written, and possibly read, by the kernel.
    Out(Data),
    /// A number.
    F32(f32),
    /// A whole number.
    I32(i32),
    /// A whole number of 64 bits.
    I64(i64),
}

/// The elements of a tensor, and their layout.
#[derive(Clone)]
pub(crate) struct Data {
    dtype: DType,
    shape: Vec<usize>,
    values: Vec<f64>,
    /// The number of elements before and after each row.
    around: (usize, usize),
    /// True for the transpose, along the last two axes, of a tensor that lies row by row. An input's only.
    by_columns: bool,
}

/// A pseudo-random number between -1 and 1 that depends only on the index.
pub(crate) fn noise(i: usize) -> f64 {
    let x = (i as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 31)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    ((x >> 40) as f64 / f64::from(1 << 23)) - 1.0
}

/// An input whose elements are a function of their row-major index.
pub(crate) fn input(dtype: DType, shape: &[usize], f: impl FnMut(usize) -> f64) -> Given {
    Given::In(data(dtype, shape, f))
}

/// A random input.
pub(crate) fn random(dtype: DType, shape: &[usize]) -> Given {
    let salt = shape.iter().fold(17, |a, &b| a * 31 + b);
    input(dtype, shape, |i| noise(i + salt))
}

/// An output, which is NaN before the launch.
pub(crate) fn output(dtype: DType, shape: &[usize]) -> Given {
    let unwritten = match dtype {
        dtype if dtype.is_float() || dtype.is_fp8() => f64::NAN,
        dtype if dtype.is_unsigned() => 77.0,
        _ => -77.0,
    };
    Given::Out(data(dtype, shape, |_| unwritten))
}

/// An output that the kernel also reads.
pub(crate) fn in_place(dtype: DType, shape: &[usize]) -> Given {
    Given::Out(data(dtype, shape, |i| noise(i + 5)))
}

fn data(dtype: DType, shape: &[usize], f: impl FnMut(usize) -> f64) -> Data {
    let values = (0..shape.iter().product()).map(f).collect();
    Data { dtype, shape: shape.to_vec(), values, around: (0, 0), by_columns: false }
}

impl Given {
    /// The same elements as an output, which holds them before the launch.
    pub(crate) fn into_output(self) -> Given {
        match self {
            Given::In(d) => Given::Out(d),
            other => other,
        }
    }

    /// The same as a view into wider rows, with `before` elements before each row and `after` elements after it.
    pub(crate) fn within(mut self, before: usize, after: usize) -> Given {
        if let Given::In(d) | Given::Out(d) = &mut self {
            d.around = (before, after);
        }
        self
    }

    /// The same input, column by column in memory: its last two axes change places there.
    pub(crate) fn by_columns(mut self) -> Given {
        if let Given::In(d) = &mut self {
            d.by_columns = true;
        }
        self
    }
}

/// The elements around a view, which must be neither read nor written.
const AROUND: f64 = 99.0;

/// A tensor with the elements around it.
struct Placed {
    whole: Tensor,
    view: Tensor,
}

fn upload(device: &Device, dtype: DType, values: &[f64], shape: &[usize]) -> Result<Tensor, RuntimeError> {
    match dtype {
        DType::F32 => device.tensor_from(&values.iter().map(|&v| v as f32).collect::<Vec<_>>(), shape),
        DType::F16 => device.tensor_from(&values.iter().copied().map(to_f16).collect::<Vec<_>>(), shape),
        DType::Bf16 => device.tensor_from(&values.iter().copied().map(to_bf16).collect::<Vec<_>>(), shape),
        DType::F64 => device.tensor_from(values, shape),
        DType::I32 => device.tensor_from(&values.iter().map(|&v| v as i32).collect::<Vec<_>>(), shape),
        DType::I64 => device.tensor_from(&values.iter().map(|&v| v as i64).collect::<Vec<_>>(), shape),
        DType::I8 => device.tensor_from(&values.iter().map(|&v| v as i8).collect::<Vec<_>>(), shape),
        DType::U8 => device.tensor_from(&values.iter().map(|&v| v as u8).collect::<Vec<_>>(), shape),
        DType::I16 => device.tensor_from(&values.iter().map(|&v| v as i16).collect::<Vec<_>>(), shape),
        DType::U16 => device.tensor_from(&values.iter().map(|&v| v as u16).collect::<Vec<_>>(), shape),
        DType::F8E4M3 => {
            device.tensor_from(&values.iter().map(|&v| <F8E4M3 as Element>::from_f64(v)).collect::<Vec<_>>(), shape)
        }
        DType::F8E5M2 => {
            device.tensor_from(&values.iter().map(|&v| <F8E5M2 as Element>::from_f64(v)).collect::<Vec<_>>(), shape)
        }
        DType::Bool => panic!("no tensor is bool"),
    }
}

impl Data {
    fn place(&self, device: &Device) -> Result<Placed, RuntimeError> {
        if self.by_columns {
            let Placed { whole, view } = self.turned().place(device)?;
            let last = self.shape.len() - 1;
            return Ok(Placed { whole, view: view.transpose(last - 1, last)? });
        }
        let Some((&row, outer)) = self.shape.split_last() else { panic!("a tensor has an axis") };
        let (before, after) = self.around;
        let mut shape = outer.to_vec();
        shape.push(before + row + after);
        let mut values = Vec::new();
        for r in 0..outer.iter().product() {
            values.extend(vec![AROUND; before]);
            values.extend(&self.values[r * row..(r + 1) * row]);
            values.extend(vec![AROUND; after]);
        }
        let whole = upload(device, self.dtype, &values, &shape)?;
        let view = whole.slice(outer.len(), before..before + row)?;
        Ok(Placed { whole, view })
    }

    /// The transpose along the last two axes.
    fn turned(&self) -> Data {
        let [outer @ .., rows, cols] = &self.shape[..] else { panic!("a tensor of two axes or more") };
        let matrix = |m: &[f64]| {
            (0..*cols).flat_map(|c| (0..*rows).map(move |r| (r, c))).map(|(r, c)| m[r * cols + c]).collect::<Vec<f64>>()
        };
        let values = self.values.chunks((rows * cols).max(1)).flat_map(matrix).collect();
        Data { shape: [outer, &[*cols, *rows]].concat(), values, by_columns: false, ..self.clone() }
    }

    /// The elements of the view, out of the whole tensor. The elements around it must be unchanged.
    fn inside(&self, whole: &[f64]) -> Vec<f64> {
        let (row, (before, after)) = (self.shape.last().copied().unwrap_or(0), self.around);
        let mut view = Vec::new();
        for all in whole.chunks((before + row + after).max(1)) {
            view.extend(&all[before..before + row]);
            let mut outside = all[..before].iter().chain(&all[before + row..]);
            let around = rounded(self.dtype, AROUND);
            assert!(outside.all(|&v| v == around), "written outside of a view");
        }
        view
    }
}

/// A number rounded to an element type.
fn rounded(dtype: DType, v: f64) -> f64 {
    match dtype {
        DType::F32 => f64::from(v as f32),
        DType::F16 => to_f16(v).to_f64(),
        DType::Bf16 => to_bf16(v).to_f64(),
        dtype if dtype.is_whole() => dtype.saturated(v) as f64,
        dtype => dtype.fp8().map_or(v, |fp8| fp8.round(v)),
    }
}

/// The outputs after a launch, with the elements around them.
fn run(
    kernel: &'static KernelDef,
    device: &Device,
    config: Option<&Config>,
    given: &[Given],
) -> Result<Vec<Vec<f64>>, RuntimeError> {
    let found = run_unless(kernel, device, config, given, |_| false)?;
    Ok(found.unwrap_or_else(|| panic!("{}: the launch was left out", kernel.name)))
}

/// The same, or nothing where the compiled kernel says that the launch is to be left out.
fn run_unless(
    kernel: &'static KernelDef,
    device: &Device,
    config: Option<&Config>,
    given: &[Given],
    is_left_out: impl FnOnce(&KernelImage) -> bool,
) -> Result<Option<Vec<Vec<f64>>>, RuntimeError> {
    let mut placed = Vec::new();
    for g in given {
        placed.push(match g {
            Given::In(d) | Given::Out(d) => Some(d.place(device)?),
            _ => None,
        });
    }
    let args: Vec<Arg<'_>> = given
        .iter()
        .zip(&mut placed)
        .map(|(g, p)| match (g, p) {
            (Given::Out(_), Some(p)) => Arg::Out(&mut p.view),
            (Given::F32(x), _) => Arg::F32(*x),
            (Given::I32(x), _) => Arg::I32(*x),
            (Given::I64(x), _) => Arg::I64(*x),
            (_, Some(p)) => Arg::In(&p.view),
            (_, None) => panic!("a tensor was not placed"),
        })
        .collect();
    let prepared = match config {
        Some(config) => kernel.prepare_with(device, config, &args)?,
        None => kernel.prepare(device, &args)?,
    };
    if prepared.image().is_some_and(is_left_out) {
        return Ok(None);
    }
    match config {
        Some(config) => kernel.launch_with(device, config, args)?,
        None => kernel.launch(device, args)?,
    }
    let outputs = given.iter().zip(&placed).filter(|(g, _)| matches!(g, Given::Out(_)));
    outputs.filter_map(|(_, p)| p.as_ref()).map(|p| p.whole.to_f64_vec()).collect::<Result<_, _>>().map(Some)
}

/// The targets of a schedule of the simulator: one schedule with the instructions of Hopper alone, the others with what later
/// GPUs run too.
fn usual(policy: Policy) -> Vec<Target> {
    let hopper: Option<Target> = "sm_90a".parse().ok().filter(|_| policy == Policy::Adversarial);
    Target::all().into_iter().chain(hopper).collect()
}

/// Hopper's own target under every schedule.
fn hopper(_: Policy) -> Vec<Target> {
    "sm_90a".parse().into_iter().collect()
}

thread_local! {
    /// The kernels that the devices of this thread's test compiled. A device for each schedule, in each call, runs the
    /// same kernels, and which PTX they have follows from the kernel, its config and its target.
    static COMPILED: TempDir = folder();
}

/// The schedules of the simulator with their seeds, and the results that approximate instructions give.
const SCHEDULES: [(Policy, u64, Approximation); 3] = [
    (Policy::RoundRobin, 0, Approximation::Nearest),
    (Policy::Adversarial, 1, Approximation::Up),
    (Policy::Random, 2, Approximation::Random),
];

/// The devices that the CPU is compared with: the simulator under three schedules, and GPUs if the environment names some.
///
/// Each is for use before the next one is asked for. What the schedules have in common is one device for each target, which
/// chooses configs and reads code once.
pub(crate) fn devices() -> impl Iterator<Item = (String, Device)> {
    devices_of(usual).map(|(name, device, _)| (name, device))
}

/// The same with the simulator's devices of these targets, each with its schedule.
fn devices_of(targets: fn(Policy) -> Vec<Target>) -> impl Iterator<Item = (String, Device, Option<Policy>)> {
    let compiled = CacheDir::At(COMPILED.with(|folder| folder.path().to_owned()));
    let schedules = if std::env::var_os("ATLAS_NO_SIM").is_none() { &SCHEDULES[..] } else { &[] };
    let mut opened: Vec<(Target, Device)> = Vec::new();
    let runs = schedules.iter().flat_map(move |schedule| targets(schedule.0).into_iter().map(move |t| (schedule, t)));
    let simulated = runs.map(move |(&(policy, seed, approximation), target)| {
        let options = SimOptions { policy, seed, approximation, ..SimOptions::default() };
        let known = opened.iter().find(|(of, _)| *of == target).map(|(_, device)| device.clone());
        let device = known.unwrap_or_else(|| {
            let device = Device::sim_with(target, options, compiled.clone());
            opened.push((target, device.clone()));
            device
        });
        device.set_sim_options(options);
        (format!("sim:{target} {policy:?}"), device, Some(policy))
    });
    let named = std::env::var("ATLAS_DEVICES").unwrap_or_default();
    let names: Vec<String> = named.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect();
    simulated.chain(names.into_iter().map(|name| {
        let number = name.strip_prefix("cuda:").and_then(|n| n.parse().ok());
        let device = Device::cuda(number.unwrap_or_else(|| panic!("ATLAS_DEVICES: `{name}` is no `cuda:N`")));
        let device = device.unwrap_or_else(|e| panic!("{name}: {e}"));
        (name, device, None)
    }))
}

/// The largest difference of two results, relative to the largest magnitude. Infinite if only one of two elements is
/// NaN or infinite.
fn difference(found: &[f64], wanted: &[f64]) -> (f64, usize) {
    let finite = wanted.iter().filter(|w| w.is_finite() && **w != AROUND);
    let scale = finite.fold(1e-30_f64, |a, &b| a.max(b.abs()));
    let mut worst = (0.0, 0);
    for (i, (&f, &w)) in found.iter().zip(wanted).enumerate() {
        let d = match (f.is_finite(), w.is_finite()) {
            (true, true) => (f - w).abs() / scale,
            _ if f == w || (f.is_nan() && w.is_nan()) => 0.0,
            _ => f64::INFINITY,
        };
        if d > worst.0 {
            worst = (d, i);
        }
    }
    worst
}

/// True if a config was passed over because of a defect of the compiler.
fn is_defect(refused: &[(Config, String)]) -> bool {
    refused.iter().any(|(_, why)| why.contains("a defect of Atlas"))
}

/// Some of a kernel's configs. Their distance has no factor in common with the number of configs, which is the product of the
/// numbers of the knobs' values, so that it takes every value of each knob in turn.
fn spread(configs: &[Config]) -> impl Iterator<Item = &Config> {
    let count = configs.len().max(1);
    let is_coprime = |&step: &usize| (2..=step).all(|d| !step.is_multiple_of(d) || !count.is_multiple_of(d));
    let step = (count.div_ceil(CONFIGS)..).find(is_coprime).unwrap_or(1);
    configs.iter().step_by(step)
}

/// The failures of a kernel on these arguments: the devices and configs on which it fails, or differs from the CPU by
/// more than `bound` times the largest result.
pub(crate) fn disagreements(kernel: &'static KernelDef, given: &[Given], bound: f64) -> Vec<String> {
    disagreements_on(usual, kernel, given, bound)
}

/// The same on the simulator's devices of these targets.
fn disagreements_on(
    targets: fn(Policy) -> Vec<Target>,
    kernel: &'static KernelDef,
    given: &[Given],
    bound: f64,
) -> Vec<String> {
    let wanted = run(kernel, &Device::cpu(), None, given).unwrap_or_else(|e| panic!("{} on the CPU: {e}", kernel.name));
    let configs = kernel.configs();
    let picked: Vec<Option<&Config>> = std::iter::once(None).chain(spread(&configs).map(Some)).collect();
    let (mut wrong, mut executed) = (Vec::new(), Executed::default());
    for (name, device, policy) in devices_of(targets) {
        for &config in &picked {
            let at = format!("{} on {name}, config {}", kernel.name, config.map_or("chosen".into(), Config::to_string));
            let was_executed = |image: &KernelImage| policy.is_some_and(|policy| executed.has(policy, image));
            match run_unless(kernel, &device, config, given, was_executed) {
                Ok(None) => {}
                // A config of the space that this GPU cannot run is not a failure. A failure to choose any config is
                // one, and so is a defect of the compiler.
                Err(RuntimeError::Compile(e))
                    if config.is_some() && !e.refused.is_empty() && !is_defect(&e.refused) => {}
                Err(e) => wrong.push(format!("{at}: {e}")),
                Ok(Some(found)) => {
                    for (k, (f, w)) in found.iter().zip(&wanted).enumerate() {
                        let (d, i) = difference(f, w);
                        if d > bound {
                            wrong.push(format!("{at}: output {k} differs by {d:.1e} at {i}: {} for {}", f[i], w[i]));
                        }
                    }
                }
            }
        }
    }
    wrong
}

/// Fails if a kernel's results on any device differ from those on the CPU.
#[track_caller]
pub(crate) fn agrees(kernel: &'static KernelDef, given: &[Given], bound: f64) {
    none(&disagreements(kernel, given, bound));
}

/// The same on Hopper's own target, under every schedule.
#[track_caller]
pub(crate) fn agrees_on_hopper(kernel: &'static KernelDef, given: &[Given], bound: f64) {
    none(&disagreements_on(hopper, kernel, given, bound));
}

#[track_caller]
fn none(wrong: &[String]) {
    let shown = &wrong[..wrong.len().min(6)];
    assert!(wrong.is_empty(), "{} disagreements:\n{}", wrong.len(), shown.join("\n"));
}

/// Fails if a kernel on the CPU differs from a plain f64 loop by more than `bound` times each output's largest
/// magnitude, or if any other device differs from the CPU by more than twice that.
///
/// The loop gets the elements of every argument in row-major order, as the kernel does. A number is one element. It
/// returns the outputs in order.
#[track_caller]
pub(crate) fn agrees_with(
    kernel: &'static KernelDef,
    given: &[Given],
    bound: f64,
    plain: impl Fn(&[Vec<f64>]) -> Vec<Vec<f64>>,
) {
    let read = |g: &Given| match g {
        Given::In(d) | Given::Out(d) => d.values.iter().map(|&v| rounded(d.dtype, v)).collect(),
        Given::F32(x) => vec![f64::from(*x)],
        Given::I32(x) => vec![f64::from(*x)],
        Given::I64(x) => vec![*x as f64],
    };
    let wanted = plain(&given.iter().map(read).collect::<Vec<_>>());
    let found = run(kernel, &Device::cpu(), None, given).unwrap_or_else(|e| panic!("{} on the CPU: {e}", kernel.name));
    let outputs = given.iter().filter_map(|g| if let Given::Out(d) = g { Some(d) } else { None });
    assert_eq!(wanted.len(), found.len(), "{}: outputs of the plain loop", kernel.name);
    for (k, ((data, f), w)) in outputs.zip(&found).zip(&wanted).enumerate() {
        let f = data.inside(f);
        assert_eq!(w.len(), f.len(), "{}: elements of output {k} of the plain loop", kernel.name);
        let (d, i) = difference(&f, w);
        assert!(d <= bound, "{} on the CPU: output {k} differs by {d:.1e} at {i}: {} for {}", kernel.name, f[i], w[i]);
    }
    agrees(kernel, given, 2.0 * bound);
}
