//! The tune space of a kernel for one specialization on one machine: lowered once, ranked for every size.
//!
//! The part of a config's cost that depends on sizes is kept as formulas ([`WorkTable`]), so a launch at a new size of
//! a known specialization lowers nothing. Spaces are kept for the process, bounded by the number of their configs, and
//! the least recently used are dropped. They hold no Tile IR: that of the few configs that are compiled is built again.
//!
//! If several threads need a space at once, the first explores it. The others wait for this space only.

use super::explore::{Point, explore};
use super::model::{NEXT_KERNEL, Terms};
use crate::compile::{KernelKey, build_kernel, build_launch, kernel_key};
use crate::error::Result;
use atlas_codegen::gpu::analysis::WorkTable;
use atlas_codegen::packing::LaunchKernels;
use atlas_codegen::{Machine, Target};
use atlas_dsl::{Config, Kernel, KernelDef, Specialization, Verified};
use lru::LruCache;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, OnceLock, PoisonError};

/// The most configs of all spaces that are kept: enough for two of the largest spaces.
const MOST_CONFIGS: usize = 8192;

/// What a space depends on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct SpaceKey {
    /// The address of the kernel's declaration, which is static.
    def: usize,
    spec: Specialization,
    /// `None` for the CPU.
    machine: Option<Machine>,
    /// The caller's config, if it is the only one.
    given: Option<Config>,
}

/// The configs of a kernel for one specialization on one machine.
pub(crate) struct Space {
    pub(crate) def: &'static KernelDef,
    spec: Specialization,
    /// The points, in the order of the tune space.
    pub(crate) points: Vec<Point>,
    /// The work of the points that were lowered, in their order.
    works: WorkTable,
    /// The index in `points` of each of these.
    lowered: Vec<usize>,
    /// The work of the kernels that pack operands, which is that of every point with packed operands.
    packers: WorkTable,
}

/// A space that has been explored, or that a thread is exploring.
type SpaceSlot = Arc<OnceLock<Arc<Space>>>;

/// The value of a key.
struct Entry {
    slot: SpaceSlot,
    /// The number of configs that is counted for it: 0 while it is explored.
    configs: usize,
}

/// The spaces of the process.
struct Spaces {
    by_key: LruCache<SpaceKey, Entry>,
    configs: usize,
    most: usize,
}

static SPACES: LazyLock<Mutex<Spaces>> = LazyLock::new(|| Mutex::new(Spaces::new(MOST_CONFIGS)));

impl Spaces {
    fn new(most: usize) -> Spaces {
        Spaces { by_key: LruCache::unbounded(), configs: 0, most }
    }

    /// The slot of a key, which is filled once the space is explored.
    fn slot(&mut self, key: &SpaceKey) -> SpaceSlot {
        if let Some(entry) = self.by_key.get(key) {
            return entry.slot.clone();
        }
        let slot = SpaceSlot::default();
        self.by_key.put(key.clone(), Entry { slot: slot.clone(), configs: 0 });
        slot
    }

    /// A space that has been explored.
    fn known(&mut self, key: &SpaceKey) -> Option<Arc<Space>> {
        self.by_key.get(key)?.slot.get().cloned()
    }

    /// Counts the configs of a space that has been explored, and drops the least recently used spaces.
    fn count(&mut self, key: &SpaceKey, slot: &SpaceSlot, space: &Space) {
        let Some(entry) = self.by_key.peek_mut(key) else { return };
        if entry.configs > 0 || !Arc::ptr_eq(&entry.slot, slot) {
            return;
        }
        entry.configs = space.points.len();
        self.configs += entry.configs;
        while self.configs > self.most && self.by_key.len() > 1 {
            let Some((_, oldest)) = self.by_key.pop_lru() else { break };
            self.configs -= oldest.configs;
        }
    }
}

