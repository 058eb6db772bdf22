//! Recording: launches are taken down with all that they need, and run later.
//!
//! The driver does not record while the caller's closure runs: launches are lists here, of which the driver makes a graph afterwards.
//! So whatever the closure does, no stream of the driver is left recording, and the closure may allocate and compile.

use super::args::Arg;
use super::queue::{note, queue_kernels};
use crate::device::{Device, LaunchBody, LaunchPlan, Stream};
use crate::error::{LaunchError, Result};
use crate::gpu::{Conditional, Context, Handle, Scratch, ScratchBytes};
use crate::tensor::Tensor;
use atlas_dsl::{Config, KernelDef};
use std::cell::RefCell;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A launch that runs later. It owns its plan, and so the loaded kernels, and shares the memory of its tensors.
#[derive(Clone)]
pub(super) struct RecordedLaunch {
    pub(super) def: &'static KernelDef,
    pub(super) config: Option<Config>,
    pub(super) plan: Arc<LaunchPlan>,
    args: Box<[RecordedArg]>,
}

/// What runs later.
#[derive(Clone)]
pub(super) enum RecordedStep {
    Launch(RecordedLaunch),
    Block(RecordedBlock),
}

/// Steps that run as a number in memory says when they would.
#[derive(Clone)]
pub(super) struct RecordedBlock {
    pub(super) kind: Conditional,
    /// The number: one i32.
    pub(super) condition: Tensor,
    pub(super) steps: Vec<RecordedStep>,
}

impl RecordedBlock {
    /// Whether one of its launches has the memory of a tensor as an output.
    fn writes(&self, tensor: &Tensor) -> bool {
        let range = tensor.address_range();
        let mut found = false;
        RecordedStep::each(&self.steps, &mut |launch| {
            found |= launch.args.iter().any(|arg| match arg {
                RecordedArg::Written(to) => {
                    let to = to.address_range();
                    to.start < range.end && range.start < to.end
                }
                _ => false,
            });
        });
        found
    }
}

impl RecordedStep {
    /// Calls a function for the launches of steps, those of blocks too, in their order.
    pub(super) fn each<'s>(steps: &'s [RecordedStep], act: &mut impl FnMut(&'s RecordedLaunch)) {
        for step in steps {
            match step {
                RecordedStep::Launch(launch) => act(launch),
                RecordedStep::Block(block) => RecordedStep::each(&block.steps, act),
            }
        }
    }

    /// How many launches there are.
    pub(super) fn count(steps: &[RecordedStep]) -> usize {
        let mut count = 0;
        RecordedStep::each(steps, &mut |_| count += 1);
        count
    }

    /// The launch of that number in this order.
    pub(super) fn launch_mut(steps: &mut [RecordedStep], number: usize) -> Option<&mut RecordedLaunch> {
        let mut before = number;
        for step in steps {
            match step {
                RecordedStep::Launch(launch) if before == 0 => return Some(launch),
                RecordedStep::Launch(_) => before -= 1,
                RecordedStep::Block(block) => {
                    let count = RecordedStep::count(&block.steps);
                    if before < count {
                        return RecordedStep::launch_mut(&mut block.steps, before);
                    }
                    before -= count;
                }
            }
        }
        None
    }

    /// The tensors of steps: of a block, its condition and then those of its steps; of a launch, in the order of its arguments.
    pub(super) fn tensors(steps: &[RecordedStep]) -> Vec<&Tensor> {
        steps
            .iter()
            .flat_map(|step| match step {
                RecordedStep::Launch(launch) => launch.tensors().collect(),
                RecordedStep::Block(block) => {
                    std::iter::once(&block.condition).chain(RecordedStep::tensors(&block.steps)).collect::<Vec<_>>()
                }
            })
            .collect()
    }
}

/// An argument that needs nobody else to live.
#[derive(Clone)]
enum RecordedArg {
    Read(Tensor),
    Written(Tensor),
    F32(f32),
    F64(f64),
    I32(i32),
    I64(i64),
}

