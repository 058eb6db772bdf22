//! The first of several configs that loads and does not spill.

use crate::device::LaunchBody;
use crate::error::{LaunchError, Result, RuntimeError};
use crate::gpu::ScratchBytes;

/// The most spilling kernels to load before the one that spills least is accepted: each costs a compilation.
const MOST_SPILLING: usize = 8;

/// The result for one config.
pub(super) enum Trial<T> {
    /// Loaded, with this many bytes of local memory per thread.
    Loaded(T, u32),
    /// Refused, but another config may work.
    Refused(String),
    /// This build cannot compile it.
    NoCompiler,
    /// The compiler failed.
    Failed(String),
}

impl<T> Trial<T> {
    /// Maps a loaded kernel.
    pub(super) fn and_then<U>(self, f: impl FnOnce(T) -> Result<U>) -> Result<Trial<U>> {
        Ok(match self {
            Trial::Loaded(kernel, bytes) => Trial::Loaded(f(kernel)?, bytes),
            Trial::Refused(reason) => Trial::Refused(reason),
            Trial::NoCompiler => Trial::NoCompiler,
            Trial::Failed(message) => Trial::Failed(message),
        })
    }
}

/// A config whose tiles give more programs or CTAs than a grid may have is passed over, unless the caller gave it.
pub(super) fn unless_too_large<T>(error: RuntimeError, given: bool) -> Result<Trial<T>> {
    match error {
        RuntimeError::Launch(e @ (LaunchError::GridTooLarge { .. } | LaunchError::TooManyCtas { .. })) if !given => {
            Ok(Trial::Refused(e.to_string()))
        }
        e => Err(e),
    }
}

/// A config whose scratch memory would take more than half of the device's is passed over.
pub(super) fn unless_too_much_scratch(trial: Trial<LaunchBody>, memory_bytes: Option<u64>) -> Trial<LaunchBody> {
    let Trial::Loaded(LaunchBody::Gpu(gpu), bytes) = trial else { return trial };
    let needs = gpu.scratch.map_or(0, ScratchBytes::total);
    match memory_bytes {
        Some(has) if needs > has / 2 => Trial::Refused(format!("it needs {needs} bytes of scratch memory of {has}")),
        _ => Trial::Loaded(LaunchBody::Gpu(gpu), bytes),
    }
}

/// The result for all configs.
pub(super) struct Search<C, T> {
    pub(super) end: End<C, T>,
    /// Refused, or passed over for a config that does not spill.
    pub(super) passed: Vec<(C, String)>,
}

pub(super) enum End<C, T> {
    Found(C, T),
    Nothing,
    NoCompiler,
    Failed(C, String),
}

/// The first config that loads without spilling, or, if there is none, the one that spills least. A spilling kernel
/// that the caller asked for is kept.
pub(super) fn search<C, T>(
    candidates: impl Iterator<Item = C>,
    given: bool,
    mut load: impl FnMut(&C) -> Result<Trial<T>>,
) -> Result<Search<C, T>> {
    let mut passed: Vec<(C, String)> = Vec::new();
    let mut least: Option<(C, T, u32)> = None;
    let (mut spilling, mut no_compiler) = (0, false);
    for c in candidates {
        let (kernel, bytes) = match load(&c)? {
            Trial::Loaded(kernel, bytes) => (kernel, bytes),
            Trial::Refused(reason) => {
                passed.push((c, reason));
                continue;
            }
            // Another config may be compiled already.
            Trial::NoCompiler => {
                no_compiler = true;
                continue;
            }
            // A spilling kernel still runs.
            Trial::Failed(_) if least.is_some() => break,
            Trial::Failed(message) => return Ok(Search { end: End::Failed(c, message), passed }),
        };
        if bytes == 0 || given {
            passed.extend(least.map(|(c, _, bytes)| (c, spills(bytes))));
            return Ok(Search { end: End::Found(c, kernel), passed });
        }
        spilling += 1;
        match &least {
            Some((_, _, fewer)) if *fewer <= bytes => passed.push((c, spills(bytes))),
            _ => passed.extend(least.replace((c, kernel, bytes)).map(|(c, _, bytes)| (c, spills(bytes)))),
        }
        if spilling == MOST_SPILLING {
            break;
        }
    }
    let nothing = if no_compiler { End::NoCompiler } else { End::Nothing };
    let end = least.map_or(nothing, |(c, kernel, _)| End::Found(c, kernel));
    Ok(Search { end, passed })
}

