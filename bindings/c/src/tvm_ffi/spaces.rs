//! Workspaces that calls find again: one for each device, stream, rule and sizes.

use crate::status::{Failure, Result};
use atlas::device::{DeviceId, Stream};
use atlas::kernel::DType;
use atlas::ops::omega::OmegaRule;
use std::sync::{Arc, Mutex, PoisonError};

/// What a workspace is for.
#[derive(Clone, Copy, PartialEq)]
pub(super) struct SpaceKey {
    pub(super) device: DeviceId,
    /// The driver's handle of the stream: work on one stream is ordered.
    pub(super) stream: usize,
    pub(super) rule: OmegaRule,
    pub(super) sizes: [usize; 7],
    pub(super) dtype: DType,
}

struct Space<T> {
    key: SpaceKey,
    space: Arc<T>,
    /// Whether a graph may use it, for as long as the process lives.
    is_recorded: bool,
}

/// The workspaces that were used last.
pub(super) struct Spaces<T>(Mutex<Vec<Space<T>>>);

/// How many are kept that no graph uses. A program trains by few rules, on few lengths.
const MOST: usize = 16;

impl<T> Spaces<T> {
    pub(super) const fn new() -> Spaces<T> {
        Spaces(Mutex::new(Vec::new()))
    }

    /// The one of a key, made if it is not there. The one that was not used for longest goes then, when all work on its device has run.
    ///
    /// A graph gets the one of another stream for itself: nothing can be allocated while it is recorded, and it is recorded on a stream of
    /// its own. All work of that stream has run before a graph is launched, or is ordered with it by who launches it.
    pub(super) fn get(&self, key: SpaceKey, stream: &Stream, make: impl FnOnce() -> Result<T>) -> Result<Arc<T>> {
        let is_recorded = stream.is_recording()?;
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let found = all.iter().position(|of| of.key == key);
        let free = |of: &Space<T>| is_recorded && !of.is_recorded && SpaceKey { stream: key.stream, ..of.key } == key;
        let mut found = match found.or_else(|| all.iter().position(free)) {
            Some(at) => Space { key, ..all.remove(at) },
            None if is_recorded => {
                return Err(Failure::misuse(
                    "the first call of these sizes allocates, and a graph records it; call once before it is recorded",
                ));
            }
            None => {
                // One that a call on another thread has now may be in use after the device is waited for.
                let idle =
                    |of: &Space<T>| !of.is_recorded && of.key.device == key.device && Arc::strong_count(&of.space) == 1;
                let oldest = all.iter().position(idle);
                if let (true, Some(oldest)) = (all.iter().filter(|of| !of.is_recorded).count() >= MOST, oldest) {
                    stream.device().synchronize()?;
                    all.remove(oldest);
                }
                Space { key, space: Arc::new(make()?), is_recorded: false }
            }
        };
        found.is_recorded |= is_recorded;
        let space = found.space.clone();
        all.push(found);
        Ok(space)
    }
}