impl RecordedArg {
    fn new(arg: &Arg<'_>) -> RecordedArg {
        match arg {
            Arg::In(t) => RecordedArg::Read((*t).clone()),
            Arg::Out(t) => RecordedArg::Written((**t).clone()),
            Arg::Lent(t) => RecordedArg::Written((**t).clone()),
            Arg::F32(x) => RecordedArg::F32(*x),
            Arg::F64(x) => RecordedArg::F64(*x),
            Arg::I32(x) => RecordedArg::I32(*x),
            Arg::I64(x) => RecordedArg::I64(*x),
        }
    }

    /// The same as an argument of a launch, in the form that it was given: what is planned again is checked again.
    fn arg(&mut self) -> Arg<'_> {
        match self {
            RecordedArg::Read(t) => Arg::In(t),
            RecordedArg::Written(t) => Arg::Out(t),
            RecordedArg::F32(x) => Arg::F32(*x),
            RecordedArg::F64(x) => Arg::F64(*x),
            RecordedArg::I32(x) => Arg::I32(*x),
            RecordedArg::I64(x) => Arg::I64(*x),
        }
    }
}

impl RecordedLaunch {
    /// A launch whose arguments have been checked, with the caller's config, if there is one.
    pub(super) fn new(
        def: &'static KernelDef,
        config: Option<&Config>,
        plan: &Arc<LaunchPlan>,
        args: &[Arg<'_>],
    ) -> RecordedLaunch {
        let args = args.iter().map(RecordedArg::new).collect();
        RecordedLaunch { def, config: config.cloned(), plan: plan.clone(), args }
    }

    /// Its tensors, in the order of its arguments.
    pub(super) fn tensors(&self) -> impl Iterator<Item = &Tensor> {
        self.args.iter().filter_map(|arg| match arg {
            RecordedArg::Read(tensor) | RecordedArg::Written(tensor) => Some(tensor),
            _ => None,
        })
    }

    /// Its arguments.
    pub(super) fn args(&mut self) -> Vec<Arg<'_>> {
        self.args.iter_mut().map(RecordedArg::arg).collect()
    }

    /// Whether the driver can record it: not if the CPU runs it, and only a GPU has such a plan otherwise.
    pub(super) fn is_for_driver(&self) -> bool {
        matches!(self.plan.body, LaunchBody::Gpu(_) | LaunchBody::Empty)
    }

    /// The scratch memory that it needs.
    pub(super) fn scratch(&self) -> ScratchBytes {
        match &self.plan.body {
            LaunchBody::Gpu(gpu) => gpu.scratch.unwrap_or_default(),
            LaunchBody::Cpu { .. } | LaunchBody::Empty => ScratchBytes::default(),
        }
    }

    /// Queues it on a stream of the driver that records, with scratch memory that lives as long as the graph.
    pub(super) fn queue(&mut self, context: &Context, stream: Handle, scratch: &Scratch) -> Result<()> {
        let (plan, def) = (self.plan.clone(), self.def);
        let LaunchBody::Gpu(gpu) = &plan.body else { return Ok(()) };
        let addresses = scratch.addresses(self.scratch()).unwrap_or_default();
        queue_kernels((def, &self.args()), gpu, context, stream, addresses)
    }

    /// Notes that it is launched now, as a part of a graph.
    pub(super) fn note(&self, device: &Device) {
        note(device, &self.plan);
    }
}

/// State that moved while a thread recorded.
pub(super) trait MovedState: Send {
    /// The op whose state it is.
    fn op(&self) -> &'static str;
    /// Which state it is: the same for the same one.
    fn address(&self) -> usize;
    /// Whether what moved it may run again: it is what it was before, or does not depend on that.
    fn is_back(&self) -> bool;
    /// Whether it is what it was before. What moved it may run again, or not at all.
    fn is_unchanged(&self) -> bool;
    /// Makes it what it was before.
    fn go_back(&self);
}

