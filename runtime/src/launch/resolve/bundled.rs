//! Kernels of bundles: tries the offers for a problem in order.

use super::Resolved;
use super::load::load_offer;
use super::search::{End, Trial, search, unless_too_large, unless_too_much_scratch};
use crate::bundle::{Asked, Lack, Offer};
use crate::error::{LaunchError, Result, RuntimeError};
use crate::launch::parameters::gpu_body;
use crate::launch::problem::Problem;
use crate::select::complete;
use atlas_codegen::Machine;
use atlas_dsl::Config;
use std::sync::atomic::Ordering;

/// The first kernel of a bundle that runs a problem, or why there is none.
pub(super) fn from_bundles(
    problem: &Problem<'_>,
    given: Option<&Config>,
    machine: Machine,
) -> Result<std::result::Result<Resolved, Lack>> {
    let (def, device, spec) = (problem.def(), problem.device(), problem.spec());
    let bundles = device.bundles();
    if bundles.is_empty() {
        return Ok(Err(Lack::new()));
    }
    let config = given.map(|config| complete(def, config)).transpose()?;
    let compiles = device.compiles();
    // A record of these very sizes is newer than a bundle, and what it has can be compiled.
    if compiles && config.is_none() && device.records().has_exactly(def, spec, problem.dims(), Some(&machine)) {
        return Ok(Err(Lack::new()));
    }
    let asked = Asked {
        def,
        spec,
        dims: problem.dims(),
        machine,
        gpu: device.name(),
        config: config.as_ref(),
        only_exact: compiles,
    };
    let offers = match bundles.offers(&asked) {
        Ok(offers) => offers,
        Err(lack) => return Ok(Err(lack)),
    };
    let found = search(offers, config.is_some(), |offer| {
        let trial = load_offer(device, offer, machine)?.and_then(|loaded| gpu_body(device, problem.bound(), loaded));
        let memory_bytes = device.memory_bytes().filter(|_| config.is_none());
        let trial = trial.map(|trial| unless_too_much_scratch(trial, memory_bytes));
        trial.or_else(|e| match e {
            // This concerns one file's image; the next file may have one that fits.
            RuntimeError::Launch(e @ LaunchError::WrongAbi { .. }) => Ok(Trial::Refused(e.to_string())),
            e => unless_too_large(e, config.is_some()),
        })
    })?;
    device.counters().passed_over.fetch_add(found.passed.len() as u64, Ordering::Relaxed);
    let End::Found(offer, body) = found.end else {
        return Ok(Err(by_reason(found.passed)));
    };
    let passed_over = found.passed.into_iter().map(|(o, why)| (o.config, why)).collect();
    Ok(Ok(Resolved { config: offer.config, source: offer.source, body, passed_over }))
}

/// Why no kernel of the bundles runs, with each reason once.
fn by_reason(passed: Vec<(Offer, String)>) -> Lack {
    let mut reasons: Vec<(String, String, Vec<String>)> = Vec::new();
    for (offer, why) in passed {
        let (origin, config) = (offer.bundle.origin(), format!("`{}`", offer.config));
        match reasons.iter_mut().find(|(from, known, _)| from == origin && *known == why) {
            Some((_, _, configs)) => configs.push(config),
            None => reasons.push((origin.to_owned(), why, vec![config])),
        }
    }
    let one = |(origin, why, configs): (String, String, Vec<String>)| match configs.as_slice() {
        [config] => format!("the bundle {origin}, config {config}: {why}"),
        all => format!("the bundle {origin}, all {} configs that it has left: {why}", all.len()),
    };
    reasons.into_iter().map(one).collect()
}
