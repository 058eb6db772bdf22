//! From a problem to a loaded kernel: bundles first, then configs in order, skipping those that the compiler or the
//! driver refuses and those whose registers spill.
//!
//! | file | holds |
//! |---|---|
//! | `bundled`, `compiled` | the two sources of kernels, each with its candidates in order |
//! | `search` | the first candidate that loads and does not spill |
//! | `load` | loads one candidate: from this process, from the store, from a bundle, or compiled now |
//! | `failures` | why no kernel runs |

mod bundled;
mod compiled;
mod failures;
mod load;
mod search;

use self::bundled::from_bundles;
use self::compiled::{compile_best, on_cpu};
use super::choose::rank;
use super::problem::Problem;
use crate::bundle::Lack;
use crate::device::{LaunchBody, PassedOver};
use crate::error::{LaunchError, Result, RuntimeError};
use crate::select::{ConfigSource, complete};
use atlas_codegen::Machine;
use atlas_dsl::Config;
use std::sync::atomic::Ordering;

/// The resolved body of a launch, and how it was chosen.
pub(super) struct Resolved {
    pub(super) config: Config,
    pub(super) source: ConfigSource,
    pub(super) body: LaunchBody,
    /// Configs that ranked before this one.
    pub(super) passed_over: Vec<PassedOver>,
}

/// Chooses a config for a problem, compiles or finds its kernel, and loads it. With a caller's config, no other is
/// tried.
pub(super) fn resolve(problem: &Problem<'_>, given: Option<&Config>) -> Result<Resolved> {
    let def = problem.def();
    if problem.bound().is_empty() {
        let (config, source) = match given {
            Some(config) => (complete(def, config)?, ConfigSource::Given),
            None => (def.default_config(), ConfigSource::Default),
        };
        return Ok(Resolved { config, source, body: LaunchBody::Empty, passed_over: Vec::new() });
    }
    // The builder would refuse every config for it, one by one.
    if let Some((dim, _)) = def.dims.iter().zip(problem.dims()).find(|(dim, size)| dim.whole && **size == 0) {
        return Err(LaunchError::EmptyDim { kernel: def.name, dim: dim.name }.into());
    }
    let Some(machine) = problem.device().machine() else {
        return on_cpu(problem, &rank(problem, given)?, ConfigSource::Default);
    };
    let resolved = match from_bundles(problem, given, machine)? {
        Ok(bundled) if bundled.body.local_bytes() > 0 && given.is_none() && problem.device().compiles() => {
            unless_compiled_better(problem, bundled, machine)?
        }
        Ok(bundled) => bundled,
        Err(lack) => compile_best(problem, &rank(problem, given)?, machine, &lack)?,
    };
    count(problem, resolved.source);
    Ok(resolved)
}

/// A bundle's kernel whose registers spill, unless a compiled kernel spills less.
fn unless_compiled_better(problem: &Problem<'_>, bundled: Resolved, machine: Machine) -> Result<Resolved> {
    let bytes = bundled.body.local_bytes();
    match compile_best(problem, &rank(problem, None)?, machine, &Lack::new()) {
        Ok(mut compiled) if compiled.body.local_bytes() < bytes => {
            compiled.passed_over.insert(0, (bundled.config, search::spills(bytes)));
            problem.device().counters().passed_over.fetch_add(1, Ordering::Relaxed);
            Ok(compiled)
        }
        Ok(_) | Err(RuntimeError::Compile(_)) => Ok(bundled),
        Err(e) => Err(e),
    }
}

/// Counts how the config of a problem was chosen.
fn count(problem: &Problem<'_>, source: ConfigSource) {
    let counters = problem.device().counters();
    match source {
        ConfigSource::Record => counters.by_record.fetch_add(1, Ordering::Relaxed),
        ConfigSource::Nearby => counters.by_nearby.fetch_add(1, Ordering::Relaxed),
        ConfigSource::CostModel => counters.by_model.fetch_add(1, Ordering::Relaxed),
        ConfigSource::Bundle => counters.by_bundle.fetch_add(1, Ordering::Relaxed),
        ConfigSource::Region => counters.by_region.fetch_add(1, Ordering::Relaxed),
        ConfigSource::Given | ConfigSource::Default | ConfigSource::Cpu => 0,
    };
}
