//! Plans: what a launch of one exact problem does, resolved once and found again without rebuilding anything.
//!
//! A plan is found by the kernel, the config if the caller gave one, and each argument's kind, type, shape, strides
//! and alignment: a few dozen words, hashed and compared with no allocation. Everything that the checks of a launch
//! depend on is in these words, but for addresses: two arguments may alias in one launch and not in the next.

use crate::args::Arg;
use crate::bind::{BoundArg, BoundLaunch, scalar_bits};
use crate::compile::{CompileProblem, compile, compile_with_lines, kernel_key};
use crate::cost::{grid_count, programs};
use crate::device::{Backend, Device};
use crate::error::{CompileFailure, Result};
use crate::kernel::LoadedKernel;
use crate::key::KernelKey;
use crate::launch_error::LaunchError;
use crate::problem::{alignment, launch_strides};
use crate::select::{Candidate, Selection, Source, choose, choose_given};
use atlas_codegen::{AbiParam, KernelImage, Target};
use atlas_dsl::ir::GridExtent;
use atlas_dsl::{Config, DType, Kernel, KernelDef, Schedule, Verified};
use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};

/// Plans that a device keeps; past it, all are dropped and found anew.
const MOST_PLANS: usize = 8192;

/// A launch of one exact problem.
pub(crate) struct Plan {
    pub(crate) config: Config,
    pub(crate) source: Source,
    pub(crate) body: Body,
}

pub(crate) enum Body {
    /// Nothing to run.
    Empty,
    /// Tile IR for the interpreter.
    Cpu { kernel: Arc<Verified<Kernel>>, dims: Vec<u64> },
    /// A loaded kernel, its grid and how its parameters are made.
    Gpu { kernel: Arc<LoadedKernel>, grid: u32, slots: Vec<Slot> },
}

/// One parameter of the `.entry`, as far as the plan knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Slot {
    /// Known: a size, a stride or a count.
    Bits(u64),
    /// The address of an argument.
    Address(usize),
    /// The number that an argument is.
    Number(usize, DType),
}

/// Plans by their words. Nothing iterates over it, so its order shows nowhere.
type ByProblem = HashMap<Box<[u64]>, Arc<Plan>, BuildHasherDefault<WordHasher>>;

/// The plans of a device, and its loaded kernels.
#[derive(Default)]
pub(crate) struct Plans {
    by_problem: Mutex<ByProblem>,
    loaded: Mutex<BTreeMap<KernelKey, Arc<LoadedKernel>>>,
}

/// The words that name a problem, on the stack unless there are many.
pub(crate) struct ProblemWords {
    length: usize,
    inline: [u64; ProblemWords::INLINE],
    rest: Vec<u64>,
}

impl ProblemWords {
    const INLINE: usize = 96;

    /// The words of a launch. Arguments and parameters need not agree yet.
    pub(crate) fn new(def: &'static KernelDef, config: Option<&Config>, args: &[Arg<'_>]) -> ProblemWords {
        let mut words = ProblemWords { length: 0, inline: [0; ProblemWords::INLINE], rest: Vec::new() };
        words.push(std::ptr::from_ref(def) as usize as u64);
        match config {
            None => words.push(0),
            Some(config) => {
                words.push(1 + config.tile.len() as u64);
                for knob in def.tune {
                    words.push(config.tile.get(knob.name).map_or(u64::MAX, |&v| u64::from(v)));
                }
                for key in Schedule::KEYS {
                    words.push(u64::from(config.schedule.get(key).unwrap_or_default()));
                }
            }
        }
        for arg in args {
            let kind = match arg {
                Arg::In(_) => 1,
                Arg::Out(_) => 2,
                Arg::F32(_) => 3,
                Arg::F64(_) => 4,
                Arg::I32(_) => 5,
                Arg::I64(_) => 6,
            };
            match arg.tensor() {
                None => words.push(kind),
                Some(t) => {
                    let class = u64::from(alignment(t));
                    words.push(kind | (t.dtype() as u64) << 8 | class << 16 | (t.rank() as u64) << 32);
                    t.shape().iter().for_each(|&n| words.push(n as u64));
                    t.strides().iter().for_each(|&s| words.push(s as u64));
                }
            }
        }
        words
    }

    fn push(&mut self, word: u64) {
        match self.inline.get_mut(self.length) {
            Some(place) => *place = word,
            None => {
                if self.rest.is_empty() {
                    self.rest.extend_from_slice(&self.inline);
                }
                self.rest.push(word);
            }
        }
        self.length += 1;
    }

    pub(crate) fn as_slice(&self) -> &[u64] {
        if self.rest.is_empty() { &self.inline[..self.length] } else { &self.rest }
    }
}

