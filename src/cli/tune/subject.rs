//! What a candidate is measured on: the arguments of one problem on a device, and what their results should be.
//!
//! A kernel that ships has inputs of its op and an f64 reference, of which a sample is compared. Any other kernel has small
//! numbers: each candidate must agree with the interpreter on a small ragged problem, and with the first candidate on this one.

use super::super::arguments::{Arguments, bound};
use super::super::jobs::Job;
use super::super::oracle;
use anyhow::{Result, bail};
use atlas_dsl::Config;
use atlas_ops::cases;
use atlas_ops::problem::{Inputs, Problem, TensorParam};
use atlas_ops::run::{Prepared, Sample};
use atlas_runtime::{Device, Launch, PreparedLaunch};

/// Indices of the independent dim that are compared, and the operations that their references may take.
const CHECKED: usize = 8;
const REFERENCE: f64 = 2e8;
/// Elements of each output that are compared where there is no reference.
const COMPARED: usize = 1 << 18;

/// The arguments of one problem, on a device.
pub(super) enum Subject {
    Shipped { problem: &'static Problem, inputs: Inputs, prepared: Prepared<'static>, sample: Sample },
    Plain { job: Job, arguments: Arguments, first: Option<Vec<Vec<f64>>> },
}

impl Subject {
    pub(super) fn new(job: &Job, device: &Device) -> Result<Subject> {
        let of_ops = job.dtype().filter(|_| job.spec.tensors.is_empty() && atlas_ops::op::ships(job.def));
        if let Some(problem) = of_ops.and_then(|dtype| cases::model_problem(job.def.name, dtype, &job.dims)) {
            // A worker opens few problems, and ends with them.
            let problem: &'static Problem = Box::leak(Box::new(problem));
            let inputs = problem.inputs();
            let prepared = problem.prepare(device, &inputs)?;
            let each = (problem.op.flops)(problem) / problem.dim(problem.op.batch).max(1) as f64;
            let sample = prepared.sample(&inputs, CHECKED.min((REFERENCE / each.max(1.0)) as usize).max(1));
            return Ok(Subject::Shipped { problem, inputs, prepared, sample });
        }
        Ok(Subject::Plain { job: job.clone(), arguments: arguments_of(job, device)?, first: None })
    }

    /// Bytes of the tensors that are read or written.
    pub(super) fn bytes(&self) -> f64 {
        match self {
            Subject::Shipped { problem, .. } => problem.tensors().iter().map(TensorParam::bytes).sum(),
            Subject::Plain { arguments, .. } => arguments.bytes(),
        }
    }

    /// Compiles and loads a config, runs it once and compares what it gave.
    pub(super) fn prepare(&mut self, config: &Config, device: &Device) -> Result<PreparedLaunch> {
        match self {
            Subject::Shipped { problem, inputs, prepared, sample } => {
                if problem.updates_in_place() {
                    *prepared = problem.prepare(device, inputs)?;
                } else {
                    prepared.clear_outputs()?;
                }
                let launch = prepared.resolve(Some(config))?;
                launch.launch(prepared.args())?;
                device.synchronize()?;
                let c = prepared.check_sample(sample)?;
                if !c.passes(problem.bound()) {
                    bail!(
                        "its result is wrong: relative error {:.1e}, bound {:.1e}, of one element {:.1e}",
                        c.rel_f,
                        problem.bound(),
                        c.max_error
                    );
                }
                Ok(launch)
            }
            Subject::Plain { job, arguments, first } => {
                oracle::check(job.def, &job.spec, config, device)?;
                *arguments = arguments_of(job, device)?;
                let launch = job.def.prepare_with(device, config, arguments.args())?;
                launch.launch(arguments.args())?;
                device.synchronize()?;
                let found = arguments.outputs(COMPARED)?;
                match first {
                    None => *first = Some(found),
                    Some(first) => agree(first, &found, bound(job.def, &job.types))?,
                }
                Ok(launch)
            }
        }
    }

    /// Launches.
    pub(super) fn launch(&mut self, launch: &PreparedLaunch) -> Result<()> {
        match self {
            Subject::Shipped { prepared, .. } => launch.launch(prepared.args())?,
            Subject::Plain { arguments, .. } => launch.launch(arguments.args())?,
        }
        Ok(())
    }
}

fn arguments_of(job: &Job, device: &Device) -> Result<Arguments> {
    Arguments::new(job.def, &job.types, &job.dims, &job.spec.tensors, device)
}

/// Refuses results that lie further from the first candidate's than two roundings in other orders explain.
fn agree(first: &[Vec<f64>], found: &[Vec<f64>], bound: f64) -> Result<()> {
    let (apart, element) = oracle::apart(first, found);
    if apart > bound || element > oracle::ELEMENT * bound {
        bail!(
            "its result is not that of the first config: {apart:.1e} apart, one element {element:.1e}, bound {bound:.1e}"
        );
    }
    Ok(())
}
