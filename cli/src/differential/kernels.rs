//! Runs the shipped kernels on a GPU and in the simulator, with the same PTX and the same bytes.

use super::super::print::tell;
use super::gpu;
use super::verdict::{self, Verdict};
use super::{ComparisonRow, Section};
use anyhow::{Context, Result, anyhow};
use atlas_codegen::{Machine, Target};
use atlas_dsl::ir::Access;
use atlas_dsl::{Config, DType};
use atlas_ops::{Comparison, Problem, cases};
use atlas_runtime::{BoundArg, CompiledLaunch, Device, SimScratch, Tensor};
use atlas_runtime::{choose_for, specialize};
use atlas_sim::alu::Arithmetic;
use atlas_sim::launch::{Launch, Options};
use atlas_sim::memory::{Global, Permission};
use atlas_sim::program::Program;
use atlas_sim::{decode, launch, syntax};
use half::{bf16, f16};
use rayon::prelude::*;
use serde_json::{Value, json};

/// The most operations of a problem that is simulated.
const MOST_FLOPS: f64 = 4e6;
/// The most problems of a kernel in one element type.
const PROBLEMS: usize = 4;
/// The bytes between the elements of a view. As floats they are NaNs.
const PADDING: u8 = 0xff;

/// Small problems of every kernel in every element type, including ragged and strided ones.
pub(super) fn problems() -> Vec<Problem> {
    let mut chosen: Vec<Problem> = Vec::new();
    for p in cases::verification() {
        let same = |q: &&Problem| q.kernel.name == p.kernel.name && q.dtype == p.dtype;
        if (p.op.flops)(&p) <= MOST_FLOPS && !p.dims.contains(&0) && chosen.iter().filter(same).count() < PROBLEMS {
            chosen.push(p);
        }
    }
    chosen
}

/// A kernel compiled for a problem, and the simulator's result.
pub(super) struct SimulatedKernel {
    name: String,
    bound: f64,
    outcome: Result<SimulatedLaunch>,
}

/// A compiled launch, with its buffers before and after the simulator ran it.
struct SimulatedLaunch {
    compiled: CompiledLaunch,
    program: Program,
    /// One buffer per argument; empty for numbers.
    buffers: Vec<Vec<u8>>,
    output: ElementPositions,
    /// The output as the simulator leaves it.
    simulated: Vec<u8>,
}

/// The positions of an argument's elements in its buffer.
struct ElementPositions {
    arg: usize,
    dtype: DType,
    offsets: Vec<usize>,
}

/// Compiles and simulates every problem, for each target that runs on the device and with several configs.
pub(super) fn trials(problems: &[Problem], device: &Device) -> Vec<SimulatedKernel> {
    // The simulator uses the target's own machine, which is no larger than the device.
    let newest = device.target().map_or(0, |t| t.sm);
    let own = device.target().filter(|t| t.specific);
    let targets = Target::all().into_iter().filter(|t| t.sm <= newest && t.sm % 10 == 0).chain(own);
    let machines = targets.map(Machine::from);
    let jobs: Vec<(&Problem, Machine)> = machines.flat_map(|m| problems.iter().map(move |p| (p, m))).collect();
    tell!("simulating {} problems", jobs.len());
    jobs.par_iter().flat_map_iter(|(p, machine)| trials_of(p, *machine)).collect()
}

fn trials_of(p: &Problem, machine: Machine) -> Vec<SimulatedKernel> {
    let trial = |outcome: Result<SimulatedLaunch>, config: &str| SimulatedKernel {
        name: format!("{p} {} {config}", machine.target()),
        bound: p.bound(),
        outcome,
    };
    let configs = match configs(p, machine) {
        Ok(configs) => configs,
        Err(e) => return vec![trial(Err(e), "")],
    };
    configs.iter().map(|config| trial(ready(p, machine, config), &config.to_string())).collect()
}

/// The configs that the cost model ranks first and last.
fn configs(p: &Problem, machine: Machine) -> Result<Vec<Config>> {
    let bound = p.bind(&Device::cpu())?;
    let selection = choose_for(p.kernel, &specialize(&bound), bound.dims(), Some(machine));
    // One kernel is compared, and a launch with packed operands has several.
    let legal = selection.legal().map(|c| c.config.clone()).filter(|config| !config.schedule.packs_operands());
    let legal: Vec<Config> = legal.collect();
    let first = legal.first().with_context(|| format!("no config is legal for {p} on {machine}"))?;
    let last = legal.last().filter(|last| *last != first);
    Ok([Some(first), last].into_iter().flatten().cloned().collect())
}

