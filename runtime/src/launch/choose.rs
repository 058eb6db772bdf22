//! Which config runs a checked launch on its device: the ranking of `select`, without the configs that the device has
//! refused.

use super::bind::BoundLaunch;
use super::problem::Problem;
use crate::compile::{build_kernel, build_launch};
use crate::cost::{Space, reason};
use crate::error::RuntimeError;
use crate::select::{Ranking, Selection, complete};
use atlas_codegen::pipeline;
use atlas_dsl::Config;

/// Ranks the tune space of a problem for its device, or takes the caller's config.
///
/// # Errors
/// As [`choose_given`].
pub(super) fn rank(problem: &Problem<'_>, given: Option<&Config>) -> Result<Ranking, RuntimeError> {
    let (def, device, spec) = (problem.def(), problem.device(), problem.spec());
    if let Some(config) = given {
        return Ok(Ranking::given(Space::given(def, spec.clone(), device.machine(), complete(def, config)?)?));
    }
    let space = Space::explored(def, spec.clone(), device.machine());
    let guide = device.records().guide(def, spec, problem.dims(), device.machine().as_ref());
    let mut ranking = Ranking::of(space, problem.dims(), device.machine(), guide);
    if let Some(target) = device.target().filter(|_| device.plans().has_refused()) {
        ranking.recall(target, |key| device.plans().refusal(key))?;
    }
    Ok(ranking)
}

/// Ranks the tune space of a bound launch for its device.
///
/// # Errors
/// `RuntimeError::Kernel` if a kernel that was built before cannot be built again.
pub fn choose(bound: &BoundLaunch) -> Result<Selection, RuntimeError> {
    let ranking = rank(&Problem::new(bound), None)?;
    let mut selection = ranking.selection();
    let Some(target) = bound.device().target() else { return Ok(selection) };
    for (c, ranked) in selection.candidates.iter_mut().zip(ranking.legal()) {
        if let Some(bytes) = bound.device().plans().spills(&ranking.space.key(ranked.point, target)?) {
            c.drawback = Some(format!("its registers spill {bytes} bytes per thread"));
        }
    }
    Ok(selection)
}

/// A selection of one config: the caller's, with defaults for the tile sizes that it leaves out.
///
/// # Errors
/// `LaunchError::UnknownKnob`, `LaunchError::ImpossibleSchedule`; `RuntimeError::Kernel` if the kernel cannot be built with it.
pub fn choose_given(bound: &BoundLaunch, config: &Config) -> Result<Selection, RuntimeError> {
    Ok(rank(&Problem::new(bound), Some(config))?.selection())
}

/// Why a config cannot run a bound launch on its device; `None` if it can.
pub fn refusal(bound: &BoundLaunch, config: &Config) -> Option<String> {
    let problem = Problem::new(bound);
    let (def, spec) = (bound.def(), problem.spec());
    let Some(machine) = bound.device().machine() else {
        return build_kernel(def, spec, config).err().map(|e| reason(&e));
    };
    match build_launch(def, spec, config, machine.target()) {
        Ok(launch) => pipeline::run(&launch.kernel, &config.schedule, machine, |_, _| {}).err().map(|e| e.to_string()),
        Err(e) => Some(reason(&e)),
    }
}
