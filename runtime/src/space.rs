//! The tune space of a kernel for one specialization on one machine: lowered once, ranked for every size.
//!
//! What a size changes in a config's cost is a formula ([`WorkFormula`]), so a launch at a new size of a specialization
//! met before lowers nothing. Spaces are kept for the process, bounded by the number of their configs; the least
//! recently used go. They hold no Tile IR: that of the few configs that are compiled is built again.
//!
//! Configs that give the same kernel are one: what makes no difference is no choice. The first stays, in the order of
//! the tune space.

use crate::compile::{build_kernel, kernel_key};
use crate::error::{Result, RuntimeError};
use crate::key::KernelKey;
use atlas_codegen::analysis::WorkFormula;
use atlas_codegen::{Machine, Target, gpu, pipeline};
use atlas_dsl::op::LoopKind;
use atlas_dsl::{Config, Kernel, KernelDef, Op, Specialization, Verified};
use lru::LruCache;
use rayon::prelude::*;
use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, OnceLock, PoisonError};

/// Configs of the spaces that are kept, at most.
const MOST_CONFIGS: usize = 8192;

/// What a space depends on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct SpaceKey {
    /// The address of the kernel's declaration, which is static.
    def: usize,
    spec: Specialization,
    /// `None` is the CPU.
    machine: Option<Machine>,
    /// The caller's config, where it is the only one.
    given: Option<Config>,
}

/// The configs of a kernel for one specialization on one machine.
pub(crate) struct Space {
    pub(crate) def: &'static KernelDef,
    spec: Specialization,
    /// In the order of the tune space.
    pub(crate) points: Vec<Point>,
}

/// One config.
pub(crate) struct Point {
    pub(crate) config: Config,
    pub(crate) found: Found,
    key: OnceLock<KernelKey>,
}

/// What became of a config.
pub(crate) enum Found {
    /// Lowered, with its work.
    Lowered(WorkFormula),
    /// Built and not lowered: on the CPU, or given by the caller.
    Built,
    /// The builder, the verifier or a pass refused it; `built` if it got as far as that pass.
    Refused { reason: String, built: bool },
}

impl Point {
    fn new(config: Config, found: Found) -> Point {
        Point { config, found, key: OnceLock::new() }
    }

    pub(crate) fn is_legal(&self) -> bool {
        !matches!(self.found, Found::Refused { .. })
    }
}

/// The spaces of the process.
struct Spaces {
    by_key: LruCache<SpaceKey, Arc<Space>>,
    configs: usize,
    most: usize,
}

static SPACES: LazyLock<Mutex<Spaces>> = LazyLock::new(|| Mutex::new(Spaces::new(MOST_CONFIGS)));

impl Spaces {
    fn new(most: usize) -> Spaces {
        Spaces { by_key: LruCache::unbounded(), configs: 0, most }
    }

    /// Keeps a space, or gives the one that another thread made meanwhile.
    fn keep(&mut self, key: SpaceKey, space: Arc<Space>) -> Arc<Space> {
        if let Some(first) = self.by_key.get(&key) {
            return first.clone();
        }
        self.configs += space.points.len();
        self.by_key.put(key, space.clone());
        while self.configs > self.most && self.by_key.len() > 1 {
            let Some((_, oldest)) = self.by_key.pop_lru() else { break };
            self.configs -= oldest.points.len();
        }
        space
    }
}

fn spaces() -> MutexGuard<'static, Spaces> {
    SPACES.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Space {
    /// The tune space of a kernel, explored.
    pub(crate) fn explored(def: &'static KernelDef, spec: Specialization, machine: Option<Machine>) -> Arc<Space> {
        let key = SpaceKey { def: std::ptr::from_ref(def) as usize, spec, machine, given: None };
        if let Some(space) = Space::kept(&key) {
            return space;
        }
        // Not while the lock is held: it takes milliseconds.
        let points = explore(def, &key.spec, machine);
        let space = Space { def, spec: key.spec.clone(), points };
        spaces().keep(key, Arc::new(space))
    }

    /// A space of one config, which the caller gave. It is built, to be checked, and not lowered.
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
        if let Some(space) = Space::kept(&key) {
            return Ok(space);
        }
        build_kernel(def, &key.spec, &config)?;
        let space = Space { def, spec: key.spec.clone(), points: vec![Point::new(config, Found::Built)] };
        Ok(spaces().keep(key, Arc::new(space)))
    }

    fn kept(key: &SpaceKey) -> Option<Arc<Space>> {
        spaces().by_key.get(key).cloned()
    }

    /// Builds the Tile IR of a config again.
    pub(crate) fn kernel(&self, point: usize) -> Result<Verified<Kernel>> {
        build_kernel(self.def, &self.spec, &self.points[point].config)
    }

    /// The key of a config's compiled kernel, for the target of the machine that the space is of.
    pub(crate) fn key(&self, point: usize, target: Target) -> Result<KernelKey> {
        let Point { config, key, .. } = &self.points[point];
        if let Some(key) = key.get() {
            return Ok(*key);
        }
        let kernel = self.kernel(point)?;
        Ok(*key.get_or_init(|| kernel_key(&kernel, config.schedule, target)))
    }
}

/// A kernel's Tile IR, or why it cannot be built.
type Built = std::result::Result<Verified<Kernel>, String>;
/// A config's kernel in GPU IR and its work, or why it is refused.
type Lowered = std::result::Result<(gpu::Kernel, WorkFormula), String>;

