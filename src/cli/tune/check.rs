//! `atlas tune --check`: records that are stale, and, where their GPU is at hand, those that no longer tell its times.

use super::super::jobs::Job;
use super::super::{show, turn};
use super::tuner::{Tuner, ir_of};
use super::{file, ranked};
use anyhow::{Context, Result, bail};
use atlas_dsl::Config;
use atlas_runtime::records::{Record, Records, TunedSize, tune_hash};
use serde_json::json;
use std::collections::BTreeMap;
use std::path::Path;

/// Configs of each size that are measured again: the one that is chosen, and those behind it.
const MEASURED: usize = 3;
/// How much slower than its record a config is regressed, and how much faster than the chosen one another has to be; where the
/// times of the record lie further apart, twice their spread.
const SLOWER: f64 = 0.05;
const FASTER: f64 = 0.03;

/// Checks all records below a folder; `tuner` has the GPU that is here.
pub(super) fn run(folder: &Path, kernels: &[String], tuner: Option<&mut Tuner<'_>>, as_json: bool) -> Result<bool> {
    let mut tuner = tuner;
    let (mut sizes, mut measured, mut problems) = (0, 0, Vec::new());
    let files = file::list(folder).with_context(|| format!("--check: cannot read {}", folder.display()))?;
    if files.is_empty() {
        bail!("--check: there are no records in {}", folder.display());
    }
    let _turn = tuner.as_ref().map(|tuner| turn::take(&tuner.device)).transpose()?;
    let mut progress = show::Progress::new(files.len());
    for file in &files {
        let name = file.display().to_string();
        progress.step(&name);
        let mut problem = |size: Option<&TunedSize>, what: String| {
            problems.push(json!({ "record": name, "sizes": size.map(|s| s.dims.clone()), "problem": what }));
        };
        let record = match std::fs::read_to_string(file).map_err(|e| e.to_string()) {
            Ok(text) => Record::parse(&name, &text).map_err(|e| e.to_string()),
            Err(e) => Err(e),
        };
        let record = match record {
            Ok(record) => record,
            Err(e) => {
                problem(None, e);
                continue;
            }
        };
        if !kernels.is_empty() && !kernels.contains(&record.kernel) {
            continue;
        }
        for size in &record.sizes {
            sizes += 1;
            match (healthy(&record, size), tuner.as_deref_mut().filter(|t| t.gpu == record.gpu)) {
                (Err(e), _) => problem(Some(size), format!("stale: {e:#}; tune it again")),
                (Ok(_), None) => {}
                (Ok(job), Some(tuner)) => {
                    measured += 1;
                    if let Some(what) = again(&job, size, tuner).unwrap_or_else(|e| Some(format!("{e:#}"))) {
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
            show::say(&format!("{} {}: {}", text("record"), text("sizes"), text("problem")));
        }
        show::say(&format!(
            "{sizes} sizes in {} records, {measured} measured again, {} problems",
            files.len(),
            problems.len()
        ));
    }
    Ok(problems.is_empty())
}

/// The problem of a size, if its record is of the kernel as it is.
fn healthy(record: &Record, size: &TunedSize) -> Result<Job> {
    let job = Job::of_class(&record.kernel, &size.types, &size.dims, &size.tensors, None)?;
    anyhow::ensure!(record.tune == tune_hash(job.def), "the kernel's tune space has changed");
    let config: Config = size.chosen().config.parse().map_err(anyhow::Error::msg)?;
    anyhow::ensure!(ir_of(&job, &config)? == size.ir, "the kernel has changed");
    Ok(job)
}

/// What times of now say against a record, if they do.
fn again(job: &Job, size: &TunedSize, tuner: &mut Tuner<'_>) -> Result<Option<String>> {
    let candidates = ranked(job, tuner.machine, &Records::none(&tuner.gpu))?;
    let recorded: Vec<_> = size.configs.iter().take(MEASURED).collect();
    let at = |text: &str| candidates.iter().position(|c| c.config.to_string() == text);
    let which: Vec<usize> = recorded.iter().filter_map(|t| at(&t.config)).collect();
    let (mut times, mut failed) = (BTreeMap::new(), Vec::new());
    // There is no budget here, so that all are tried.
    tuner.measure(job, &candidates, &which, &mut times, &mut failed)?;
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