/// Hashes words by rotation and multiplication. Keys are compared whole, so collisions cost time alone.
#[derive(Default)]
pub(crate) struct WordHasher(u64);

impl Hasher for WordHasher {
    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        words.iter().for_each(|&w| self.write_u64(u64::from_ne_bytes(w)));
        rest.iter().for_each(|&b| self.write_u64(u64::from(b)));
    }

    fn write_u64(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(5) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn write_usize(&mut self, word: usize) {
        self.write_u64(word as u64);
    }

    fn finish(&self) -> u64 {
        // The table takes its bucket from the low bits, which multiplication mixes least.
        self.0 ^ (self.0 >> 32)
    }
}

impl Plans {
    /// The plan of a problem seen before.
    pub(crate) fn find(&self, words: &[u64]) -> Option<Arc<Plan>> {
        self.by_problem.lock().unwrap_or_else(PoisonError::into_inner).get(words).cloned()
    }

    /// Keeps a plan.
    pub(crate) fn keep(&self, words: &[u64], plan: &Arc<Plan>) {
        let mut plans = self.by_problem.lock().unwrap_or_else(PoisonError::into_inner);
        if plans.len() >= MOST_PLANS {
            plans.clear();
        }
        plans.insert(words.into(), plan.clone());
    }
}

/// Makes the plan of a bound launch: chooses a config, compiles or finds its kernel, and loads it.
pub(crate) fn resolve(bound: &BoundLaunch, config: Option<&Config>) -> Result<Plan> {
    let def = bound.def();
    if bound.is_empty() {
        let (config, source) = match config {
            Some(config) => (crate::select::complete(def, config)?, Source::Given),
            None => (def.default_config(), Source::Default),
        };
        return Ok(Plan { config, source, body: Body::Empty });
    }
    let selection = match config {
        Some(config) => choose_given(bound, config)?,
        None => choose(bound),
    };
    match bound.device().target() {
        Some(target) => resolve_gpu(bound, &selection, target),
        None => resolve_cpu(bound, &selection),
    }
}

fn resolve_cpu(bound: &BoundLaunch, selection: &Selection) -> Result<Plan> {
    let Some(Candidate { config, kernel: Some(kernel), .. }) = selection.legal().next() else {
        return Err(no_config(bound.def(), selection, Vec::new()).into());
    };
    let grid: Vec<GridExtent> = kernel.grid.iter().map(|a| a.extent).collect();
    let body = match programs(&grid, bound.dims()) {
        0 => Body::Empty,
        _ => Body::Cpu { kernel: kernel.clone(), dims: bound.dims().to_vec() },
    };
    Ok(Plan { config: config.clone(), source: selection.source, body })
}

fn resolve_gpu(bound: &BoundLaunch, selection: &Selection, target: Target) -> Result<Plan> {
    let def = bound.def();
    let mut refused = Vec::new();
    let candidates = selection.legal().map(|c| (c, selection.source));
    for (candidate, source) in candidates.chain(selection.fallback(def).map(|c| (c, Source::Default))) {
        let Candidate { config, kernel: Some(kernel), .. } = candidate else { continue };
        match load(bound.device(), kernel, &config.schedule, target)? {
            Ok(loaded) => {
                let body = gpu_body(bound, loaded)?;
                return Ok(Plan { config: config.clone(), source, body });
            }
            Err(CompileProblem::Refused(reason)) => refused.push((config.clone(), reason)),
            Err(CompileProblem::NoCompiler) => {
                return Err(CompileFailure {
                    kernel: def.name.to_owned(),
                    message: "this build has no compiler, and the kernel store has no kernel for this problem; \
                              build with the feature `jit` (needs LLVM 22), or use Device::cpu()"
                        .to_owned(),
                    refused,
                    compiler_present: false,
                }
                .into());
            }
            Err(CompileProblem::Failed(message)) => {
                let kernel = def.name.to_owned();
                let message = format!("config `{config}` for {target}: {message}");
                return Err(CompileFailure { kernel, message, refused, compiler_present: true }.into());
            }
        }
    }
    Err(no_config(def, selection, refused).into())
}

