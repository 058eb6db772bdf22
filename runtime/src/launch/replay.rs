//! Recorded launches run one by one, and planned again.

use super::recording::RecordedLaunch;
use super::request::{LaunchRequest, PlanFound};
use crate::device::{Device, Stream};
use crate::error::{Result, RuntimeError};

/// Runs a launch on a stream, as it would have run if nobody had recorded it.
pub(super) fn run_recorded(launch: &RecordedLaunch, stream: &Stream) -> Result<()> {
    let (args, device) = (launch.args(), stream.device());
    let request = LaunchRequest { def: launch.def, device, config: launch.config.as_ref(), args: &args };
    request.queue_now(Some(stream), &PlanFound { plan: launch.plan.clone(), was_kept: true })
}

/// Takes the next best config for a launch, if the driver refused the one that it has with this error.
pub(super) fn replan(launch: &mut RecordedLaunch, device: &Device, error: RuntimeError) -> Result<()> {
    let (key, reason) = launch.plan.refused_by(&error).ok_or(error)?;
    device.plans().refuse(&key, &reason);
    let args = launch.args();
    let request = LaunchRequest { def: launch.def, device, config: launch.config.as_ref(), args: &args };
    let plan = request.plan_ahead(request.words().as_slice())?.plan;
    launch.plan = plan;
    Ok(())
}
