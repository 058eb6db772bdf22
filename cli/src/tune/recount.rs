//! `atlas tune --recount`: replaces the cycles in records by those of the current cost model.

use super::super::jobs::Job;
use super::super::print::{say, tell};
use super::check::simulated;
use super::file;
use super::tuner::{cost, ir_of};
use anyhow::{Result, bail};
use atlas_codegen::Machine;
use atlas_dsl::Config;
use atlas_runtime::choose_for;
use atlas_runtime::records::{MODEL, TunedSize, machine_of, tune_hash};
use std::collections::HashMap;
use std::path::Path;

/// Rewrites all records of a folder. `usual` stands for GPUs that are not simulated ones. Sizes of kernels that have
/// changed are left unchanged, and configs that are no longer legal are removed.
pub(super) fn run(folder: &Path, usual: Machine) -> Result<bool> {
    let (mut sizes, mut counted, mut regrets) = (0, 0, Vec::new());
    for (path, record) in file::records(folder, "--recount")? {
        let (name, mut record) = (path.display().to_string(), record?);
        let machine = simulated(&record.gpu).unwrap_or(usual);
        let (kernel, tune) = (record.kernel.clone(), record.tune.clone());
        for size in &mut record.sizes {
            sizes += 1;
            let machine = machine_of(size, machine);
            match recount(&kernel, &tune, size, machine) {
                Ok(()) => {
                    counted += 1;
                    regrets.extend(regret(size));
                }
                Err(e) => tell!("{name}: {}: {e:#}", size.dims),
            }
        }
        file::replace(&path, &record.to_string())?;
    }
    say!("{counted} of {sizes} sizes counted by cost model {MODEL}");
    if !regrets.is_empty() {
        let mean = (regrets.iter().map(|r| r.ln()).sum::<f64>() / regrets.len() as f64).exp();
        let worst = regrets.iter().copied().fold(1.0, f64::max);
        say!(
            "the recorded configs that it ranks first take {mean:.3} of the best time on average, {worst:.2} at worst"
        );
    }
    Ok(counted == sizes)
}

/// The time of the config that the model ranks first, divided by the best time.
fn regret(size: &TunedSize) -> Option<f64> {
    let first = size.configs.iter().min_by(|a, b| a.cycles.total_cmp(&b.cycles))?;
    let best = size.configs.iter().map(|t| t.us).fold(f64::INFINITY, f64::min);
    Some(first.us / best).filter(|r| r.is_finite())
}

fn recount(kernel: &str, tune: &str, size: &mut TunedSize, machine: Machine) -> Result<()> {
    let job = Job::of_class(kernel, &size.types, &size.dims, &size.tensors, None)?;
    let config: Config = size.chosen().config.parse().map_err(anyhow::Error::msg)?;
    if tune != tune_hash(job.def) || ir_of(&job, &config)? != size.ir {
        bail!("the kernel has changed; measure it again");
    }
    let selection = choose_for(job.def, &job.spec, &job.dims, Some(machine));
    let cycles: HashMap<&Config, f64> = selection.legal().filter_map(|c| Some((&c.config, cost(c)?))).collect();
    let of = |text: &str| cycles.get(&text.parse::<Config>().ok()?).copied();
    let Some(chosen) = of(&size.chosen().config) else {
        bail!("`{}` is not legal; measure it again", size.chosen().config)
    };
    size.configs[0].cycles = chosen;
    size.configs.retain_mut(|t| {
        of(&t.config).is_some_and(|cycles| {
            t.cycles = cycles;
            true
        })
    });
    size.model = MODEL;
    *size = size.clone().rounded();
    Ok(())
}
