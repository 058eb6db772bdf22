//! Launches that run as a number in memory says: `if` and `while` in a graph.

use super::replay::run_recorded;
use crate::device::Stream;
use crate::error::{LaunchError, Result};
use crate::gpu::Conditional;
use crate::launch::recording::{RecordedBlock, RecordedStep, Recording};
use crate::tensor::Tensor;
use atlas_dsl::DType;

impl Stream {
    /// In a recording: records launches that a run of the graph makes only if a number is not 0 when it comes to them.
    ///
    /// ```text
    /// let graph = stream.capture(|recording| {
    ///     measure.launch_on(recording, args!(x, &mut is_large))?;        // an i32
    ///     recording.run_if(&is_large, |then| shrink.launch_on(then, args!(&mut x)))
    /// })?;
    /// ```
    ///
    /// The condition is a tensor of one i32, which the graph keeps. Earlier launches of the graph may write it, and so may the host before
    /// a run. The closure records on the stream that it is given, and on the default stream, as that of [`Stream::capture`] does. It may
    /// have conditions of its own. It leaves the state of ops on the host as it finds it.
    ///
    /// On a GPU it is a conditional node of the CUDA graph, and the host does not wait. That takes a driver for CUDA 12.4. With an
    /// earlier one, and on the CPU and in the simulator, [`Graph::launch`](crate::Graph::launch) reads the number between launches.
    ///
    /// # Errors
    /// Those of [`Stream::capture`]; [`LaunchError::NoRecording`] if this stream does not record; [`LaunchError::WrongCondition`] for a
    /// tensor that is not one i32 of this device; [`LaunchError::NotRecorded`] for a launch of the closure on the stream of the recording
    /// around it.
    pub fn run_if(&self, condition: &Tensor, closure: impl FnOnce(&Stream) -> Result<()>) -> Result<()> {
        self.block("run_if", Conditional::If, condition, closure)
    }

    /// In a recording: records launches that a run of the graph repeats as long as a number is not 0. The number is read before each
    /// repetition, so one that is 0 at first makes none. It is the launches of the closure that write it; if they never make it 0, the
    /// graph never ends.
    ///
    /// ```text
    /// let graph = stream.capture(|recording| {
    ///     begin.launch_on(recording, args!(&mut x, &mut more))?;
    ///     recording.run_while(&more, |again| step.launch_on(again, args!(&mut x, &mut more)))
    /// })?;
    /// ```
    ///
    /// All else is as for [`Stream::run_if`].
    ///
    /// # Errors
    /// As for [`Stream::run_if`], and [`LaunchError::EndlessLoop`] if no launch of the closure writes the condition.
    pub fn run_while(&self, condition: &Tensor, closure: impl FnOnce(&Stream) -> Result<()>) -> Result<()> {
        self.block("run_while", Conditional::While, condition, closure)
    }

    fn block(
        &self,
        call: &'static str,
        kind: Conditional,
        condition: &Tensor,
        closure: impl FnOnce(&Stream) -> Result<()>,
    ) -> Result<()> {
        let Some(recording) = Recording::of(self) else { return Err(LaunchError::NoRecording { call }.into()) };
        if condition.dtype() != DType::I32 || condition.len() != 1 || condition.device() != self.device() {
            let found =
                format!("one of {:?} {} on {}", condition.shape(), condition.dtype().name(), condition.device().id());
            return Err(LaunchError::WrongCondition { call, found, device: self.device().id().to_string() }.into());
        }
        recording.block(call, (kind, condition.clone()), closure)
    }
}

/// Runs steps one by one on a stream. The host reads the conditions.
pub(super) fn run_steps(steps: &mut [RecordedStep], stream: &Stream) -> Result<()> {
    steps.iter_mut().try_for_each(|step| match step {
        RecordedStep::Launch(launch) => run_recorded(launch, stream),
        RecordedStep::Block(block) => run_block(block, stream),
    })
}

fn run_block(block: &mut RecordedBlock, stream: &Stream) -> Result<()> {
    while holds(&block.condition, stream)? {
        run_steps(&mut block.steps, stream)?;
        if block.kind == Conditional::If {
            break;
        }
    }
    Ok(())
}

/// Whether the number of a condition is not 0 once all that is queued has run.
fn holds(condition: &Tensor, stream: &Stream) -> Result<bool> {
    stream.synchronize()?;
    Ok(condition.to_vec::<i32>()? != [0])
}
