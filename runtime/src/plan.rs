//! Plans: what a launch of one exact problem does, resolved once and found again without rebuilding anything.
//!
//! A plan is found by the kernel, the config if the caller gave one, and each argument's kind, type, shape, strides
//! and alignment: a few dozen words, hashed and compared with no allocation. Everything that the checks of a launch
//! depend on is in these words, but for addresses: two arguments may alias in one launch and not in the next.

use crate::args::Arg;
use crate::bind::{BoundArg, BoundLaunch, is_written, scalar_bits};
use crate::cost::{grid_count, programs};
use crate::error::{Result, RuntimeError};
use crate::kernel::LoadedKernel;
use crate::key::KernelKey;
use crate::launch_error::LaunchError;
use crate::problem::{alignment, launch_strides};
use crate::select::Source;
use atlas_codegen::{AbiParam, KernelImage};
use atlas_dsl::{Config, DType, Kernel, KernelDef, Schedule, Verified};
use lru::LruCache;
use std::hash::{BuildHasherDefault, Hasher};
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Plans, loaded kernels and refusals that a device keeps; past it, the least recently used goes.
const MOST_PLANS: NonZeroUsize = NonZeroUsize::new(8192).unwrap();
const MOST_LOADED: NonZeroUsize = NonZeroUsize::new(1024).unwrap();
const MOST_REFUSED: NonZeroUsize = NonZeroUsize::new(8192).unwrap();

/// A config that was refused, or left for a better one, and why.
pub(crate) type PassedOver = (Config, String);

/// A launch of one exact problem.
pub(crate) struct Plan {
    pub(crate) config: Config,
    pub(crate) source: Source,
    pub(crate) body: Body,
    /// Configs that stood before this one.
    pub(crate) passed_over: Vec<PassedOver>,
}

impl Plan {
    /// The kernel that a failed launch speaks against, if another config may do: the driver refused it before it ran,
    /// and the caller did not ask for it.
    pub(crate) fn refused_by(&self, error: &RuntimeError) -> Option<(KernelKey, String)> {
        match (&self.body, error) {
            (Body::Gpu { kernel, .. }, RuntimeError::Driver(e)) if e.refuses() && self.source != Source::Given => {
                Some((kernel.key, e.to_string()))
            }
            _ => None,
        }
    }
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

/// Plans by their words.
type ByProblem = LruCache<Box<[u64]>, Arc<Plan>, BuildHasherDefault<WordHasher>>;

/// The plans of a device, its loaded kernels, and what was refused on it. Each is bounded.
///
/// A kernel that is pushed out is not unloaded under anybody's feet: plans, prepared launches and launches that are
/// being queued hold it by `Arc`, and when the last of them goes, [`Module`](crate::kernel::Module) waits for the
/// device before it unloads, so that a launch in flight on any stream has ended.
pub(crate) struct Plans {
    by_problem: Mutex<ByProblem>,
    loaded: Mutex<LruCache<KernelKey, Arc<LoadedKernel>>>,
    refused: Mutex<LruCache<KernelKey, String>>,
}

impl Default for Plans {
    fn default() -> Plans {
        Plans {
            by_problem: Mutex::new(LruCache::with_hasher(MOST_PLANS, BuildHasherDefault::default())),
            loaded: Mutex::new(LruCache::new(MOST_LOADED)),
            refused: Mutex::new(LruCache::new(MOST_REFUSED)),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
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
        for (i, arg) in args.iter().enumerate() {
            // `&mut` for what the kernel only reads is as good as `&`.
            let written = def.params.get(i).is_some_and(is_written);
            let kind = match arg {
                Arg::Out(_) if written => 2,
                Arg::In(_) | Arg::Out(_) => 1,
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
        lock(&self.by_problem).get(words).cloned()
    }

    /// Keeps a plan.
    pub(crate) fn keep(&self, words: &[u64], plan: &Arc<Plan>) {
        // What is pushed out may unload a kernel, which waits for the device: not while the lock is held.
        let evicted = lock(&self.by_problem).push(words.into(), plan.clone());
        drop(evicted);
    }

    /// A loaded kernel.
    pub(crate) fn loaded(&self, key: &KernelKey) -> Option<Arc<LoadedKernel>> {
        lock(&self.loaded).get(key).cloned()
    }

    /// Keeps a loaded kernel, or gives the one that another thread loaded meanwhile. If one is pushed out, so are the
    /// plans that hold it.
    pub(crate) fn keep_loaded(&self, kernel: Arc<LoadedKernel>) -> Arc<LoadedKernel> {
        let mut all = lock(&self.loaded);
        if let Some(first) = all.get(&kernel.key) {
            return first.clone();
        }
        let evicted = all.push(kernel.key, kernel.clone());
        drop(all);
        if let Some((key, _)) = &evicted {
            self.forget(key);
        }
        kernel
    }

    /// Why a kernel is not tried on this device.
    pub(crate) fn refusal(&self, key: &KernelKey) -> Option<String> {
        lock(&self.refused).get(key).cloned()
    }

    /// Remembers that a kernel is refused here, and drops it and its plans. Another device may take it.
    pub(crate) fn refuse(&self, key: &KernelKey, reason: &str) {
        lock(&self.refused).put(*key, reason.to_owned());
        let loaded = lock(&self.loaded).pop(key);
        self.forget(key);
        drop(loaded);
    }

    /// Drops the plans of a kernel.
    fn forget(&self, key: &KernelKey) {
        let mut plans = lock(&self.by_problem);
        let uses = |plan: &Plan| matches!(&plan.body, Body::Gpu { kernel, .. } if kernel.key == *key);
        let words: Vec<Box<[u64]>> = plans.iter().filter(|(_, p)| uses(p)).map(|(words, _)| words.clone()).collect();
        let dropped: Vec<_> = words.iter().filter_map(|words| plans.pop(words)).collect();
        drop(plans);
        drop(dropped);
    }

    /// True if something has been refused here.
    pub(crate) fn has_refused(&self) -> bool {
        !lock(&self.refused).is_empty()
    }

    /// Bytes of local memory of a thread of a loaded kernel whose registers spill.
    pub(crate) fn spills(&self, key: &KernelKey) -> Option<u32> {
        let bytes = lock(&self.loaded).peek(key).map(|k| k.facts.local_bytes)?;
        (bytes > 0).then_some(bytes)
    }
}

/// What a loaded kernel does for one problem.
pub(crate) fn gpu_body(bound: &BoundLaunch, kernel: Arc<LoadedKernel>) -> Result<Body> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::Device;
    use crate::tensor::Tensor;
    use atlas_codegen::Target;
    use atlas_dsl::def::{DTypeRef, DimDef, ParamDef};
    use atlas_dsl::ir::{Access, GridExtent};
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
