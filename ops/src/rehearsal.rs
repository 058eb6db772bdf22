//! A sequence of launches that runs whole or not at all: rehearsed first, then run by the same code.
//!
//! A rehearsal checks the arguments of every launch and makes its kernel ready, and runs none. What is left to fail then are
//! faults of kernels that run, and a driver or a host without memory in the middle of them.

use atlas_dsl::KernelDef;
use atlas_runtime::{Arg, Chain, Device, Launch, Result, Stream, Workspace};

/// What becomes of launches.
#[derive(Clone, Copy)]
pub(crate) enum Mode<'a> {
    /// They run on the default stream of a device.
    Run(&'a Device),
    /// They run on a stream.
    RunOn(&'a Stream),
    /// They are checked and made ready.
    Rehearse(&'a Device),
}

impl Mode<'_> {
    /// Whether nothing runs.
    pub(crate) fn is_rehearsal(self) -> bool {
        matches!(self, Mode::Rehearse(_))
    }

    pub(crate) fn launch<'x>(self, kernel: &'static KernelDef, args: impl AsRef<[Arg<'x>]>) -> Result<()> {
        match self {
            Mode::Run(device) => kernel.launch(device, args),
            Mode::RunOn(stream) => kernel.launch_on(stream, args),
            Mode::Rehearse(device) => kernel.prepare(device, args).map(drop),
        }
    }

    pub(crate) fn chain<'x>(
        self,
        chain: &'static Chain,
        args: impl AsMut<[Arg<'x>]>,
        workspace: &mut Workspace,
    ) -> Result<()> {
        match self {
            Mode::Run(device) => chain.launch(device, args, workspace),
            Mode::RunOn(stream) => chain.launch_on(stream, args, workspace),
            Mode::Rehearse(device) => chain.prepare(device, args, workspace).map(drop),
        }
    }
}
