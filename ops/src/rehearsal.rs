//! A sequence of launches that runs whole or not at all: rehearsed first, then run by the same code.
//!
//! A rehearsal checks the arguments of every launch and makes its kernel ready, and runs none. What is left to fail then are
//! faults of kernels that run, and a driver or a host without memory in the middle of them.

use atlas_dsl::KernelDef;
use atlas_runtime::{Arg, Chain, Device, Launch, Result, Stream, Tensor, Workspace};
use std::collections::BTreeSet;

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

/// Rehearsals that went well, of short sequences that come again and again: bounded.
#[derive(Default)]
pub(crate) struct Rehearsed {
    known: BTreeSet<Vec<i64>>,
}

impl Rehearsed {
    const MOST: usize = 4096;

    /// What a sequence of launches depends on: where it stands, and the caller's tensors as far as launches look at them.
    pub(crate) fn key(stand: &[usize], tensors: &[&Tensor]) -> Vec<i64> {
        let mut key: Vec<i64> = stand.iter().map(|&n| n as i64).collect();
        for t in tensors {
            key.extend([t.dtype() as i64, (t.address() % 16) as i64, t.rank() as i64]);
            key.extend(t.shape().iter().map(|&n| n as i64));
            key.extend(t.strides());
        }
        key
    }

    /// Whether it was rehearsed, and these tensors are on the device.
    pub(crate) fn knows(&self, key: &[i64], device: &Device, tensors: &[&Tensor]) -> bool {
        tensors.iter().all(|t| t.device() == device) && self.known.contains(key)
    }

    pub(crate) fn remember(&mut self, key: Vec<i64>) {
        if self.known.len() == Rehearsed::MOST {
            self.known.clear();
        }
        self.known.insert(key);
    }
}