fn ready(p: &Problem, machine: Machine, config: &Config) -> Result<SimulatedLaunch> {
    let bound = p.bind(&Device::cpu())?;
    let compiled = CompiledLaunch::new(&bound, config, machine)?;
    let image = compiled.image();
    let mut buffers = Vec::new();
    let mut output = None;
    for (arg, bound) in bound.args().iter().enumerate() {
        buffers.push(match bound {
            BoundArg::Scalar { .. } => Vec::new(),
            BoundArg::Tensor { tensor, access } => {
                let offsets = offsets(tensor);
                let bytes = buffer(tensor, &offsets)?;
                if *access == Access::Out {
                    output = Some(ElementPositions { arg, dtype: tensor.dtype(), offsets });
                }
                bytes
            }
        });
    }
    let output = output.context("the kernel has no output")?;
    let program = decode::compile(&syntax::parse(&image.ptx)?, Some(&image.entry), Arithmetic::Ieee)?;
    let mut ready = SimulatedLaunch { compiled, program, buffers, output, simulated: Vec::new() };
    ready.simulated = ready.simulate()?;
    Ok(ready)
}

/// The offsets in bytes of a tensor's elements from the first, in row-major order.
fn offsets(tensor: &Tensor) -> Vec<usize> {
    let axes = || tensor.shape().iter().zip(tensor.strides()).rev();
    let offset = |mut i: usize| {
        let step = |(&size, &stride): (&usize, &i64)| {
            let at = i % size;
            i /= size;
            at * stride as usize
        };
        axes().map(step).sum::<usize>() * tensor.dtype().bytes() as usize
    };
    (0..tensor.len()).map(offset).collect()
}

/// The bytes that a tensor covers, with padding between its elements.
fn buffer(tensor: &Tensor, offsets: &[usize]) -> Result<Vec<u8>> {
    let bits: Vec<u64> = match tensor.dtype() {
        DType::Bf16 => tensor.to_vec::<bf16>()?.iter().map(|v| v.to_bits().into()).collect(),
        DType::F16 => tensor.to_vec::<f16>()?.iter().map(|v| v.to_bits().into()).collect(),
        DType::F32 => tensor.to_vec::<f32>()?.iter().map(|v| v.to_bits().into()).collect(),
        other => return Err(anyhow!("no tensor of {other} is compared")),
    };
    let size = tensor.dtype().bytes() as usize;
    let mut bytes = vec![PADDING; offsets.iter().max().map_or(0, |last| last + size)];
    for (bits, at) in bits.iter().zip(offsets) {
        bytes[*at..at + size].copy_from_slice(&bits.to_le_bytes()[..size]);
    }
    Ok(bytes)
}

impl ElementPositions {
    /// The values of the elements in a buffer.
    fn values(&self, bytes: &[u8]) -> Vec<f64> {
        let half = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let value = |&at: &usize| match self.dtype {
            DType::Bf16 => bf16::from_bits(half(at)).to_f64(),
            DType::F16 => f16::from_bits(half(at)).to_f64(),
            _ => f64::from(f32::from_bits(word(at))),
        };
        self.offsets.iter().map(value).collect()
    }

    /// How many elements of two buffers are equal, and whether all bytes between the elements are.
    fn equal(&self, one: &[u8], other: &[u8]) -> (usize, bool) {
        let size = self.dtype.bytes() as usize;
        let mut between = vec![true; one.len()];
        let mut equal = 0;
        for &at in &self.offsets {
            between[at..at + size].fill(false);
            equal += usize::from(one[at..at + size] == other[at..at + size]);
        }
        (equal, between.iter().zip(one.iter().zip(other)).all(|(between, (a, b))| !between || a == b))
    }
}

impl SimulatedLaunch {
    fn simulate(&self) -> Result<Vec<u8>> {
        let (image, raw) = (self.compiled.image(), self.compiled.raw());
        let mut memory = Global::new();
        let place = |(i, bytes): (usize, &Vec<u8>)| {
            let permission = if i == self.output.arg { Permission::ReadWrite } else { Permission::ReadOnly };
            memory.alloc(bytes.clone(), permission)
        };
        let addresses: Vec<u64> = self.buffers.iter().enumerate().map(place).collect();
        let scratch = SimScratch::new(&mut memory, image, raw.grid)?;
        let launch = Launch {
            program: &self.program,
            grid: [raw.grid, 1, 1],
            block: [image.threads, 1, 1],
            cluster: None,
            shared_bytes: image.shared_bytes,
            params: &self.compiled.simulated_params(&addresses, scratch.addresses()),
        };
        launch::run(&launch, &mut memory, &Options::default())?;
        scratch.end(&mut memory)?;
        Ok(memory.read(addresses[self.output.arg], self.buffers[self.output.arg].len() as u64)?.to_vec())
    }