/// What a stream that records has taken down, and the state on the host that has moved meanwhile.
#[derive(Default)]
struct TakenDown {
    steps: Vec<RecordedStep>,
    /// Whether a block of it is being recorded, which takes down what is launched meanwhile.
    is_in_block: bool,
    moved: Vec<Box<dyn MovedState>>,
}

/// What a stream that records has taken down; `None` once the recording has ended.
struct LaunchRecorder(Mutex<Option<TakenDown>>);

impl LaunchRecorder {
    fn lock(&self) -> MutexGuard<'_, Option<TakenDown>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A stream that records.
#[derive(Clone)]
pub(super) struct Recording(Stream);

impl Recording {
    /// The recording of a stream, if that records.
    pub(super) fn of(stream: &Stream) -> Option<Recording> {
        Recording::recorder(stream).map(|_| Recording(stream.clone()))
    }

    fn recorder(stream: &Stream) -> Option<&LaunchRecorder> {
        stream.recorder()?.downcast_ref()
    }

    /// Calls `act` on what has been taken down.
    ///
    /// # Errors
    /// [`LaunchError::RecordingEnded`] if it takes nothing down any more, [`LaunchError::NotRecorded`] if a block does instead.
    fn with<T>(&self, what: &'static str, act: impl FnOnce(&mut TakenDown) -> T) -> Result<T> {
        let mut taken = Recording::recorder(&self.0).map(LaunchRecorder::lock);
        match taken.as_mut().and_then(|taken| taken.as_mut()) {
            None => Err(LaunchError::RecordingEnded { kernel: what }.into()),
            Some(taken) if taken.is_in_block => Err(LaunchError::NotRecorded { kernel: what }.into()),
            Some(taken) => Ok(act(taken)),
        }
    }

    /// Whether it still takes launches down.
    ///
    /// # Errors
    /// [`LaunchError::RecordingEnded`] or [`LaunchError::NotRecorded`] if not.
    pub(super) fn check_open(&self, kernel: &'static str) -> Result<()> {
        self.with(kernel, |_| ())
    }

    /// Takes a launch down.
    pub(super) fn push(&self, launch: RecordedLaunch) -> Result<()> {
        self.with(launch.def.name, |taken| taken.steps.push(RecordedStep::Launch(launch)))
    }

    /// Takes down what another graph has recorded.
    pub(super) fn extend(&self, name: &'static str, steps: &[RecordedStep]) -> Result<()> {
        self.with(name, |taken| taken.steps.extend_from_slice(steps))
    }

    /// Takes down what a closure launches on the stream that it is given, as a block. `call` is what the user called.
    pub(super) fn block(
        &self,
        call: &'static str,
        (kind, condition): (Conditional, Tensor),
        closure: impl FnOnce(&Stream) -> Result<()>,
    ) -> Result<()> {
        self.with(call, |taken| taken.is_in_block = true)?;
        // Also after a panic.
        let open = BlockOpen(self);
        let steps = take_down(&self.0, closure, |state| state.is_unchanged());
        drop(open);
        let block = RecordedBlock { kind, condition, steps: steps? };
        // A loop of nothing would never end, and a choice of nothing is none.
        if RecordedStep::count(&block.steps) == 0 {
            return Ok(());
        }
        if kind == Conditional::While && !block.writes(&block.condition) {
            return Err(LaunchError::EndlessLoop {}.into());
        }
        self.with(call, |taken| taken.steps.push(RecordedStep::Block(block)))
    }
}

/// A recording of which a block is being recorded.
struct BlockOpen<'r>(&'r Recording);

impl Drop for BlockOpen<'_> {
    fn drop(&mut self) {
        let mut taken = Recording::recorder(&self.0.0).map(LaunchRecorder::lock);
        if let Some(taken) = taken.as_mut().and_then(|taken| taken.as_mut()) {
            taken.is_in_block = false;
        }
    }
}

