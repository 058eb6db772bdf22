//! Kernels in the simulator: which problems with which configs, and what one of them comes to.

use crate::cases::simulation;
use crate::compare::Comparison;
use crate::cover::pairwise;
use crate::problem::Problem;
use atlas_dsl::{Config, DType, KernelDef};
use atlas_runtime::{BoundLaunch, CacheDir, Device, Machine, Result, SimOptions, SimRun, refusal};
use rayon::prelude::*;
use std::fmt;
use std::sync::Arc;

/// How much of the tune space is simulated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cover {
    /// Every two knob values together, and every knob value on every problem.
    Pairs,
    /// Every accepted config on every problem.
    All,
}

/// One launch to simulate.
#[derive(Clone)]
pub struct Job {
    /// The problem.
    pub problem: Problem,
    /// The GPU that is simulated.
    pub machine: Machine,
    /// With which config; `None` for the device's own choice.
    pub config: Option<Config>,
}

/// What a launch came to.
pub struct Simulated {
    /// The result against its reference.
    pub comparison: Comparison,
    /// What the simulator counted; `None` if there was nothing to run.
    pub run: Option<Arc<SimRun>>,
}

/// The launches of the kernels that `want` names: for each kernel and element type a cover of its configs.
///
/// # Errors
/// Those of making tensors.
pub fn jobs(machines: &[impl Into<Machine> + Copy], cover: Cover, want: impl Fn(&Problem) -> bool) -> Result<Vec<Job>> {
    let mut groups: Vec<(&'static KernelDef, DType, Vec<Problem>)> = Vec::new();
    for problem in simulation().into_iter().filter(want) {
        match groups.iter_mut().find(|(k, d, _)| (k.name, *d) == (problem.kernel.name, problem.dtype)) {
            Some((_, _, group)) => group.push(problem),
            None => groups.push((problem.kernel, problem.dtype, vec![problem])),
        }
    }
    let pairs: Vec<(Machine, &[Problem])> = machines
        .iter()
        .flat_map(|&machine| groups.iter().map(move |(_, _, problems)| (machine.into(), &problems[..])))
        .collect();
    let covers = pairs.par_iter().map(|&(machine, problems)| cover_of(problems, machine, cover));
    Ok(covers.collect::<Result<Vec<Vec<Job>>>>()?.into_iter().flatten().collect())
}

/// The launches of the problems of one kernel in one element type.
fn cover_of(problems: &[Problem], machine: Machine, cover: Cover) -> Result<Vec<Job>> {
    let device = Device::sim_with(machine, SimOptions::default(), CacheDir::Off);
    let bound: Vec<BoundLaunch> = problems.iter().map(|p| p.bind(&device)).collect::<Result<_>>()?;
    let job = |at: usize, config: Option<Config>| Job { problem: problems[at].clone(), machine, config };
    let mut candidates = Vec::new();
    for (at, problem) in problems.iter().enumerate().filter(|(at, _)| !bound[*at].is_empty()) {
        candidates.extend(problem.kernel.configs().into_iter().map(|config| (at, config)));
    }
    let accepted = |&(at, ref config): &(usize, Config)| refusal(&bound[at], config).is_none();
    let picked = match cover {
        Cover::All => candidates.into_iter().filter(accepted).collect(),
        Cover::Pairs => pairwise(candidates, |(at, config)| levels(*at, config), accepted),
    };
    let empty = (0..problems.len()).filter(|&at| bound[at].is_empty()).map(|at| job(at, None));
    Ok(picked.into_iter().map(|(at, config)| job(at, Some(config))).chain(empty).collect())
}

/// The factors of a cover: the problem, the tile sizes, the schedule.
fn levels(problem: usize, config: &Config) -> Vec<u64> {
    let sizes = config.tile.values().map(|&size| u64::from(size));
    [problem as u64].into_iter().chain(sizes).chain(config.schedule.words()).collect()
}

impl Job {
    /// Simulates the launch on a device of its own and compares the result.
    ///
    /// # Errors
    /// Those of the launch, faults that the simulator finds among them.
    pub fn run(&self, options: SimOptions, cache: CacheDir) -> Result<Simulated> {
        self.run_under(std::iter::once(options), cache).remove(0)
    }

    /// The same for each of several options, with fresh tensors for each. The kernel is compiled and loaded once.
    pub fn run_under(&self, options: impl IntoIterator<Item = SimOptions>, cache: CacheDir) -> Vec<Result<Simulated>> {
        let inputs = self.problem.inputs();
        let expected = self.problem.expected(&inputs);
        let device = Device::sim_with(self.machine, SimOptions::default(), cache);
        let run = |options| {
            device.set_sim_options(options);
            let mut prepared = self.problem.prepare(&device, &inputs)?;
            prepared.launch(self.config.as_ref())?;
            Ok(Simulated { comparison: prepared.compare(&expected)?, run: device.simulated() })
        };
        options.into_iter().map(run).collect()
    }
}

impl fmt::Display for Job {
    /// `softmax bf16 N5 D40 on sm_80 with BN=1 stages=2 warps=4`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} on {}", self.problem, self.machine)?;
        self.config.as_ref().map_or(Ok(()), |config| write!(f, " with {config}"))
    }
}
