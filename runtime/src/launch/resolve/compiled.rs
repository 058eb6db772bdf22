//! Kernels of the tune space: its legal configs in order, each loaded from the store or compiled now; and the config
//! that the CPU runs.

use super::Resolved;
use super::failures::{no_compiler, no_config};
use super::load::load;
use super::search::{End, search, unless_too_large, unless_too_much_scratch};
use crate::bundle::Lack;
use crate::cost::programs;
use crate::device::{LaunchBody, PassedOver};
use crate::error::{CompileFailure, Result};
use crate::launch::parameters::gpu_body;
use crate::launch::problem::Problem;
use crate::select::{ConfigSource, Ranking};
use atlas_codegen::Machine;
use atlas_dsl::ir::GridExtent;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The best config of a ranking whose kernel loads and does not spill. `lack` says why no bundle has one.
pub(super) fn compile_best(
    problem: &Problem<'_>,
    ranking: &Ranking,
    machine: Machine,
    lack: &Lack,
) -> Result<Resolved> {
    let (def, device, space) = (problem.def(), problem.device(), &ranking.space);
    let sources = std::iter::once(ranking.source).chain(std::iter::repeat_with(|| ranking.behind()));
    let candidates = ranking.points().zip(sources);
    let candidates = candidates.chain(ranking.fallback().map(|point| (point, ConfigSource::Default)));
    let given = ranking.source == ConfigSource::Given;
    let config = |point: usize| space.points[point].config.clone();
    let mut too_large = None;
    let found = search(candidates, given, |&(point, _)| {
        let trial = load(device, space, point, machine)?.and_then(|loaded| gpu_body(device, problem.bound(), loaded));
        let trial =
            trial.map(|trial| if given { trial } else { unless_too_much_scratch(trial, device.memory_bytes()) });
        trial.or_else(|e| {
            too_large = Some(e.clone());
            unless_too_large(e, given)
        })
    })?;
    let passed_over: Vec<PassedOver> = found.passed.into_iter().map(|((p, _), why)| (config(p), why)).collect();
    device.counters().passed_over.fetch_add(passed_over.len() as u64, Ordering::Relaxed);
    match found.end {
        End::Found((point, source), body) => Ok(Resolved { config: config(point), source, body, passed_over }),
        End::Nothing => Err(too_large.unwrap_or_else(|| no_config(def, ranking, passed_over).into())),
        End::NoCompiler if device.falls_back_to_cpu() => {
            device.counters().by_cpu.fetch_add(1, Ordering::Relaxed);
            on_cpu(problem, ranking, ConfigSource::Cpu)
        }
        End::NoCompiler => Err(no_compiler(problem, lack, passed_over).into()),
        End::Failed((point, _), message) => {
            let message = format!("config `{}` for {machine}: {message}", config(point));
            let kernel = def.name.to_owned();
            Err(CompileFailure { kernel, message, refused: passed_over, compiler_present: true }.into())
        }
    }
}

/// The launch in the interpreter: the first legal config.
pub(super) fn on_cpu(problem: &Problem<'_>, ranking: &Ranking, source: ConfigSource) -> Result<Resolved> {
    let Some(point) = ranking.points().next() else {
        return Err(no_config(problem.def(), ranking, Vec::new()).into());
    };
    let kernel = ranking.space.kernel(point)?;
    let grid: Vec<GridExtent> = kernel.grid.iter().map(|a| a.extent).collect();
    let body = match programs(&grid, problem.dims()) {
        0 => LaunchBody::Empty,
        _ => LaunchBody::Cpu { kernel: Arc::new(kernel), dims: problem.dims().to_vec() },
    };
    let config = ranking.space.points[point].config.clone();
    let source = if ranking.source == ConfigSource::Given { ConfigSource::Given } else { source };
    Ok(Resolved { config, source, body, passed_over: Vec::new() })
}