thread_local! {
    /// The recordings whose closures run on this thread now, the innermost last.
    static OPEN: RefCell<Vec<Recording>> = const { RefCell::new(Vec::new()) };
}

/// The innermost recording of a device's graph whose closure runs on this thread.
fn open_on(device: &Device) -> Option<Recording> {
    let find = |open: &RefCell<Vec<Recording>>| open.borrow().iter().rev().find(|r| r.0.device() == device).cloned();
    // A thread that ends records nothing any more.
    OPEN.try_with(find).ok().flatten()
}

/// The recording that takes a launch down, if one does.
///
/// # Errors
/// [`LaunchError::NotRecorded`] if this thread records a graph of the device, but the launch is for another stream.
pub(super) fn recording_of(
    kernel: &'static str,
    device: &Device,
    stream: Option<&Stream>,
) -> Result<Option<Recording>> {
    if let Some(recording) = stream.and_then(Recording::of) {
        return Ok(Some(recording));
    }
    match open_on(device) {
        Some(_) if stream.is_some_and(|stream| !stream.is_default()) => Err(LaunchError::NotRecorded { kernel }.into()),
        open => Ok(open),
    }
}

/// Takes down that state is about to move, in every recording of the device whose closure runs on this thread and in which it has not moved
/// yet: what an inner one moves, the outer ones find moved.
pub(super) fn moved(device: &Device, state: impl Fn() -> Box<dyn MovedState>) {
    let find = |open: &RefCell<Vec<Recording>>| -> Vec<Recording> {
        open.borrow().iter().filter(|r| r.0.device() == device).cloned().collect()
    };
    for open in OPEN.try_with(find).unwrap_or_default() {
        let mut taken = Recording::recorder(&open.0).map(LaunchRecorder::lock);
        if let Some(taken) = taken.as_mut().and_then(|taken| taken.as_mut()) {
            let state = state();
            if taken.moved.iter().all(|m| m.address() != state.address()) {
                taken.moved.push(state);
            }
        }
    }
}

/// A recording while its closure runs. It ends when this is dropped, also by a panic.
struct OpenRecording(Recording);

impl OpenRecording {
    fn begin(on: &Stream) -> OpenRecording {
        let recording = Recording(on.recording_into(LaunchRecorder(Mutex::new(Some(TakenDown::default())))));
        OPEN.with_borrow_mut(|open| open.push(recording.clone()));
        OpenRecording(recording)
    }

    /// Ends it.
    fn end(&self) -> Option<TakenDown> {
        Recording::recorder(&self.0.0).and_then(|recorder| recorder.lock().take())
    }
}

impl Drop for OpenRecording {
    fn drop(&mut self) {
        // It has failed, so nothing that moved this state runs.
        self.end().iter().flat_map(|taken| &taken.moved).for_each(|state| state.go_back());
        // Closures end in the opposite order of their beginnings.
        OPEN.with_borrow_mut(|open| open.pop());
    }
}

/// What a closure launches on the stream that it is given, to run any number of times.
pub(super) fn record(on: &Stream, closure: impl FnOnce(&Stream) -> Result<()>) -> Result<Vec<RecordedStep>> {
    take_down(on, closure, |state| state.is_back())
}

/// The same, of which `may_run_again` decides by the state that it moved.
fn take_down(
    on: &Stream,
    closure: impl FnOnce(&Stream) -> Result<()>,
    may_run_again: impl Fn(&dyn MovedState) -> bool,
) -> Result<Vec<RecordedStep>> {
    let open = OpenRecording::begin(on);
    closure(&open.0.0)?;
    let taken = open.end().unwrap_or_default();
    if let Some(state) = taken.moved.iter().find(|state| !may_run_again(&***state)) {
        taken.moved.iter().for_each(|state| state.go_back());
        return Err(LaunchError::NotRepeatable { op: state.op() }.into());
    }
    Ok(taken.steps)
}