/// The reason for passing over a config that spills.
pub(super) fn spills(bytes: u32) -> String {
    format!("its registers spill {bytes} bytes per thread")
}

#[cfg(test)]
mod tests {
    use super::*;

    type Passed = Vec<(usize, String)>;

    /// The index of the chosen config and its kernel, and those that were passed over.
    fn found(given: bool, trials: Vec<Trial<char>>) -> (Option<(usize, char)>, Passed) {
        let mut trials: Vec<Option<Trial<char>>> = trials.into_iter().map(Some).collect();
        let search = search(0..trials.len(), given, |&i| Ok(trials[i].take().expect("one trial each"))).unwrap();
        let found = match search.end {
            End::Found(c, kernel) => Some((c, kernel)),
            End::Nothing | End::NoCompiler | End::Failed(..) => None,
        };
        (found, search.passed)
    }

    #[test]
    fn after_a_refusal_the_next_config_is_tried() {
        let refused = || Trial::Refused("too large".to_owned());
        let (config, passed) = found(false, vec![refused(), refused(), Trial::Loaded('c', 0), Trial::Loaded('d', 0)]);
        assert_eq!(config, Some((2, 'c')));
        assert_eq!(passed, [(0, "too large".to_owned()), (1, "too large".to_owned())]);
        assert_eq!(found(false, vec![refused()]).0, None);
    }

    #[test]
    fn a_kernel_that_spills_is_left_for_one_that_does_not() {
        let (config, passed) = found(false, vec![Trial::Loaded('a', 48), Trial::Loaded('b', 0)]);
        assert_eq!(config, Some((1, 'b')));
        assert_eq!(passed, [(0, "its registers spill 48 bytes per thread".to_owned())]);
        let all = [48, 16, 32].map(|bytes| Trial::Loaded('s', bytes)).into();
        let (config, passed) = found(false, all);
        assert_eq!((config, passed.len()), (Some((1, 's')), 2));
    }

    #[test]
    fn a_given_config_stays_though_it_spills() {
        assert_eq!(found(true, vec![Trial::Loaded('a', 48), Trial::Loaded('b', 0)]).0, Some((0, 'a')));
    }

    #[test]
    fn what_spills_runs_where_nothing_else_can_be_compiled() {
        assert_eq!(found(false, vec![Trial::Loaded('a', 48), Trial::NoCompiler]).0, Some((0, 'a')));
        assert_eq!(found(false, vec![Trial::NoCompiler, Trial::Loaded('b', 0)]).0, Some((1, 'b')));
        assert_eq!(found(false, vec![Trial::NoCompiler]).0, None);
        assert_eq!(found(false, vec![Trial::Loaded('a', 8), Trial::Failed("defect".to_owned())]).0, Some((0, 'a')));
        let many = (0..100).map(|i| Trial::Loaded('s', 1000 - i)).collect();
        assert_eq!(found(false, many).0, Some((MOST_SPILLING - 1, 's')));
    }

    #[test]
    fn an_error_that_is_no_refusal_ends_the_search() {
        let fault = || crate::DriverFailure {
            call: "cuModuleLoadDataEx",
            device: String::new(),
            status: 700,
            message: String::new(),
        };
        let mut tried = 0;
        let search: Result<Search<u32, ()>> = search([1, 2].into_iter(), false, |_| {
            tried += 1;
            Err(fault().into())
        });
        assert!(search.is_err() && tried == 1);
    }
}
