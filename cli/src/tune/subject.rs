//! The problem on which candidates are measured: its arguments on a device, and the expected results.
//!
//! A shipped kernel has the inputs of its op and an f64 reference, and a sample of the results is compared with it. Any
//! other kernel gets small numbers: each candidate must agree with the interpreter on a small ragged problem, and with
//! the first candidate on this problem.

use super::super::arguments::{Arguments, Output, Values};
use super::super::jobs::Job;
use super::super::oracle;
use anyhow::{Context, Result, bail};
use atlas_dsl::Config;
use atlas_ops::cases;
use atlas_ops::problem::{Inputs, Problem, TensorParam};
use atlas_ops::run::{Prepared, Sample};
use atlas_runtime::{Device, Launch, PreparedLaunch, build_kernel};

/// The number of indices of the independent dim that are compared, and the most operations of their references.
const CHECKED: usize = 8;
const REFERENCE: f64 = 2e8;
/// The number of elements of each output that are compared if there is no reference.
const COMPARED: usize = 1 << 18;

/// The arguments of one problem, on a device.
pub(super) enum Subject {
    Shipped { problem: &'static Problem, inputs: Inputs, prepared: Option<Prepared<'static>>, sample: Sample },
    Plain { job: Job, arguments: Arguments, first: Option<(Values, Vec<Output>)> },
}

impl Subject {
    pub(super) fn new(job: &Job, device: &Device) -> Result<Subject> {
        let of_ops = job
            .dtype()
            .filter(|_| job.spec.tensors.is_empty() && job.scalars.is_empty() && atlas_ops::op::ships(job.def));
        if let Some(problem) = of_ops.and_then(|dtype| cases::model_problem(job.def.name, dtype, &job.dims)) {
            // A worker opens few problems, and holds them until it exits.
            let problem: &'static Problem = Box::leak(Box::new(problem));
            let inputs = problem.inputs();
            let prepared = problem.prepare(device, &inputs)?;
            let each = (problem.op.flops)(problem) / problem.dim(problem.op.batch).max(1) as f64;
            let sample = prepared.sample(&inputs, CHECKED.min((REFERENCE / each.max(1.0)) as usize).max(1));
            return Ok(Subject::Shipped { problem, inputs, prepared: Some(prepared), sample });
        }
        let arguments = Arguments::new(job.def, &job.types, &job.dims, &job.spec.tensors, &job.scalars, device)?;
        Ok(Subject::Plain { job: job.clone(), arguments, first: None })
    }

    /// Bytes of the tensors that are read or written.
    pub(super) fn bytes(&self) -> f64 {
        match self {
            Subject::Shipped { problem, .. } => problem.tensors().iter().map(TensorParam::bytes).sum(),
            Subject::Plain { arguments, .. } => arguments.bytes(),
        }
    }

    /// Compiles and loads a config, runs it once and checks its results.
    pub(super) fn prepare(&mut self, config: &Config, device: &Device) -> Result<PreparedLaunch> {
        match self {
            Subject::Shipped { problem, inputs, prepared, sample } => {
                let prepared = match prepared {
                    Some(prepared) if !problem.updates_in_place() => {
                        prepared.clear_outputs()?;
                        prepared
                    }
                    // The old tensors are dropped first, because the GPU may have room for only one set.
                    _ => {
                        *prepared = None;
                        prepared.insert(problem.prepare(device, inputs)?)
                    }
                };
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
                let values = oracle::check(job, config, device)?;
                let kernel = build_kernel(job.def, &job.spec, config)?;
                // All candidates get the same inputs.
                let values = first.as_ref().map_or(values, |(values, _)| *values);
                arguments.renew(&kernel, values)?;
                let launch = job.def.prepare_with(device, config, arguments.args())?;
                launch.launch(arguments.args())?;
                device.synchronize()?;
                let found = arguments.outputs(COMPARED)?;
                match first {
                    None => *first = Some((values, found)),
                    Some((_, first)) => oracle::check_beside(job, config, first, &found)
                        .context("its result is not that of the first config")?,
                }
                Ok(launch)
            }
        }
    }

    /// Launches.
    pub(super) fn launch(&mut self, launch: &PreparedLaunch) -> Result<()> {
        match self {
            Subject::Shipped { prepared, .. } => {
                launch.launch(prepared.as_mut().context("its tensors cannot be made")?.args())?;
            }
            Subject::Plain { arguments, .. } => launch.launch(arguments.args())?,
        }
        Ok(())
    }
}

#[cfg(all(test, feature = "llvm"))]
mod tests {
    use super::*;

    /// The GPU may have room for only one set of a problem's tensors.
    #[test]
    fn tensors_are_never_there_twice() {
        let in_place = atlas_ops::cases::verification().into_iter().find(|p| p.updates_in_place()).unwrap();
        for (kernel, dims) in [("softmax", vec![8, 64]), (in_place.kernel.name, in_place.dims.clone())] {
            let def = crate::input::kernel(kernel).unwrap();
            let job = Job::of_class(kernel, "", &def.dims_text(&dims), "", Some("f32")).unwrap();
            let arguments =
                Arguments::new(def, &job.types, &job.dims, &job.spec.tensors, &job.scalars, &Device::cpu()).unwrap();
            let device = Device::sim("sm_90").unwrap();
            let plain = |device: &Device| {
                let arguments =
                    Arguments::new(def, &job.types, &job.dims, &job.spec.tensors, &job.scalars, device).unwrap();
                Subject::Plain { job: job.clone(), arguments, first: None }
            };
            let mut subject = Subject::new(&job, &device).unwrap();
            let config = def.default_config();
            subject.prepare(&config, &device).unwrap();
            subject.prepare(&config, &device).unwrap();
            let (now, most) = device.tensor_bytes();
            assert_eq!(now, most, "{kernel}");
            assert!(now as f64 >= arguments.bytes(), "{kernel}");
            drop(subject);
            // Compared on a small problem, which takes little memory.
            let device = Device::sim("sm_90").unwrap();
            let mut subject = plain(&device);
            subject.prepare(&config, &device).unwrap();
            subject.prepare(&config, &device).unwrap();
        }
    }
}
