//! Explores a tune space: builds and lowers every config on all cores, and merges configs that give the same kernel.
//!
//! If several configs give the same kernel, only the first in the order of the tune space is kept, because the others
//! offer no real choice.

use crate::compile::{KernelKey, build_kernel, packed};
use crate::error::RuntimeError;
use atlas_codegen::gpu::analysis::WorkFormula;
use atlas_codegen::packing::packer_schedule;
use atlas_codegen::{Machine, gpu, pipeline};
use atlas_dsl::config::Operands;
use atlas_dsl::op::LoopKind;
use atlas_dsl::{Config, Kernel, KernelDef, Op, Schedule, Specialization, Verified};
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{LazyLock, OnceLock};

/// One config.
pub(crate) struct Point {
    pub(crate) config: Config,
    pub(crate) found: Found,
    pub(crate) key: OnceLock<KernelKey>,
}

/// The result for a config.
pub(crate) enum Found {
    /// Lowered: its work is known.
    Lowered,
    /// Built but not lowered: on the CPU, or because the caller gave the config.
    Built,
    /// Refused by the builder, the verifier or a pass. `built` is true if a pass refused it.
    Refused { reason: String, built: bool },
}

impl Point {
    fn new(config: Config, found: Found) -> Point {
        Point { config, found, key: OnceLock::new() }
    }

    /// A config that was built and is not lowered.
    pub(crate) fn built(config: Config) -> Point {
        Point::new(config, Found::Built)
    }

    pub(crate) fn is_legal(&self) -> bool {
        !matches!(self.found, Found::Refused { .. })
    }
}

/// A kernel's Tile IR, or why it cannot be built.
type Built = std::result::Result<Verified<Kernel>, String>;
/// The work of a config's kernel and the hash of its text, or why it is refused.
type Lowered = std::result::Result<(WorkFormula, TextHash), String>;

/// A tune space, explored.
#[derive(Default)]
pub(crate) struct Explored {
    /// The configs, and the work of those that were lowered.
    pub(crate) points: Vec<(Point, Option<WorkFormula>)>,
    /// The work of the kernels that pack operands.
    pub(crate) packers: Vec<WorkFormula>,
}

/// The Tile IR of each choice of tile sizes: the kernel, and the one that reads packed operands, if any has to be packed.
type Kernels = BTreeMap<BTreeMap<String, u32>, (Built, Option<Built>)>;

/// Builds every config, and lowers those that may differ from all earlier ones. Returns the work of the lowered ones
/// too.
///
/// Where operands may be packed, each config that leaves it open stands for two: the second ones follow all of the first.
pub(crate) fn explore(def: &'static KernelDef, spec: &Specialization, machine: Option<Machine>) -> Explored {
    let mut configs = def.configs();
    let mut explored = Explored::default();
    // Only tile sizes affect Tile IR, and whether operands are packed.
    let mut kernels = Kernels::new();
    for config in &configs {
        if !kernels.contains_key(&config.tile) {
            let both = build_both(def, spec, config, machine, &mut explored.packers);
            kernels.insert(config.tile.clone(), both);
        }
    }
    let open = configs.iter().filter(|c| c.schedule.operands.is_none() && kernels[&c.tile].1.is_some());
    let packed = |c: &Config| {
        let schedule = Schedule { operands: Some(Operands::Packed), ..c.schedule };
        Config { schedule, ..c.clone() }
    };
    let packed: Vec<Config> = open.map(packed).collect();
    configs.extend(packed);
    let of_config = |config: &Config| match &kernels[&config.tile] {
        (_, Some(packed)) if config.schedule.packs_operands() => packed,
        (kernel, _) => kernel,
    };
    let built: Vec<&Built> = configs.iter().map(of_config).collect();
    let refused = |reason: &String, built: bool| Found::Refused { reason: reason.clone(), built };
    let Some(machine) = machine else {
        let found = |config: &Config, built: &Built| match (built, config.schedule.check()) {
            (Err(reason), _) => refused(reason, false),
            (Ok(_), Err(reason)) => refused(&reason, true),
            (Ok(_), Ok(())) => Found::Built,
        };
        explored.points = configs.iter().zip(&built).map(|(c, b)| (Point::new(c.clone(), found(c, b)), None)).collect();
        return explored;
    };
    let lower = |i: usize| -> Option<Lowered> {
        let lowered = pipeline::run(built[i].as_ref().ok()?, &configs[i].schedule, machine, |_, _| {});
        Some(lowered.map_err(|e| e.to_string()).map(|k| (WorkFormula::of(&k), TextHash::of(&k))))
    };
    let alike = alike(&configs, &built);
    // The first of each group of equal configs is lowered, on all cores. The others are lowered only if it is refused.
    let lowered = on_all_cores(configs.len(), |i| if alike[i] == i { lower(i) } else { None });
    let points = &mut explored.points;
    let (mut seen, mut has_legal) = (HashSet::new(), HashSet::new());
    for (i, (config, lowered)) in configs.iter().zip(lowered).enumerate() {
        if let Err(reason) = built[i] {
            points.push((Point::new(config.clone(), refused(reason, false)), None));
            continue;
        }
        if has_legal.contains(&alike[i]) {
            continue;
        }
        match lowered.or_else(|| lower(i)) {
            Some(Ok((work, text))) if seen.insert(text) => {
                has_legal.insert(alike[i]);
                points.push((Point::new(config.clone(), Found::Lowered), Some(work)));
            }
            // It gives the same kernel as an earlier config.
            Some(Ok(_)) | None => {}
            Some(Err(reason)) => points.push((Point::new(config.clone(), refused(&reason, true)), None)),
        }
    }
    explored
}

