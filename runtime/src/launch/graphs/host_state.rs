//! State of an op that lives on the host and moves with its launches, such as the place of a stream of tokens.
//!
//! A graph repeats launches, and not what the host did between them. So a recording that leaves such state elsewhere than it found it would
//! repeat launches of one place at others. It fails, and the state goes back to where it was, because nothing of what moved it
//! has run.

use crate::device::Device;
use crate::launch::recording::{MovedState, moved};
use std::sync::{Arc, Mutex, PoisonError};

/// State of an op on the host, which its launches depend on and move.
#[derive(Debug, Default)]
pub struct HostState<S>(Arc<Mutex<S>>);

impl<S: Copy + PartialEq + Send + 'static> HostState<S> {
    /// State of an op that has launched nothing yet.
    pub fn new(state: S) -> HostState<S> {
        HostState(Arc::new(Mutex::new(state)))
    }

    /// What it is now.
    pub fn get(&self) -> S {
        read(&self.0)
    }

    /// Moves it, for launches of `op` on a device. If this thread records a graph of the device, the recording fails
    /// ([`LaunchError::NotRepeatable`](crate::LaunchError::NotRepeatable)) unless the state is at its end what it is now; and with each recording
    /// that fails, it goes back to that.
    pub fn set(&self, device: &Device, op: &'static str, state: S) {
        self.to(device, op, state, false);
    }

    /// Moves it to where it does not depend on what it was. A recording that begins with this may be run again, wherever it ends.
    pub fn restart(&self, device: &Device, op: &'static str, state: S) {
        self.to(device, op, state, true);
    }

    fn to(&self, device: &Device, op: &'static str, state: S, is_start: bool) {
        moved(device, || Box::new(Moved { op, of: self.0.clone(), was: self.get(), is_start }));
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = state;
    }
}

fn read<S: Copy>(state: &Mutex<S>) -> S {
    *state.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Moved<S> {
    op: &'static str,
    of: Arc<Mutex<S>>,
    was: S,
    /// Whether it moved to a start, wherever it was.
    is_start: bool,
}

impl<S: Copy + PartialEq + Send> MovedState for Moved<S> {
    fn op(&self) -> &'static str {
        self.op
    }

    fn address(&self) -> usize {
        Arc::as_ptr(&self.of).addr()
    }

    fn is_back(&self) -> bool {
        self.is_start || self.is_unchanged()
    }

    fn is_unchanged(&self) -> bool {
        read(&self.of) == self.was
    }

    fn go_back(&self) {
        *self.of.lock().unwrap_or_else(PoisonError::into_inner) = self.was;
    }
}
