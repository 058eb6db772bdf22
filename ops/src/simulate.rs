//! Kernels in the simulator: which problems with which configs, and what one of them comes to.

use crate::cases::simulation;
use crate::compare::Comparison;
use crate::cover::pairwise;
use crate::problem::Problem;
use atlas_dsl::Config;
use atlas_runtime::{BoundLaunch, CacheDir, Device, Machine, Result, SimOptions, SimRun, refusal};
use rayon::prelude::*;
use std::collections::HashMap;
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

/// The launches of the kernels that `want` names: covers of their configs.
///
/// A cover is of a kernel's problems in all 16-bit types, or in all others, on all machines: the type and the machine are factors
/// of it like a tile size, since most of the code is the same. For all pairs of knobs on one machine, give that machine alone.
///
/// # Errors
/// Those of making tensors.
pub fn jobs(machines: &[impl Into<Machine> + Copy], cover: Cover, want: impl Fn(&Problem) -> bool) -> Result<Vec<Job>> {
    let mut groups: Vec<Vec<Problem>> = Vec::new();
    let family = |p: &Problem| (p.kernel.name, p.dtype.is_half());
    for problem in simulation().into_iter().filter(want) {
        match groups.iter_mut().find(|group| group.first().is_some_and(|p| family(p) == family(&problem))) {
            Some(group) => group.push(problem),
            None => groups.push(vec![problem]),
        }
    }
    let machines: Vec<Machine> = machines.iter().map(|&machine| machine.into()).collect();
    let covers = groups.par_iter().map(|problems| cover_of(problems, &machines, cover));
    Ok(covers.collect::<Result<Vec<Vec<Job>>>>()?.into_iter().flatten().collect())
}

/// A problem on a machine.
struct CoverPlace<'p> {
    problem: &'p Problem,
    machine: Machine,
    bound: BoundLaunch,
    /// The factors of a cover: the machine, the element type, and which of its type's problems it is.
    factors: [u64; 3],
}

impl CoverPlace<'_> {
    fn job(&self, config: Option<Config>) -> Job {
        Job { problem: self.problem.clone(), machine: self.machine, config }
    }

    /// The factors of a cover: the place's, the tile sizes, the schedule.
    fn levels(&self, config: &Config) -> Vec<u64> {
        let sizes = config.tile.values().map(|&size| u64::from(size));
        self.factors.into_iter().chain(sizes).chain(config.schedule.words()).collect()
    }
}

/// The launches of problems of one kernel.
fn cover_of(problems: &[Problem], machines: &[Machine], cover: Cover) -> Result<Vec<Job>> {
    let mut places = Vec::new();
    for (on, &machine) in machines.iter().enumerate() {
        let device = Device::sim_with(machine, SimOptions::default(), CacheDir::Off);
        let mut seen = HashMap::new();
        for problem in problems {
            let of_type = seen.entry(problem.dtype).or_insert(0);
            let factors = [on as u64, problem.dtype as u64, *of_type];
            *of_type += 1;
            places.push(CoverPlace { problem, machine, bound: problem.bind(&device)?, factors });
        }
    }
    let (empty, filled): (Vec<&CoverPlace<'_>>, Vec<&CoverPlace<'_>>) =
        places.iter().partition(|place| place.bound.is_empty());
    let mut candidates: Vec<(&CoverPlace<'_>, Config)> = Vec::new();
    for place in filled {
        candidates.extend(place.problem.kernel.configs().into_iter().map(|config| (place, config)));
    }
    let accepted = |(place, config): &(&CoverPlace<'_>, Config)| refusal(&place.bound, config).is_none();
    let picked = match cover {
        Cover::All => candidates.into_iter().filter(accepted).collect(),
        Cover::Pairs => pairwise(candidates, |(place, config)| place.levels(config), accepted),
    };
    let empty = empty.into_iter().map(|place| place.job(None));
    Ok(picked.into_iter().map(|(place, config)| place.job(Some(config))).chain(empty).collect())
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