/// The loaded kernel of a key: from this process, from the store, or compiled now.
fn load(
    device: &Device,
    kernel: &Verified<Kernel>,
    schedule: &Schedule,
    target: Target,
) -> Result<std::result::Result<Arc<LoadedKernel>, CompileProblem>> {
    let key = kernel_key(kernel, *schedule, target);
    let plans = device.plans();
    if let Some(loaded) = plans.loaded.lock().unwrap_or_else(PoisonError::into_inner).get(&key) {
        return Ok(Ok(loaded.clone()));
    }
    let image = match device.store().get(&key) {
        Some(image) => image,
        None => match compile(kernel, schedule, target) {
            Ok(image) => {
                device.counters().compiled.fetch_add(1, Ordering::Relaxed);
                device.store().put(&key, image)
            }
            Err(problem) => return Ok(Err(problem)),
        },
    };
    let loaded = match device.backend() {
        Backend::Cuda(context) => LoadedKernel::load(context, image)?,
        Backend::Sim(_) | Backend::Cpu => {
            let (kernel, schedule) = (kernel.clone(), *schedule);
            crate::sim::load(image, device, Box::new(move || compile_with_lines(&kernel, &schedule, target)))?
        }
    };
    let loaded = Arc::new(loaded);
    if loaded.facts.local_bytes > 0 {
        device.counters().spilling.fetch_add(1, Ordering::Relaxed);
    }
    let mut all = plans.loaded.lock().unwrap_or_else(PoisonError::into_inner);
    Ok(Ok(all.entry(key).or_insert(loaded).clone()))
}

fn gpu_body(bound: &BoundLaunch, kernel: Arc<LoadedKernel>) -> Result<Body> {
    match grid_size(bound, &kernel.image)? {
        0 => Ok(Body::Empty),
        grid => {
            let slots = slots(bound, &kernel.image)?;
            Ok(Body::Gpu { kernel, grid, slots })
        }
    }
}

/// How many programs one launch runs.
pub(crate) fn grid_size(bound: &BoundLaunch, image: &KernelImage) -> std::result::Result<u32, LaunchError> {
    let programs = programs(&image.grid, bound.dims());
    let too_many = |_| LaunchError::GridTooLarge { kernel: bound.def().name, programs };
    i32::try_from(programs).map(i32::unsigned_abs).map_err(too_many)
}

/// The parameters of the `.entry` for one problem.
pub(crate) fn slots(bound: &BoundLaunch, image: &KernelImage) -> std::result::Result<Vec<Slot>, LaunchError> {
    let wrong = || LaunchError::WrongAbi { kernel: image.entry.clone() };
    let arg = |index: u32| bound.args().get(index as usize).ok_or_else(wrong);
    let slot = |param: &AbiParam| match *param {
        AbiParam::Ptr(p) => match arg(p.as_u32())? {
            BoundArg::Tensor { .. } => Ok(Slot::Address(p.as_u32() as usize)),
            BoundArg::Scalar { .. } => Err(wrong()),
        },
        AbiParam::Dim(d) => bound.dims().get(d.as_u32() as usize).map(|&n| Slot::Bits(n)).ok_or_else(wrong),
        AbiParam::Stride(p, axis) => match arg(p.as_u32())? {
            BoundArg::Tensor { tensor, .. } => {
                launch_strides(tensor).get(usize::from(axis)).map(|&s| Slot::Bits(s as u64)).ok_or_else(wrong)
            }
            BoundArg::Scalar { .. } => Err(wrong()),
        },
        AbiParam::Scalar(p) => match arg(p.as_u32())? {
            BoundArg::Scalar { dtype, .. } => Ok(Slot::Number(p.as_u32() as usize, *dtype)),
            BoundArg::Tensor { .. } => Err(wrong()),
        },
        AbiParam::GridCount(axis) => {
            image.grid.get(usize::from(axis)).map(|&g| Slot::Bits(grid_count(g, bound.dims()))).ok_or_else(wrong)
        }
    };
    image.params.iter().map(slot).collect()
}

