//! Workspaces that calls find again: one for each device, stream, rule and sizes.

use crate::status::{Failure, Result};
use atlas::Device;
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
    /// The recording of a graph that may use it, for as long as the process lives.
    recorded: Option<u64>,
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
    /// A graph gets one for itself that a call has left, of any stream: nothing can be allocated while it is recorded. All work of that stream
    /// has run before a graph is launched, or is ordered with it by who launches it. If there is none, it shares that of another graph which
    /// was recorded on its stream; who launches both keeps one behind the other. A call never gets one of a graph.
    pub(super) fn get(&self, key: SpaceKey, stream: &Stream, make: impl FnOnce() -> Result<T>) -> Result<Arc<T>> {
        let recording = stream.recording()?;
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let position = |fits: &dyn Fn(&Space<T>) -> bool| all.iter().position(fits);
        let found = position(&|of| of.key == key && of.recorded == recording);
        let found = match recording {
            None => found,
            Some(_) => {
                let is_free = |of: &Space<T>| of.recorded.is_none() && SpaceKey { stream: key.stream, ..of.key } == key;
                // Always the same one, for all calls of the recording.
                let shared =
                    || all.iter().enumerate().filter(|(_, of)| of.key == key).min_by_key(|(_, of)| of.recorded);
                found.or_else(|| position(&is_free)).or_else(|| shared().map(|(at, _)| at))
            }
        };
        let found = match found {
            // One that is shared stays that of the first graph.
            Some(at) => {
                let of = all.remove(at);
                Space { key, recorded: of.recorded.or(recording), ..of }
            }
            None if recording.is_some() => {
                return Err(Failure::misuse(
                    "the first call of these sizes allocates, and a graph records it; call once before it is recorded",
                ));
            }
            None => {
                // One that a call on another thread has now may be in use after the device is waited for.
                let idle = |of: &Space<T>| {
                    of.recorded.is_none() && of.key.device == key.device && Arc::strong_count(&of.space) == 1
                };
                let oldest = all.iter().position(idle);
                if let (true, Some(oldest)) = (all.iter().filter(|of| of.recorded.is_none()).count() >= MOST, oldest) {
                    stream.device().synchronize()?;
                    all.remove(oldest);
                }
                Space { key, space: Arc::new(make()?), recorded: None }
            }
        };
        let space = found.space.clone();
        all.push(found);
        Ok(space)
    }

    /// Drops those that no graph uses and no call has, when all work on their devices has run, and returns their memory to the system.
    pub(super) fn clear(&self, device_of: impl Fn(&T) -> &Device) -> Result<()> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_idle = |of: &Space<T>| of.recorded.is_none() && Arc::strong_count(&of.space) == 1;
        let mut devices: Vec<Device> = Vec::new();
        for of in all.iter().filter(|of| is_idle(of)) {
            let device = device_of(&of.space);
            if devices.iter().all(|known| known.id() != device.id()) {
                device.synchronize()?;
                devices.push(device.clone());
            }
        }
        all.retain(|of| !is_idle(of));
        drop(all);
        devices.iter().try_for_each(|device| Ok(device.release_memory()?))
    }
}

#[cfg(test)]
mod tests {
    use super::{Arc, MOST, Result, SpaceKey, Spaces};
    use atlas::Device;
    use atlas::kernel::DType;
    use atlas::ops::omega::{Chunking, OmegaRule};

    /// The key of a workspace on a stream, for sequences of `tokens` tokens.
    fn key(stream: usize, tokens: usize) -> SpaceKey {
        let rule = OmegaRule::omega_net(Chunking::new(4, 3));
        SpaceKey { device: Device::cpu().id(), stream, rule, sizes: [1, 1, tokens, 8, 8, 16, 0], dtype: DType::F32 }
    }

    fn text<T>(found: Result<T>) -> String {
        found.err().map(|failure| failure.text().to_owned()).unwrap_or_default()
    }