fn spaces() -> MutexGuard<'static, Spaces> {
    SPACES.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Space {
    /// The tune space of a kernel, explored.
    pub(crate) fn explored(def: &'static KernelDef, spec: Specialization, machine: Option<Machine>) -> Arc<Space> {
        let key = SpaceKey { def: std::ptr::from_ref(def) as usize, spec, machine, given: None };
        let slot = spaces().slot(&key);
        if let Some(space) = slot.get() {
            return space.clone();
        }
        // Not while the lock is held, because it takes milliseconds.
        let space = slot.get_or_init(|| Arc::new(Space::explore(def, key.spec.clone(), machine)));
        spaces().count(&key, &slot, space);
        space.clone()
    }

    fn explore(def: &'static KernelDef, spec: Specialization, machine: Option<Machine>) -> Space {
        let explored = explore(def, &spec, machine);
        let mut space = Space::empty(def, spec);
        for work in &explored.packers {
            space.packers.push(work);
        }
        for (point, work) in explored.points {
            if let Some(work) = work {
                space.works.push(&work);
                space.lowered.push(space.points.len());
            }
            space.points.push(point);
        }
        space
    }

    fn empty(def: &'static KernelDef, spec: Specialization) -> Space {
        let (works, packers) = Default::default();
        Space { def, spec, points: Vec::new(), works, lowered: Vec::new(), packers }
    }

    /// A space of one config, which the caller gave. The config is built, to check it, and not lowered.
    ///
    /// # Errors
    /// `RuntimeError::Kernel` if the kernel cannot be built with it.
    pub(crate) fn given(
        def: &'static KernelDef,
        spec: Specialization,
        machine: Option<Machine>,
        config: Config,
    ) -> Result<Arc<Space>> {
        let key = SpaceKey { def: std::ptr::from_ref(def) as usize, spec, machine, given: Some(config.clone()) };
        if let Some(space) = spaces().known(&key) {
            return Ok(space);
        }
        build_kernel(def, &key.spec, &config)?;
        let slot = spaces().slot(&key);
        let points = vec![Point::built(config)];
        let space = slot.get_or_init(|| Arc::new(Space { points, ..Space::empty(def, key.spec.clone()) }));
        spaces().count(&key, &slot, space);
        Ok(space.clone())
    }

    /// The specialization.
    pub(crate) fn spec(&self) -> &Specialization {
        &self.spec
    }

    /// True if any point was lowered, so that its cost is known.
    pub(crate) fn has_lowered(&self) -> bool {
        !self.lowered.is_empty()
    }

    /// The cost terms of each lowered point, for these sizes of the dims in the signature's order.
    pub(crate) fn terms(&self, dims: &[u64], machine: &Machine) -> impl Iterator<Item = (usize, Terms)> {
        let mut works = self.works.at(dims);
        let mut packers = self.packers.at(dims);
        let packing = (0..self.packers.count()).map(|i| Terms::of(packers.of(i), machine).cycles() + NEXT_KERNEL).sum();
        self.lowered.iter().enumerate().map(move |(i, &point)| {
            let terms = Terms::of(works.of(i), machine);
            let packs = self.points[point].config.schedule.packs_operands();
            (point, if packs { terms.after(packing) } else { terms })
        })
    }

    /// Builds the kernels of a launch with a config again.
    pub(crate) fn launch(&self, point: usize, target: Target) -> Result<LaunchKernels> {
        build_launch(self.def, &self.spec, &self.points[point].config, target)
    }

    /// Builds the Tile IR of a config again, without packed operands.
    pub(crate) fn kernel(&self, point: usize) -> Result<Verified<Kernel>> {
        build_kernel(self.def, &self.spec, &self.points[point].config)
    }

    /// The key of a config's compiled kernel, for a target.
    pub(crate) fn key(&self, point: usize, target: Target) -> Result<KernelKey> {
        let Point { config, key, .. } = &self.points[point];
        if let Some(key) = key.get() {
            return Ok(*key);
        }
        let kernel = self.launch(point, target)?.kernel;
        Ok(*key.get_or_init(|| kernel_key(&kernel, config.schedule, target)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use atlas_dsl::Diagnostics;
    use atlas_dsl::def::Build;
    use atlas_dsl::specialization::DimFact;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    const fn def(build: &'static Build) -> KernelDef {
        KernelDef {
            name: "none",
            doc: "",
            file: "",
            types: &[],
            dims: &[],
            params: &[],
            tune: &[],
            grid: &[],
            requires: &[],
            build,
            refused: None,
        }
    }

    static NONE: KernelDef = def(&|_, _| Err(Diagnostics::default()));

    fn spec(n: u64) -> Specialization {
        Specialization::default().with_dim("N", DimFact::Const(n))
    }

    #[test]
    fn the_spaces_used_last_are_kept() {
        let key = |n: u64| SpaceKey { def: 0, spec: spec(n), machine: None, given: None };
        let mut spaces = Spaces::new(10);
        let keep = |spaces: &mut Spaces, n: u64, configs: usize| {
            let points = (0..configs).map(|_| Point::built(Config::default())).collect();
            let space = Arc::new(Space { points, ..Space::empty(&NONE, spec(n)) });
            let slot = spaces.slot(&key(n));
            let kept = slot.get_or_init(|| space).clone();
            spaces.count(&key(n), &slot, &kept);
            kept
        };
        let first = keep(&mut spaces, 1, 4);
        keep(&mut spaces, 2, 4);
        assert!(Arc::ptr_eq(&keep(&mut spaces, 1, 4), &first), "the first of a key stays");
        keep(&mut spaces, 3, 4);
        assert_eq!([1, 2, 3].map(|n| spaces.by_key.contains(&key(n))), [true, false, true]);
        // A single space that is too large stays until the next one is added.
        keep(&mut spaces, 4, 40);
        assert_eq!((spaces.by_key.len(), spaces.configs), (1, 40));
        keep(&mut spaces, 5, 1);
        assert_eq!((spaces.by_key.len(), spaces.configs), (1, 1));
    }

    /// Threads of a pool run other tasks while they wait for their own, and such a task may need the same space.
    #[test]
    fn a_space_is_explored_once_however_many_want_it() {
        static BUILT: AtomicUsize = AtomicUsize::new(0);
        static SLOW: KernelDef = def(&|_, _| {
            BUILT.fetch_add(1, Ordering::Relaxed);
            std::thread::sleep(Duration::from_millis(20));
            Err(Diagnostics::default())
        });
        let machine = "sm_90".parse().ok();
        let pool = rayon::ThreadPoolBuilder::new().num_threads(4).build().expect("threads");
        pool.install(|| {
            rayon::scope(|s| (0..16).for_each(|_| s.spawn(|_| drop(Space::explored(&SLOW, spec(1), machine)))));
        });
        assert_eq!(BUILT.load(Ordering::Relaxed), SLOW.configs().len());
    }
}