    /// Compares the GPU's output with the simulator's.
    fn compare(&self, found: &[u8], of_op: f64) -> (Verdict, Value) {
        let bound = verdict::bound(&self.compiled.image().ptx, of_op);
        let (equal, padding) = self.output.equal(&self.simulated, found);
        let elements = self.output.offsets.len();
        let (found, expected) = (self.output.values(found), self.output.values(&self.simulated));
        let comparison = Comparison::new(&found, &expected);
        let verdict = match () {
            () if !padding => Verdict::Disagrees,
            () if equal == elements => Verdict::Equal,
            () => verdict::of_elements(&comparison, bound),
        };
        let details = json!({
            "elements": elements,
            "not_bit_equal": elements - equal,
            "rel_f": comparison.rel_f,
            "max_relative": verdict::largest_relative(&found, &expected),
            "non_finite": comparison.non_finite,
            "bound": bound,
            "padding_kept": padding,
        });
        (verdict, details)
    }
}

/// Runs every trial.
pub(super) fn run(device: &Device, trials: &[SimulatedKernel]) -> Section {
    let mut section = Section::default();
    let mut progress = super::every(20, trials.len());
    for trial in trials {
        progress(&trial.name);
        let mut push =
            |verdict, details| section.rows.push(ComparisonRow { name: trial.name.clone(), verdict, details });
        let ready = match &trial.outcome {
            Ok(ready) => ready,
            Err(e) => {
                push(Verdict::Disagrees, json!({ "error": format!("in the simulator: {e:#}") }));
                continue;
            }
        };
        match gpu::outcome(device, ready.compiled.run(device, &ready.buffers)) {
            Ok(buffers) => {
                let (verdict, details) = ready.compare(&buffers[ready.output.arg], trial.bound);
                push(verdict, details);
            }
            Err(failure) => {
                push(Verdict::Disagrees, json!({ "error": failure.what }));
                if failure.fatal {
                    section.stopped =
                        Some(format!("`{}` left the GPU's context unusable: {}", trial.name, failure.what));
                    break;
                }
            }
        }
    }
    section
}

#[cfg(all(test, feature = "llvm"))]
mod tests {
    use super::*;

    fn ready_of(kernel: &str, dtype: DType, dims: &[u64]) -> (Problem, SimulatedLaunch) {
        let p = cases::problem(kernel, dtype, dims).unwrap();
        let machine: Machine = "sm_80".parse().unwrap();
        let config = configs(&p, machine).unwrap().swap_remove(0);
        let ready = ready(&p, machine, &config).unwrap();
        (p, ready)
    }

    #[test]
    fn what_the_simulator_made_is_bit_equal_to_itself() {
        let (p, ready) = ready_of("softmax", DType::F16, &[3, 40]);
        let (verdict, details) = ready.compare(&ready.simulated, p.bound());
        assert_eq!((verdict, &details["not_bit_equal"]), (Verdict::Equal, &json!(0)));
    }

    #[test]
    fn kernels_without_loose_instructions_must_be_bit_equal() {
        let (p, ready) = ready_of("poly3", DType::F32, &[5, 64]);
        let mut found = ready.simulated.clone();
        found[0] ^= 1;
        let (verdict, details) = ready.compare(&found, p.bound());
        assert_eq!((verdict, &details["bound"]), (Verdict::Disagrees, &json!(0.0)));
    }

    #[test]
    fn products_may_differ_within_the_bound_of_the_op() {
        let (p, ready) = ready_of("memory_read", DType::Bf16, &[1, 20, 16, 48]);
        let mut found = ready.simulated.clone();
        found[0] ^= 1;
        assert_eq!(ready.compare(&found, p.bound()).0, Verdict::Within);
        found[1] ^= 0x40;
        assert_eq!(ready.compare(&found, p.bound()).0, Verdict::Disagrees);
    }

    #[test]
    fn padding_must_stay() {
        let p = cases::problem("rms_norm", DType::F32, &[3, 40]).unwrap();
        let p = p.layout("y", atlas_ops::Layout::Padded);
        let machine: Machine = "sm_90".parse().unwrap();
        let config = configs(&p, machine).unwrap().swap_remove(0);
        let ready = ready(&p, machine, &config).unwrap();
        let mut found = ready.simulated.clone();
        found[4 * 41] ^= 1;
        assert_eq!(ready.compare(&found, 1.0).0, Verdict::Disagrees);
        assert_eq!(ready.compare(&ready.simulated, 1.0).0, Verdict::Equal);
    }
}
