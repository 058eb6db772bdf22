//! Recorded launches run one by one, and planned again.

use crate::device::{Device, Stream};
use crate::error::{Result, RuntimeError};
use crate::launch::recording::RecordedLaunch;
use crate::launch::request::{LaunchRequest, PlanFound};

/// Runs a launch on a stream, as it would have run if nobody had recorded it.
pub(super) fn run_recorded(launch: &mut RecordedLaunch, stream: &Stream) -> Result<()> {
    let (def, device, plan, config) = (launch.def, stream.device(), launch.plan.clone(), launch.config.clone());
    let args = launch.args();
    let request = LaunchRequest { def, device, config: config.as_ref(), args: &args };
    request.queue_now(Some(stream), &PlanFound { plan, was_kept: true })
}

/// Takes the next best config for a launch, if the driver refused the one that it has with this error.
pub(super) fn replan(launch: &mut RecordedLaunch, device: &Device, error: RuntimeError) -> Result<()> {
    let (key, reason) = launch.plan.refused_by(&error).ok_or(error)?;
    device.plans().refuse(&key, &reason);
    let (def, config) = (launch.def, launch.config.clone());
    let args = launch.args();
    let request = LaunchRequest { def, device, config: config.as_ref(), args: &args };
    let plan = request.plan_ahead(request.words().as_slice())?.plan;
    launch.plan = plan;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args;
    use crate::compile::KernelKey;
    use crate::gpu::LoadedKernel;
    use crate::launch::Launch;
    use crate::launch::recording::RecordedLaunch;
    use crate::launch::tests::{KEEP, plan_of};
    use crate::tensor::Tensor;
    use atlas_dsl::DType;
    use std::sync::Arc;

    #[test]
    fn a_refused_launch_is_planned_again() {
        let device = Device::absent(0);
        let mut x = Tensor::zeros(&device, DType::F32, [4]).unwrap();
        let kernel = device.plans().keep_loaded(Arc::new(LoadedKernel::idle(KernelKey([1; 32]))), 0);
        let plan = Arc::new(plan_of(kernel));
        let mut launch = RecordedLaunch::new(&KEEP, None, &plan, &args!(&mut x));
        let refusal = || {
            RuntimeError::Driver(crate::error::DriverFailure {
                call: "cuLaunchKernel",
                device: String::new(),
                status: 701,
                message: String::new(),
            })
        };
        let e = replan(&mut launch, &device, refusal()).unwrap_err();
        // A direct launch that is planned again.
        let direct = KEEP.prepare(&device, args!(&mut x)).map(drop).unwrap_err();
        assert_eq!(e.to_string(), direct.to_string());
    }
}