/// The value of a slot for the arguments of one launch.
pub(crate) fn slot_bits(
    def: &'static KernelDef,
    slot: Slot,
    args: &[Arg<'_>],
) -> std::result::Result<u64, LaunchError> {
    match slot {
        Slot::Bits(bits) => Ok(bits),
        Slot::Address(i) => args[i].tensor().map(|t| t.address()).ok_or(LaunchError::NotPrepared { kernel: def.name }),
        Slot::Number(i, dtype) => scalar_bits(def.name, def.params[i].name(), dtype, &args[i]),
    }
}

fn no_config(def: &KernelDef, selection: &Selection, mut refused: Vec<(Config, String)>) -> CompileFailure {
    refused.extend(selection.refused().map(|(config, reason)| (config.clone(), reason.to_owned())));
    CompileFailure {
        kernel: def.name.to_owned(),
        message: "no config is legal for this problem; add smaller tiles to its `tune`, or use another kernel"
            .to_owned(),
        refused,
        compiler_present: true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::Device;
    use crate::tensor::Tensor;
    use atlas_dsl::def::{DTypeRef, DimDef, ParamDef};
    use atlas_dsl::ir::Access;
    use atlas_dsl::{DType, Diagnostics, Dim, Param};

    const F32: DTypeRef = DTypeRef::Fixed(DType::F32);
    static ROW: KernelDef = KernelDef {
        name: "row",
        doc: "",
        file: "",
        types: &[],
        dims: &[DimDef { name: "N", whole: false }, DimDef { name: "D", whole: false }],
        params: &[
            ParamDef::Tensor { name: "x", dtype: F32, dims: &[0, 1], access: Access::In },
            ParamDef::Scalar { name: "a", dtype: F32 },
        ],
        tune: &[],
        build: |_, _| Err(Diagnostics::default()),
    };

    fn bound(n: usize, d: usize) -> BoundLaunch {
        let x = Tensor::zeros(&Device::cpu(), DType::F32, [1, 1]).unwrap().expand([n, d]).unwrap();
        BoundLaunch::new(&ROW, &Device::cpu(), &crate::args!(x, 1.0)).unwrap()
    }

    fn image(params: &[AbiParam]) -> KernelImage {
        KernelImage {
            entry: "row".to_owned(),
            ptx: String::new(),
            ptx_version: (7, 1),
            target: Target { sm: 80, specific: false },
            params: params.to_vec(),
            grid: vec![GridExtent::Points(Dim::from_u32(0)), GridExtent::Tiles { dim: Dim::from_u32(1), size: 16 }],
            threads: 128,
            shared_bytes: 0,
        }
    }

    #[test]
    fn one_launch_has_a_most_of_programs() {
        assert_eq!(grid_size(&bound(3, 33), &image(&[])), Ok(9));
        assert_eq!(grid_size(&bound(0, 33), &image(&[])), Ok(0));
        let error = grid_size(&bound(1 << 20, 1 << 15), &image(&[])).unwrap_err();
        assert_eq!(
            error.to_string(),
            "error[ATL617]: `row` needs 2147483648 programs for this problem; one launch has at most 2147483647: \
             use larger tiles"
        );
    }

    #[test]
    fn an_image_that_does_not_fit_its_signature_is_refused() {
        let (x, a) = (Param::from_u32(0), Param::from_u32(1));
        let fits = [AbiParam::Ptr(x), AbiParam::Scalar(a), AbiParam::Dim(Dim::from_u32(1)), AbiParam::Stride(x, 1)];
        assert_eq!(slots(&bound(3, 5), &image(&fits)).unwrap().len(), 4);
        for wrong in [
            AbiParam::Ptr(a),
            AbiParam::Scalar(x),
            AbiParam::Stride(a, 0),
            AbiParam::Stride(x, 2),
            AbiParam::Dim(Dim::from_u32(2)),
            AbiParam::Ptr(Param::from_u32(2)),
            AbiParam::GridCount(2),
        ] {
            let Err(error) = slots(&bound(3, 5), &image(&[wrong])) else { panic!("{wrong:?} is accepted") };
            let want = "error[ATL619]: the compiled kernel `row` does not fit its signature; this is a bug of Atlas";
            assert_eq!(error.to_string(), want);
        }
    }
}
