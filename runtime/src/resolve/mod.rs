//! From a bound launch to a plan: the configs in order, past those that the compiler or the driver refuses and those
//! whose registers spill.

mod load;
mod search;

use self::load::{load, load_offer};
use self::search::{End, Trial, search};
use crate::bind::BoundLaunch;
use crate::bundle::{Asked, Lack, Offer};
use crate::class::class_text;
use crate::compile::HAS_COMPILER;
use crate::config_source::ConfigSource;
use crate::cost::programs;
use crate::error::{CompileFailure, Result, RuntimeError};
use crate::kernel::LoadedKernel;
use crate::launch_error::LaunchError;
use crate::plan::gpu_body;
use crate::plans::{Body, PassedOver, Plan};
use crate::problem::specialize;
use crate::select::{Ranking, complete, rank};
use atlas_codegen::Machine;
use atlas_dsl::ir::GridExtent;
use atlas_dsl::{Config, KernelDef, Schedule};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Makes the plan of a bound launch: chooses a config, compiles or finds its kernel, and loads it.
pub(crate) fn resolve(bound: &BoundLaunch, config: Option<&Config>) -> Result<Plan> {
    let def = bound.def();
    if bound.is_empty() {
        let (config, source) = match config {
            Some(config) => (complete(def, config)?, ConfigSource::Given),
            None => (def.default_config(), ConfigSource::Default),
        };
        return Ok(Plan {
            config,
            source,
            body: Body::Empty,
            passed_over: Vec::new(),
            tally: None,
            numbers: Box::default(),
        });
    }
    // The builder would refuse each config for it, one by one.
    if let Some((dim, _)) = def.dims.iter().zip(bound.dims()).find(|(dim, size)| dim.whole && **size == 0) {
        return Err(LaunchError::EmptyDim { kernel: def.name, dim: dim.name }.into());
    }
    let Some(machine) = bound.device().machine() else {
        return resolve_cpu(bound, &rank(bound, config)?, ConfigSource::Default);
    };
    let plan = match bundled(bound, config, machine)? {
        Ok(plan) if plan.local_bytes() > 0 && config.is_none() && bound.device().compiles() => {
            unless_compiled_better(bound, plan, machine)?
        }
        Ok(plan) => plan,
        Err(lack) => resolve_gpu(bound, &rank(bound, config)?, machine, lack)?,
    };
    let counters = bound.device().counters();
    match plan.source {
        ConfigSource::Record => counters.by_record.fetch_add(1, Ordering::Relaxed),
        ConfigSource::Nearby => counters.by_nearby.fetch_add(1, Ordering::Relaxed),
        ConfigSource::CostModel => counters.by_model.fetch_add(1, Ordering::Relaxed),
        ConfigSource::Bundle => counters.by_bundle.fetch_add(1, Ordering::Relaxed),
        ConfigSource::Region => counters.by_region.fetch_add(1, Ordering::Relaxed),
        ConfigSource::Given | ConfigSource::Default | ConfigSource::Cpu => 0,
    };
    Ok(plan)
}

/// A bundle's plan whose registers spill, unless what can be compiled spills less.
fn unless_compiled_better(bound: &BoundLaunch, bundled: Plan, machine: Machine) -> Result<Plan> {
    let bytes = bundled.local_bytes();
    match resolve_gpu(bound, &rank(bound, None)?, machine, Lack::new()) {
        Ok(mut compiled) if compiled.local_bytes() < bytes => {
            compiled.passed_over.insert(0, (bundled.config, search::spills(bytes)));
            bound.device().counters().passed_over.fetch_add(1, Ordering::Relaxed);
            Ok(compiled)
        }
        Ok(_) | Err(RuntimeError::Compile(_)) => Ok(bundled),
        Err(e) => Err(e),
    }
}