/// Builds every config, and lowers those that may differ from all before them.
fn explore(def: &'static KernelDef, spec: &Specialization, machine: Option<Machine>) -> Vec<Point> {
    let configs = def.configs();
    // Only tile sizes enter Tile IR.
    let mut kernels: BTreeMap<&BTreeMap<String, u32>, Built> = BTreeMap::new();
    for config in &configs {
        kernels.entry(&config.tile).or_insert_with(|| build_kernel(def, spec, config).map_err(|e| reason(&e)));
    }
    let kernel = |config: &Config| kernels.get(&config.tile).and_then(|built| built.as_ref().ok());
    let Some(machine) = machine else {
        let found = |config: &Config| match &kernels[&config.tile] {
            Ok(_) => Found::Built,
            Err(reason) => Found::Refused { reason: reason.clone(), built: false },
        };
        return configs.iter().map(|config| Point::new(config.clone(), found(config))).collect();
    };
    let lower = |config: &Config| -> Option<Lowered> {
        let lowered = pipeline::run(kernel(config)?, &config.schedule, machine, |_, _| {});
        Some(lowered.map_err(|e| e.to_string()).map(|k| {
            let work = WorkFormula::of(&k);
            (k.into_kernel(), work)
        }))
    };
    let staged = |config: &Config| kernel(config).is_some_and(has_stages);
    // The first of those that are alike, at once on all cores; the others only if it is refused.
    let first = |i: usize| staged(&configs[i]) || !configs[..i].iter().any(|other| is_alike(other, &configs[i]));
    let lowered: Vec<Option<Lowered>> =
        (0..configs.len()).into_par_iter().map(|i| first(i).then(|| lower(&configs[i])).flatten()).collect();
    let mut points: Vec<Point> = Vec::new();
    let mut seen = Seen::default();
    for (config, lowered) in configs.iter().zip(lowered) {
        if let Err(reason) = &kernels[&config.tile] {
            points.push(Point::new(config.clone(), Found::Refused { reason: reason.clone(), built: false }));
            continue;
        }
        if !staged(config) && points.iter().any(|p| p.is_legal() && is_alike(&p.config, config)) {
            continue;
        }
        match lowered.or_else(|| lower(config)) {
            Some(Ok((lowered, work))) => {
                points.extend(seen.unless_seen(work, lowered).map(|w| Point::new(config.clone(), Found::Lowered(w))));
            }
            Some(Err(reason)) => points.push(Point::new(config.clone(), Found::Refused { reason, built: true })),
            None => {}
        }
    }
    points
}

/// True if `stages` changes something: only pipelined loops have them.
fn has_stages(kernel: &Verified<Kernel>) -> bool {
    kernel.insts.values().any(|op| matches!(op, Op::Loop { kind: LoopKind::Pipeline, .. }))
}

/// True if two configs differ in `stages` alone.
fn is_alike(a: &Config, b: &Config) -> bool {
    let mut schedule = a.schedule;
    schedule.stages = b.schedule.stages;
    schedule == b.schedule && a.tile == b.tile
}

/// The lowered kernels of a space so far, by their work.
#[derive(Default)]
struct Seen(Vec<(WorkFormula, gpu::Kernel)>);

impl Seen {
    /// The work of a kernel that is equal to none before it. Kernels of equal work are compared by their text.
    fn unless_seen(&mut self, work: WorkFormula, kernel: gpu::Kernel) -> Option<WorkFormula> {
        let mut text = None;
        let mut same = |other: &gpu::Kernel| other.to_string() == *text.get_or_insert_with(|| kernel.to_string());
        if self.0.iter().any(|(w, k)| *w == work && same(k)) {
            return None;
        }
        self.0.push((work.clone(), kernel));
        Some(work)
    }
}

/// An error of building a kernel without its config, which stands beside it.
pub(crate) fn reason(error: &RuntimeError) -> String {
    match error {
        RuntimeError::Kernel { diagnostics, .. } => diagnostics.to_string(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use atlas_dsl::Diagnostics;

    static NONE: KernelDef = KernelDef {
        name: "none",
        doc: "",
        file: "",
        types: &[],
        dims: &[],
        params: &[],
        tune: &[],
        build: |_, _| Err(Diagnostics::default()),
    };

    #[test]
    fn the_spaces_used_last_are_kept() {
        let key = |n: u64| {
            let spec = Specialization::default().with_dim("N", atlas_dsl::specialization::DimFact::Const(n));
            SpaceKey { def: 0, spec, machine: None, given: None }
        };
        let space = |configs: usize| {
            let points = (0..configs).map(|_| Point::new(Config::default(), Found::Built)).collect();
            Arc::new(Space { def: &NONE, spec: Specialization::default(), points })
        };
        let mut spaces = Spaces::new(10);
        let first = spaces.keep(key(1), space(4));
        spaces.keep(key(2), space(4));
        assert!(Arc::ptr_eq(&spaces.keep(key(1), space(4)), &first), "the first of a key stays");
        spaces.keep(key(3), space(4));
        assert_eq!([1, 2, 3].map(|n| spaces.by_key.contains(&key(n))), [true, false, true]);
        // One that is too large alone stays until the next.
        spaces.keep(key(4), space(40));
        assert_eq!((spaces.by_key.len(), spaces.configs), (1, 40));
        spaces.keep(key(5), space(1));
        assert_eq!((spaces.by_key.len(), spaces.configs), (1, 1));
    }
}
