//! `atlas tune --check`: finds records that are stale or useless, and, if their GPU is present, those whose times no
//! longer hold.

use super::super::jobs::Job;
use super::super::print::say;
use super::super::{gpu_lock, show, stages};
use super::tuner::Tuner;
use super::{file, ranked};
use anyhow::{Context, Result, ensure};
use atlas_codegen::{Machine, Target};
use atlas_dsl::Config;
use atlas_runtime::build_kernel;
use atlas_runtime::records::{
    MODEL, Record, Records, TunedSize, ir_hash, is_of_target, machine_of, target_text, tune_hash,
};
use serde_json::json;
use std::collections::BTreeMap;
use std::path::Path;

/// The number of configs of each size that are measured again: the chosen one and the next ones.
const MEASURED: usize = 3;
/// A config has regressed if it is slower than its record by more than this fraction, and another one is better than
/// the chosen one if it is faster by more. If the times of the record vary more, the limit is twice their spread.
const SLOWER: f64 = 0.05;
const FASTER: f64 = 0.03;

/// Checks all records below a folder. `tuner` has the GPU of this machine. Configs of other GPUs must be legal for the
/// `usual` machine.
pub(super) fn run(
    folder: &Path,
    kernels: &[String],
    tuner: Option<&mut Tuner<'_>>,
    usual: Machine,
    as_json: bool,
) -> Result<bool> {
    let mut tuner = tuner;
    let (mut sizes, mut measured, mut problems) = (0, 0, Vec::new());
    let records = file::records(folder, "--records")?;
    let files = records.len();
    let _lock = tuner.as_ref().map(|tuner| gpu_lock::acquire(&tuner.device)).transpose()?;
    let mut progress = show::Progress::new(files);
    for (file, record) in records {
        let name = file.display().to_string();
        progress.step(&name);
        let mut problem = |size: Option<&TunedSize>, what: String| {
            let sizes = size.map(|s| [&*s.types, &s.dims, &s.tensors].join(" ").trim().to_owned());
            problems.push(json!({ "record": name, "sizes": sizes, "problem": what }));
        };
        let record = match record {
            Ok(record) => record,
            Err(e) => {
                problem(None, format!("{e:#}"));
                continue;
            }
        };
        if !kernels.is_empty() && !kernels.contains(&record.kernel) {
            continue;
        }
        let place = file::path(folder, &record.gpu, &record.kernel);
        if file != place {
            problem(
                None,
                format!("it is of `{}` on {}, whose record is {}", record.kernel, record.gpu, place.display()),
            );
        }
        let other = record.sizes.iter().filter(|s| s.model != MODEL).count();
        if other > 0 {
            let mend = format!("`atlas tune --recount {}` has them correct this one", folder.display());
            problem(
                None,
                format!("{other} sizes correct another cost model, and count at their own sizes alone; {mend}"),
            );
        }
        let here = tuner.as_ref().filter(|t| t.gpu == record.gpu).map(|t| t.machine);
        let machine = here.or_else(|| simulated(&record.gpu)).unwrap_or(usual);
        for size in &record.sizes {
            sizes += 1;
            match (healthy(&record, size, machine, here), tuner.as_deref_mut().filter(|t| t.gpu == record.gpu)) {
                (Err(e), _) => problem(Some(size), format!("{e:#}; tune it again")),
                (Ok(_), None) => {}
                (Ok(job), Some(tuner)) => {
                    measured += 1;
                    if let Some(what) =
                        again(&job, size, tuner, &mut progress).unwrap_or_else(|e| Some(format!("{e:#}")))
                    {
                        problem(Some(size), what);
                    }
                }
            }
        }
    }
    drop(progress);
    if as_json {
        show::json(&json!({ "sizes": sizes, "measured": measured, "problems": problems }));
    } else {
        for p in &problems {
            let text = |key: &str| p[key].as_str().unwrap_or_default();
            let of = [text("record"), text("sizes")].join(" ");
            say!("{}: {}", of.trim_end(), text("problem"));
        }
        say!("{sizes} sizes in {} records, {measured} measured again, {} problems", files, problems.len());
    }
    Ok(problems.is_empty())
}

/// The machine of a simulated GPU, from its name.
pub(super) fn simulated(gpu: &str) -> Option<Machine> {
    gpu.strip_prefix("simulator ")?.parse().ok()
}

/// The problem of a size, if its record matches the kernel's current version and has a config that runs.
fn healthy(record: &Record, size: &TunedSize, machine: Machine, here: Option<Machine>) -> Result<Job> {
    let job = Job::of_class(&record.kernel, &size.types, &size.dims, &size.tensors, None)?;
    ensure!(record.tune == tune_hash(job.def), "stale: the kernel's tune space has changed");
    if let Ok(target) = size.target.parse::<Target>() {
        ensure!(target.runs_on(machine.sm), "it is of code for {target}, which {machine} does not run");
    }
    let machine = machine_of(size, machine);
    let config: Config = size.chosen().config.parse().map_err(anyhow::Error::msg)?;
    ensure!(job.def.has_config(&config), "its config `{config}` is none of the tune space");
    let kernel = build_kernel(job.def, &job.spec, &config)?;
    ensure!(ir_hash(&kernel) == size.ir, "stale: the kernel has changed");
    let is_followed = here.is_none_or(|here| is_of_target(&kernel, size, &target_text(&here)));
    ensure!(is_followed, "it is of code for another target than this GPU compiles for");
    stages::placement(&kernel, &config.schedule, machine.into())
        .with_context(|| format!("its config `{config}` is refused for {machine}"))?;
    Ok(job)
}

/// Why the current times contradict a record, if they do.
fn again(job: &Job, size: &TunedSize, tuner: &mut Tuner<'_>, progress: &mut show::Progress) -> Result<Option<String>> {
    let candidates = ranked(job, tuner.machine, &Records::none(&tuner.gpu))?;
    let recorded: Vec<_> = size.configs.iter().take(MEASURED).collect();
    let at = |text: &str| candidates.iter().position(|c| c.config.to_string() == text);
    let which: Vec<usize> = recorded.iter().filter_map(|t| at(&t.config)).collect();
    let (mut times, mut failed) = (BTreeMap::new(), Vec::new());
    // There is no time limit here, so all of them are tried.
    tuner.measure(job, &candidates, &which, &mut times, &mut failed, progress)?;
    let now = |config: &str| at(config).and_then(|at| times.get(&at)).map(|t| t.median).filter(|us| us.is_finite());
    let chosen = recorded[0];
    let Some(us) = now(&chosen.config) else {
        let why = failed.iter().find(|(c, _)| *c == chosen.config).map_or("it is not legal", |(_, why)| why);
        return Ok(Some(format!("`{}` does not run: {why}", chosen.config)));
    };
    if us > chosen.us * (1.0 + SLOWER.max(2.0 * size.spread)) {
        return Ok(Some(format!("regressed: {us:.2} us, and {:.2} us in the record", chosen.us)));
    }
    let faster = recorded[1..].iter().filter_map(|t| Some((&t.config, now(&t.config)?)));
    let best = faster.min_by(|a, b| a.1.total_cmp(&b.1));
    Ok(best.filter(|(_, other)| us > other * (1.0 + FASTER.max(2.0 * size.spread))).map(|(config, other)| {
        format!("`{config}` is faster now: {other:.2} us, and {us:.2} us of `{}`", chosen.config)
    }))
}