/// The plan that a bundle has for a launch, or why none has.
fn bundled(bound: &BoundLaunch, config: Option<&Config>, machine: Machine) -> Result<std::result::Result<Plan, Lack>> {
    let (def, device) = (bound.def(), bound.device());
    let bundles = device.bundles();
    if bundles.is_empty() {
        return Ok(Err(Lack::new()));
    }
    let config = config.map(|config| complete(def, config)).transpose()?;
    let (spec, compiles) = (specialize(bound), device.compiles());
    // A record of these very sizes is newer than a bundle, and what it has can be compiled.
    if compiles && config.is_none() && device.records().has_exactly(def, &spec, bound.dims()) {
        return Ok(Err(Lack::new()));
    }
    let asked = Asked {
        def,
        spec: &spec,
        dims: bound.dims(),
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
        with_body(bound, load_offer(device, offer, machine)?).or_else(|e| match e {
            // Of the file's own image; the next file may have one that fits.
            RuntimeError::Launch(e @ LaunchError::WrongAbi { .. }) => Ok(Trial::Refused(e.to_string())),
            e => passed(e, config.is_some()),
        })
    })?;
    let counters = device.counters();
    counters.passed_over.fetch_add(found.passed.len() as u64, Ordering::Relaxed);
    let End::Found(offer, body) = found.end else {
        return Ok(Err(by_reason(found.passed)));
    };
    let passed_over = found.passed.into_iter().map(|(o, why)| (o.config, why)).collect();
    Ok(Ok(Plan { config: offer.config, source: offer.source, body, passed_over, tally: None, numbers: Box::default() }))
}

/// Why nothing of the bundles runs, each reason once.
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

/// What a launch needs of a loaded kernel.
fn with_body(bound: &BoundLaunch, trial: Trial<Arc<LoadedKernel>>) -> Result<Trial<Body>> {
    Ok(match trial {
        Trial::Loaded(kernel, bytes) => Trial::Loaded(gpu_body(bound, kernel)?, bytes),
        Trial::Refused(reason) => Trial::Refused(reason),
        Trial::NoCompiler => Trial::NoCompiler,
        Trial::Failed(message) => Trial::Failed(message),
    })
}

/// A config whose tiles make more programs than a grid has is passed over, unless the caller gave it.
fn passed(error: RuntimeError, given: bool) -> Result<Trial<Body>> {
    match error {
        RuntimeError::Launch(e @ LaunchError::GridTooLarge { .. }) if !given => Ok(Trial::Refused(e.to_string())),
        e => Err(e),
    }
}

/// The plan of a launch in the interpreter.
fn resolve_cpu(bound: &BoundLaunch, ranking: &Ranking, source: ConfigSource) -> Result<Plan> {
    let Some(point) = ranking.points().next() else {
        return Err(no_config(bound.def(), ranking, Vec::new()).into());
    };
    let kernel = ranking.space.kernel(point)?;
    let grid: Vec<GridExtent> = kernel.grid.iter().map(|a| a.extent).collect();
    let body = match programs(&grid, bound.dims()) {
        0 => Body::Empty,
        _ => Body::Cpu { kernel: Arc::new(kernel), dims: bound.dims().to_vec() },
    };
    let config = ranking.space.points[point].config.clone();
    let source = if ranking.source == ConfigSource::Given { ConfigSource::Given } else { source };
    Ok(Plan { config, source, body, passed_over: Vec::new(), tally: None, numbers: Box::default() })
}

fn resolve_gpu(bound: &BoundLaunch, ranking: &Ranking, machine: Machine, lack: Lack) -> Result<Plan> {
    let (def, space) = (bound.def(), &ranking.space);
    let sources = std::iter::once(ranking.source).chain(std::iter::repeat_with(|| ranking.behind()));
    let candidates = ranking.points().zip(sources);
    let candidates = candidates.chain(ranking.fallback().map(|point| (point, ConfigSource::Default)));
    let given = ranking.source == ConfigSource::Given;
    let config = |point: usize| space.points[point].config.clone();
    let mut too_large = None;
    let found = search(candidates, given, |&(point, _)| {
        let trial = with_body(bound, load(bound.device(), space, point, machine)?);
        trial.or_else(|e| {
            too_large = Some(e.clone());
            passed(e, given)
        })
    })?;
    let passed_over: Vec<PassedOver> = found.passed.into_iter().map(|((p, _), why)| (config(p), why)).collect();
    bound.device().counters().passed_over.fetch_add(passed_over.len() as u64, Ordering::Relaxed);
    match found.end {
        End::Found((point, source), body) => {
            Ok(Plan { config: config(point), source, body, passed_over, tally: None, numbers: Box::default() })
        }
        End::Nothing => Err(too_large.unwrap_or_else(|| no_config(def, ranking, passed_over).into())),
        End::NoCompiler if bound.device().falls_back_to_cpu() => {
            bound.device().counters().by_cpu.fetch_add(1, Ordering::Relaxed);
            resolve_cpu(bound, ranking, ConfigSource::Cpu)
        }
        End::NoCompiler => Err(no_compiler(bound, &lack, passed_over).into()),
        End::Failed((point, _), message) => {
            let message = format!("config `{}` for {machine}: {message}", config(point));
            let kernel = def.name.to_owned();
            Err(CompileFailure { kernel, message, refused: passed_over, compiler_present: true }.into())
        }
    }
}

