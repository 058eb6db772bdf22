//! One launch as its caller requests it: finds or makes its plan, and queues it.

use super::args::Arg;
use super::bind::{BoundArg, BoundLaunch, check_aliasing, scalar_bits};
use super::problem::Problem;
use super::problem_words::ProblemWords;
use super::queue::run;
use super::recording::{RecordedLaunch, recording_of};
use super::resolve::{Resolved, resolve};
use crate::device::{Device, LaunchPlan, Stream};
use crate::error::{LaunchError, Result};
use crate::records::sizes::{Tally, are_recorded, tally};
use atlas_dsl::{Config, DType, KernelDef};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The arguments and options of the caller.
#[derive(Clone, Copy)]
pub(super) struct LaunchRequest<'a> {
    pub(super) def: &'static KernelDef,
    pub(super) device: &'a Device,
    /// The caller's config, instead of one that is chosen.
    pub(super) config: Option<&'a Config>,
    pub(super) args: &'a [Arg<'a>],
}

/// A plan that is ready to be queued: the arguments are checked, and the kernel is loaded.
pub(super) struct PlanFound {
    pub(super) plan: Arc<LaunchPlan>,
    /// Whether the device already had it.
    pub(super) was_kept: bool,
}

impl LaunchRequest<'_> {
    /// Runs the kernel on a stream, or on the device's default one.
    pub(super) fn launch(self, stream: Option<&Stream>) -> Result<()> {
        self.queue(stream, &self.plan(stream)?)
    }

    /// The words of the problem, the key of the plan.
    pub(super) fn words(&self) -> ProblemWords {
        ProblemWords::new(self.def, self.config, self.args)
    }

    /// Checks the arguments, and finds or makes the plan of a launch on a stream. For a stream that records, none is made.
    pub(super) fn plan(&self, stream: Option<&Stream>) -> Result<PlanFound> {
        let words = self.words();
        if let Some(found) = self.find(words.as_slice())? {
            return Ok(found);
        }
        if self.is_recorded(stream)? {
            BoundLaunch::new(self.def, self.device, self.args)?;
            // No preparation would help a stream whose recording has ended.
            if let Some(recording) = recording_of(self.def.name, self.device, stream)? {
                recording.check_open(self.def.name)?;
            }
            return Err(LaunchError::RecordedUnprepared { kernel: self.def.name }.into());
        }
        self.make(words.as_slice())
    }

    /// Checks the arguments, and finds or makes the plan of launches to come, for words that the caller has computed.
    pub(super) fn plan_ahead(&self, words: &[u64]) -> Result<PlanFound> {
        self.find(words)?.map_or_else(|| self.make(words), Ok)
    }

    /// The plan, if the device has it, for arguments that pass the checks.
    fn find(&self, words: &[u64]) -> Result<Option<PlanFound>> {
        let Some(plan) = self.device.plans().find(words) else { return Ok(None) };
        self.check_again(&plan)?;
        Ok(Some(PlanFound { plan, was_kept: true }))
    }

    fn make(&self, words: &[u64]) -> Result<PlanFound> {
        let plans = self.device.plans();
        let bound = BoundLaunch::new(self.def, self.device, self.args)?;
        let problem = Problem::new(&bound);
        let begun = plans.generation();
        let Resolved { config, source, body, passed_over } = resolve(&problem, self.config)?;
        let (tally, numbers) = (tally_of(&problem), numbers_of(&bound));
        let plan = Arc::new(LaunchPlan { config, source, body, passed_over, tally, numbers });
        plans.keep(words, &plan, begun);
        tracing::debug!(
            target: "atlas",
            kernel = self.def.name,
            dims = ?bound.dims(),
            config = %plan.config,
            by = %plan.source,
            passed_over = plan.passed_over.len(),
            "config chosen"
        );
        Ok(PlanFound { plan, was_kept: false })
    }

    /// The checks that a known problem still needs: the devices of its tensors, their aliasing, and the range of its
    /// numbers.
    pub(super) fn check_again(&self, plan: &LaunchPlan) -> Result<()> {
        let (def, device) = (self.def, self.device);
        for &(i, dtype) in &plan.numbers {
            scalar_bits(def.name, def.params[i].name(), dtype, &self.args[i])?;
        }
        for (param, arg) in def.params.iter().zip(self.args) {
            if let Some(tensor) = arg.tensor()
                && tensor.device() != device
            {
                let (found, wanted) = tensor.device().beside(device);
                return Err(LaunchError::WrongDevice { kernel: def.name, param: param.name(), found, wanted }.into());
            }
        }
        Ok(check_aliasing(def, self.args)?)
    }

    /// Whether a launch on this stream would be recorded, here or by the driver.
    fn is_recorded(&self, stream: Option<&Stream>) -> Result<bool> {
        Ok(recording_of(self.def.name, self.device, stream)?.is_some()
            || stream.is_some_and(|stream| matches!(stream.is_recorded_by_driver(), Ok(true))))
    }

    /// Runs a plan, or has it recorded.
    pub(super) fn queue(&self, stream: Option<&Stream>, found: &PlanFound) -> Result<()> {
        match recording_of(self.def.name, self.device, stream)? {
            Some(recording) => recording.push(RecordedLaunch::new(self.def, self.config, &found.plan, self.args)),
            None => self.queue_now(stream, found),
        }
    }

    /// Counts the launch and runs its plan. If the driver refuses the kernel at launch time, it tries the next best
    /// config. Each refusal is remembered, so this ends.
    pub(super) fn queue_now(&self, stream: Option<&Stream>, found: &PlanFound) -> Result<()> {
        let counters = self.device.counters();
        counters.launches.fetch_add(1, Ordering::Relaxed);
        counters.warm.fetch_add(u64::from(found.was_kept), Ordering::Relaxed);
        let mut plan = found.plan.clone();
        loop {
            let (key, reason) = match run(self.def, self.device, stream, &plan, self.args) {
                Ok(()) => return Ok(()),
                Err(e) => plan.refused_by(&e).ok_or(e)?,
            };
            self.device.plans().refuse(&key, &reason);
            plan = self.plan(stream)?.plan;
        }
    }
}

/// The counter for launches of a problem, if sizes are recorded.
fn tally_of(problem: &Problem<'_>) -> Option<Arc<Tally>> {
    if !are_recorded() {
        return None;
    }
    let (types, tensors) = problem.class_text();
    tally(problem.def().name, types, problem.def().dims_text(problem.dims()), tensors)
}

/// The parameters that are numbers, with their types.
fn numbers_of(bound: &BoundLaunch) -> Box<[(usize, DType)]> {
    let number = |(i, arg): (usize, &BoundArg)| match arg {
        BoundArg::Scalar { dtype, .. } => Some((i, *dtype)),
        BoundArg::Tensor { .. } => None,
    };
    bound.args().iter().enumerate().filter_map(number).collect()
}