    #[test]
    fn a_workspace_is_made_once_and_the_oldest_goes() {
        let spaces: Spaces<usize> = Spaces::new();
        let stream = Device::cpu().default_stream();
        let get = |stream_of: usize, tokens: usize, made: usize| {
            spaces.get(key(stream_of, tokens), &stream, || Ok(made)).unwrap_or_else(|f| panic!("{}", f.text()))
        };
        assert_eq!((*get(0, 9, 1), *get(0, 9, 2), *get(1, 9, 3), *get(0, 8, 4)), (1, 1, 3, 4));
        // One that a call has stays, though it is the oldest.
        let used = get(0, 9, 5);
        (0..2 * MOST).for_each(|at| drop(get(0, 100 + at, 6)));
        assert_eq!((*get(0, 9, 7), *get(1, 9, 8), *get(0, 8, 9)), (1, 8, 9));
        assert_eq!(spaces.0.lock().unwrap().len(), MOST);
        drop(used);
        (0..MOST).for_each(|at| drop(get(0, 200 + at, 10)));
        assert_eq!(*get(0, 9, 11), 11);
        // What cannot be made leaves nothing behind.
        let failed = spaces.get(key(5, 5), &stream, || Err(super::Failure::misuse("no room")));
        assert!(text(failed).contains("no room"));
        assert_eq!(*get(5, 5, 12), 12);
    }

    #[test]
    fn a_graph_has_a_workspace_for_itself() {
        let spaces: Spaces<usize> = Spaces::new();
        let stream = Device::cpu().default_stream();
        let made = spaces.get(key(0, 9), &stream, || Ok(1)).ok();
        let mut recorded = Vec::new();
        let graph = stream.capture(|recording| {
            for (stream, tokens) in [(7, 9), (7, 9), (8, 9), (7, 8)] {
                recorded.push(spaces.get(key(stream, tokens), recording, || unreachable!("nothing is made")));
            }
            Ok(())
        });
        assert!(graph.is_ok());
        let [first, again, other, unknown] = <[_; 4]>::try_from(recorded).unwrap_or_else(|_| unreachable!());
        let is_made = |found: Result<Arc<usize>>| Arc::ptr_eq(&found.ok().unwrap(), made.as_ref().unwrap());
        assert!(is_made(first) && is_made(again));
        for refused in [other, unknown] {
            assert!(text(refused).contains("call once before it is recorded"));
        }
        // Other calls get another one, on the stream of the graph too, and that of the graph stays.
        drop(made);
        (0..2 * MOST).for_each(|at| drop(spaces.get(key(0, 9 + at), &stream, || Ok(2))));
        assert_eq!(spaces.get(key(0, 9), &stream, || Ok(3)).ok().as_deref(), Some(&3));
        assert_eq!(spaces.get(key(7, 9), &stream, || Ok(4)).ok().as_deref(), Some(&4));
    }

    /// Records a call on stream 7, with another stream if `also`, and gives which workspaces it got.
    fn recorded(spaces: &Spaces<usize>, also: Option<usize>) -> Vec<Option<usize>> {
        let mut found = Vec::new();
        let graph = Device::cpu().default_stream().capture(|recording| {
            for stream in [7, 7].into_iter().chain(also) {
                found
                    .push(spaces.get(key(stream, 9), recording, || unreachable!("nothing is made")).ok().map(|of| *of));
            }
            Ok(())
        });
        assert!(graph.is_ok());
        found
    }

    #[test]
    fn two_graphs_have_one_each_if_a_call_was_between_them() {
        let (spaces, stream) = (Spaces::new(), Device::cpu().default_stream());
        let call = |made: usize| drop(spaces.get(key(0, 9), &stream, || Ok(made)).ok());
        call(1);
        assert_eq!(recorded(&spaces, None), [Some(1); 2]);
        call(2);
        assert_eq!(recorded(&spaces, None), [Some(2); 2]);
        // Without a call, a graph shares one of its stream, and has none on another stream.
        let shared = recorded(&spaces, Some(8));
        assert!([Some(1), Some(2)].contains(&shared[0]) && shared[1] == shared[0] && shared[2].is_none(), "{shared:?}");
    }

    #[test]
    fn what_nobody_uses_is_dropped() {
        let (spaces, device) = (Spaces::<Device>::new(), Device::cpu());
        let stream = device.default_stream();
        let call = |tokens: usize| spaces.get(key(0, tokens), &stream, || Ok(Device::cpu())).ok();
        (call(7), call(8)).0.unwrap();
        let used = call(9);
        let graph = stream.capture(|recording| {
            assert!(spaces.get(key(0, 7), recording, || unreachable!()).is_ok());
            Ok(())
        });
        assert!(graph.is_ok() && spaces.clear(|device| device).is_ok());
        let left = || spaces.0.lock().unwrap().iter().map(|of| of.key.sizes[2]).collect::<Vec<_>>();
        assert_eq!(left(), [9, 7]);
        drop(used);
        assert!(spaces.clear(|device| device).is_ok());
        assert_eq!(left(), [7]);
    }
}