/// Why nothing runs where nothing may be compiled.
fn no_compiler(bound: &BoundLaunch, lack: &Lack, refused: Vec<PassedOver>) -> CompileFailure {
    let def = bound.def();
    let why = if HAS_COMPILER { "this device may not compile" } else { "this build has no compiler" };
    let lack = if lack.is_empty() { String::new() } else { format!("; {}", lack.join("; ")) };
    let build = if HAS_COMPILER { "let it compile" } else { "build with the feature `jit` (needs LLVM 22)" };
    let message = format!(
        "{why}, and the kernel store has no kernel for this problem{lack}; {build}, ship a bundle that has it \
         (`atlas bundle {}`{}), or use Device::cpu()",
        asked_for(bound),
        by_file(bound)
    );
    CompileFailure { kernel: def.name.to_owned(), message, refused, compiler_present: false }
}

/// What a bundle of this problem is made with: `softmax --dims N=8,D=64 --dtype T=bf16`.
fn asked_for(bound: &BoundLaunch) -> String {
    let def = bound.def();
    let dims: Vec<String> = def.dims.iter().zip(bound.dims()).map(|(d, n)| format!("{}={n}", d.name)).collect();
    let types = class_text(def, &specialize(bound)).0.replace(' ', ",");
    let types = if types.is_empty() { types } else { format!(" --dtype {types}") };
    format!("{} --dims {}{types}", def.name, dims.join(","))
}

/// Of views a command line cannot tell.
fn by_file(bound: &BoundLaunch) -> String {
    match class_text(bound.def(), &specialize(bound)).1 {
        usual if usual.is_empty() => String::new(),
        views => format!(
            " for tensors that are no views; this launch has views, for which `--sizes FILE` has `tensors = \"{views}\"`"
        ),
    }
}

fn no_config(def: &KernelDef, ranking: &Ranking, mut refused: Vec<PassedOver>) -> CompileFailure {
    let selection = ranking.selection();
    let ranked = selection.refused().filter(|(config, _)| !refused.iter().any(|(c, _)| c == *config));
    let ranked: Vec<PassedOver> = ranked.map(|(config, reason)| (config.clone(), reason.to_owned())).collect();
    refused.extend(ranked);
    // Where several are refused alike, the tune space is not the cause.
    let is_alike = refused.len() > 1 && refused.iter().all(|(_, reason)| *reason == refused[0].1);
    // What no instruction does, no config makes one do; and without tile sizes all configs are of one kernel.
    let is_one_kernel = def.tune.iter().all(|knob| Schedule::KEYS.contains(&knob.name));
    let is_general = |(_, reason): &PassedOver| {
        ["has no GPU lowering", "has no instruction that multiplies"].iter().any(|what| reason.contains(what))
            || is_one_kernel && !reason.contains("error[ATL302]")
    };
    let message = match selection.source {
        ConfigSource::Given => "the given config cannot run this problem here; give another, or none",
        // Kernels that `fuse!` cannot bring together.
        _ if !refused.is_empty()
            && refused.iter().all(|(_, reason)| reason.contains("[ATL230]") || reason.contains("[ATL231]")) =>
        {
            refused.truncate(1);
            "these kernels do not become one, whatever the config: launch them one after the other, or fuse fewer"
        }
        _ if !refused.is_empty() && refused.iter().all(|(_, reason)| reason.contains("error[ATL1")) => {
            refused.truncate(1);
            "the kernel is none for these element types and constants, whatever the config"
        }
        _ if is_alike => {
            refused.truncate(1);
            "this problem cannot run here, whatever the config: all are refused for one reason"
        }
        _ if !refused.is_empty() && refused.iter().all(is_general) => {
            refused.truncate(1);
            "this problem cannot run here, whatever the config"
        }
        _ if refused.len() == 1 => {
            "its only config is not legal for this problem; add others to its `tune` if the reason is of the config, or use another kernel"
        }
        _ => {
            "no config is legal for this problem; add others to its `tune`, by what each was refused for, or use another kernel"
        }
    };
    CompileFailure { kernel: def.name.to_owned(), message: message.to_owned(), refused, compiler_present: true }
}