/// The kernel of a config, and the one that reads packed operands. Adds the work of the packers, which is that of every config.
fn build_both(
    def: &'static KernelDef,
    spec: &Specialization,
    config: &Config,
    machine: Option<Machine>,
    packers: &mut Vec<WorkFormula>,
) -> (Built, Option<Built>) {
    let kernel = match build_kernel(def, spec, config) {
        Ok(kernel) => kernel,
        Err(e) => return (Err(reason(&e)), None),
    };
    let Some(machine) = machine else { return (Ok(kernel), None) };
    let packed = match packed(def, &kernel, machine.target()) {
        Ok(packed) => packed,
        Err(e) => return (Ok(kernel), Some(Err(reason(&e)))),
    };
    let Some(packed) = packed else { return (Ok(kernel), None) };
    if packers.is_empty() {
        let lowered = |packer| pipeline::run(packer, &packer_schedule(), machine, |_, _| {});
        match packed.packers.iter().map(lowered).collect::<Result<Vec<_>, _>>() {
            Ok(lowered) => packers.extend(lowered.iter().map(|k| WorkFormula::of(k))),
            Err(e) => return (Ok(kernel), Some(Err(e.to_string()))),
        }
    }
    (Ok(kernel), Some(Ok(packed.kernel)))
}

/// For each config, the first one that differs from it in `stages` only, if the kernel has no pipelined loop and
/// `stages` changes nothing. Otherwise the config itself.
fn alike(configs: &[Config], built: &[&Built]) -> Vec<usize> {
    let mut first = HashMap::new();
    let mut alike = Vec::with_capacity(configs.len());
    for (i, config) in configs.iter().enumerate() {
        let staged = built[i].as_ref().is_ok_and(has_stages);
        let schedule = Schedule { stages: 0, ..config.schedule };
        alike.push(if staged { i } else { *first.entry((&config.tile, schedule)).or_insert(i) });
    }
    alike
}

/// True if `stages` has an effect: only pipelined loops use it.
fn has_stages(kernel: &Verified<Kernel>) -> bool {
    kernel.insts.values().any(|op| matches!(op, Op::Loop { kind: LoopKind::Pipeline, .. }))
}

/// The SHA-256 of a kernel's text: equal for equal kernels.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct TextHash([u8; 32]);

impl TextHash {
    fn of(kernel: &gpu::Kernel) -> TextHash {
        // A text is written in parts of a few bytes, of which each would cost the hasher more than the bytes themselves.
        TextHash(Sha256::digest(kernel.text()).into())
    }
}

/// The number of threads that are exploring.
static EXPLORING: AtomicUsize = AtomicUsize::new(0);

/// A claim on one thread. The number is the count of threads before it.
struct Taken(usize);

impl Taken {
    fn one() -> Taken {
        Taken(EXPLORING.fetch_add(1, Ordering::Relaxed))
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        EXPLORING.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Calls a function with each number below `count`, on as many threads as there are cores that no other call uses.
///
/// It does not use a thread pool whose threads run other tasks while they wait. Such a task may be a launch that needs
/// the space that is being explored, and the launch would wait for itself.
fn on_all_cores<T: Send>(count: usize, f: impl Fn(usize) -> T + Sync) -> Vec<T> {
    static CORES: LazyLock<usize> = LazyLock::new(|| std::thread::available_parallelism().map_or(1, NonZeroUsize::get));
    let next = AtomicUsize::new(0);
    let run = || {
        let mut done = Vec::new();
        loop {
            match next.fetch_add(1, Ordering::Relaxed) {
                i if i < count => done.push((i, f(i))),
                _ => break done,
            }
        }
    };
    let mut done = std::thread::scope(|scope| {
        let own = Taken::one();
        let mut helpers = Vec::new();
        while helpers.len() + 1 < count {
            let taken = Taken::one();
            if taken.0 >= *CORES {
                break;
            }
            let run = &run;
            let helper = std::thread::Builder::new().spawn_scoped(scope, move || {
                let _taken = taken;
                run()
            });
            // If no further thread can be started, the existing ones do the work.
            let Ok(helper) = helper else { break };
            helpers.push(helper);
        }
        let mut done = run();
        drop(own);
        for helper in helpers {
            done.extend(helper.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        }
        done
    });
    done.sort_unstable_by_key(|(i, _)| *i);
    done.into_iter().map(|(_, x)| x).collect()
}

/// The error of building a kernel, without its config, which is printed beside it.
pub(crate) fn reason(error: &RuntimeError) -> String {
    match error {
        RuntimeError::Kernel { diagnostics, .. } => diagnostics.to_string(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_is_taken_once_and_in_order() {
        let squares = on_all_cores(1000, |i| i * i);
        assert_eq!(squares, (0..1000).map(|i| i * i).collect::<Vec<_>>());
        assert!(on_all_cores(0, |i| i).is_empty());
    }

    #[test]
    fn a_panic_of_a_helper_is_that_of_the_caller() {
        let caught = std::panic::catch_unwind(|| on_all_cores(8, |i| assert!(i < 3, "past the third")));
        assert!(caught.is_err());
        // No thread is still counted as busy.
        assert_eq!(on_all_cores(2, |i| i), [0, 1]);
    }
}
