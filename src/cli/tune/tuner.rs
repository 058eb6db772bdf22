//! The search itself: what is ready is measured, and the result is recorded.

use super::super::jobs::Job;
use super::child::{Answer, Pool, Worker};
use super::search::{Times, halving};
use super::{Args, build_request, file, measured, of_other_sizes, ranked, show};
use anyhow::{Context, Result, bail};
use atlas_codegen::Machine;
use atlas_dsl::Config;
use atlas_runtime::records::{Records, Timed, TunedSize, class_text, ir_hash, tune_hash};
use atlas_runtime::{Candidate, Outcome, build_kernel, choose_for};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::time::{Duration, Instant};

/// Sizes that are compiled ahead of the one that is measured.
const AHEAD: usize = 3;

/// A size whose candidates are compiled.
struct Ready {
    job: Job,
    candidates: Vec<Candidate>,
    /// Of these, those to measure, and those that failed to compile.
    first: Vec<usize>,
    failed: Vec<(String, String)>,
}

/// The search on one GPU.
pub(super) struct Tuner<'a> {
    pub(super) args: &'a Args,
    pub(super) machine: Machine,
    pub(super) gpu: String,
    /// Date, driver, clocks and compiler.
    pub(super) measured: String,
    pub(super) pool: Arc<Pool>,
    pub(super) worker: Worker,
    /// The job whose tensors the worker holds, and microseconds that a copy of as many bytes takes.
    pub(super) opened: Option<(String, f64)>,
}

impl Tuner<'_> {
    /// Tunes what is not recorded yet. False if some of it could not be.
    pub(super) fn run(&mut self, jobs: Vec<Job>) -> Result<bool> {
        let start = Instant::now();
        let budget = self.args.budget.map_or(Duration::MAX, Duration::from_secs);
        let total = jobs.len();
        let known = |job: &Job| !self.args.again && self.is_recorded(job);
        let (done, todo): (Vec<Job>, Vec<Job>) = jobs.into_iter().partition(known);
        let mut progress = show::Progress::new(todo.len());
        let (sender, ready) = sync_channel(AHEAD);
        let (pool, machine, share) = (self.pool.clone(), self.machine, self.args.share);
        let (folder, gpu) = (self.args.records.clone(), self.gpu.clone());
        std::thread::spawn(move || {
            for job in todo {
                let records = of_other_sizes(&job, &folder, &gpu);
                // The reader is gone once the budget is spent.
                if sender.send(ready_up(job, machine, share, &records, &pool)).is_err() {
                    return;
                }
            }
        });
        let (mut rows, mut failures) = (Vec::new(), 0);
        for ready in ready {
            if start.elapsed() >= budget {
                eprintln!("the budget is spent: {} of {total} sizes are recorded", done.len() + rows.len());
                break;
            }
            let row = ready.and_then(|ready| {
                progress.step(&ready.job.text());
                self.tune(&ready).with_context(|| ready.job.text())
            });
            match row {
                Ok(row) => {
                    if !self.args.json {
                        eprintln!("  {}", row["summary"].as_str().unwrap_or(""));
                    }
                    rows.push(row);
                }
                Err(e) => {
                    failures += 1;
                    eprintln!("error: {e:#}");
                }
            }
        }
        drop(progress);
        let seconds = start.elapsed().as_secs_f64();
        match self.args.json {
            true => show::json(&json!({
                "gpu": self.gpu, "measured": self.measured, "seconds": seconds, "known": done.len(), "sizes": rows,
            })),
            false => println!("{} sizes tuned, {} known before, in {seconds:.1} s", rows.len(), done.len()),
        }
        Ok(failures == 0)
    }

    /// True if the record of a job's sizes is there and of the kernel as it is.
    fn is_recorded(&self, job: &Job) -> bool {
        let (types, tensors) = class_text(job.def, &job.spec);
        let record = file::read(&self.args.records, &self.gpu, job.def.name).filter(|r| r.tune == tune_hash(job.def));
        record.as_ref().and_then(|r| r.at(&types, &tensors, &job.dims_text())).is_some_and(|size| {
            let config = size.chosen().config.parse::<Config>();
            config.is_ok_and(|c| build_kernel(job.def, &job.spec, &c).is_ok_and(|k| ir_hash(&k) == size.ir))
        })
    }

    /// Measures a size and records it.
    fn tune(&mut self, ready: &Ready) -> Result<Value> {
        let Ready { job, candidates, first, failed } = ready;
        let mut failed = failed.clone();
        let mut times: BTreeMap<usize, Times> = BTreeMap::new();
        self.measure(job, candidates, first, &mut times, &mut failed)?;
        self.record(job, candidates, &times, &failed)
    }

    /// Times some candidates, past those that fail.
    fn measure(
        &mut self,
        job: &Job,
        candidates: &[Candidate],
        which: &[usize],
        times: &mut BTreeMap<usize, Times>,
        failed: &mut Vec<(String, String)>,
    ) -> Result<()> {
        let name = |at: usize| candidates[at].config.to_string();
        let mut good: Vec<usize> = Vec::new();
        for &at in which {
            match self.ask_opened(job, &json!({ "verb": "try", "config": name(at) }))? {
                Answer::Done(answer) if answer["spills"].as_u64().unwrap_or(0) > 0 => {
                    failed.push((name(at), "its registers spill".to_owned()));
                }
                Answer::Done(_) => good.push(at),
                Answer::Refused(why) | Answer::Lost(why) => failed.push((name(at), why)),
            }
        }
        // A worker that was lost on the way has lost what it had loaded.
        for &at in &good.clone() {
            if let Answer::Refused(why) | Answer::Lost(why) =
                self.ask_opened(job, &json!({ "verb": "try", "config": name(at), "unless_loaded": true }))?
            {
                good.retain(|&g| g != at);
                failed.push((name(at), why));
            }
        }
        let found = halving(good.len(), |alive, runs| -> Result<Vec<Vec<f64>>> {
            let configs: Vec<String> = alive.iter().map(|&i| name(good[i])).collect();
            match self.worker.ask(&json!({ "verb": "time", "configs": configs, "runs": runs }))? {
                Answer::Done(answer) => Ok(serde_json::from_value(answer["us"].clone())?),
                Answer::Refused(why) | Answer::Lost(why) => {
                    self.opened = None;
                    bail!("while it was timed: {why}")
                }
            }
        })?;
        for (at, t) in good.into_iter().zip(found) {
            times.insert(at, t);
        }
        Ok(())
    }

    /// Asks the worker something of a job, whose tensors it is given first where it has them not.
    fn ask_opened(&mut self, job: &Job, request: &Value) -> Result<Answer> {
        let name = job.text();
        if self.opened.as_ref().is_none_or(|(n, _)| *n != name) {
            self.opened = None;
            match self.worker.ask(&job.request("open"))? {
                Answer::Done(answer) => self.opened = Some((name, answer["copy_us"].as_f64().unwrap_or(0.0))),
                Answer::Refused(why) | Answer::Lost(why) => bail!("its tensors cannot be made: {why}"),
            }
        }
        let answer = self.worker.ask(request)?;
        if let Answer::Lost(_) = answer {
            self.opened = None;
        }
        Ok(answer)
    }

    fn record(
        &self,
        job: &Job,
        candidates: &[Candidate],
        times: &BTreeMap<usize, Times>,
        failed: &[(String, String)],
    ) -> Result<Value> {
        let mut order: Vec<(usize, &Times)> = times.iter().map(|(&at, t)| (at, t)).collect();
        order.sort_by(|a, b| a.1.median().total_cmp(&b.1.median()));
        let (best, best_times) = *order.first().context("no config could be measured")?;
        let config = &candidates[best].config;
        // What the model says without corrections: the candidates may have been ranked with some.
        let plain = choose_for(job.def, &job.spec, &job.dims, Some(self.machine));
        let cycles: BTreeMap<&Config, f64> = plain.legal().filter_map(|c| Some((&c.config, cost(c)?))).collect();
        let timed = order.iter().filter_map(|(at, t)| {
            let config = &candidates[*at].config;
            Some(Timed { config: config.to_string(), us: t.median(), cycles: *cycles.get(config)? })
        });
        let (types, tensors) = class_text(job.def, &job.spec);
        let copy_us = self.opened.as_ref().map_or(0.0, |o| o.1);
        let size = TunedSize {
            types,
            tensors,
            dims: job.dims_text(),
            ir: ir_of(job, config)?,
            spread: best_times.spread(),
            of_copy: copy_us / best_times.median(),
            measured: self.measured.clone(),
            configs: timed.collect(),
        };
        let by_model = plain.chosen().and_then(|c| size.configs.iter().find(|t| t.config == c.to_string()));
        let gain = by_model.map(|m| m.us / size.configs[0].us);
        let behind = size.configs.get(1).map(|t| t.us / size.configs[0].us);
        let summary = format!(
            "{config}: {}{}, {} of {} configs measured",
            show::time(best_times.median() / 1e3),
            gain.map_or_else(String::new, |g| format!(", {g:.2} of the model's choice")),
            times.len(),
            candidates.len(),
        );
        file::put(&self.args.records, &self.gpu, job.def.name, &tune_hash(job.def), size)?;
        Ok(json!({
            "kernel": job.def.name, "dtype": job.dtype.name(), "dims": job.dims_text(), "config": config.to_string(),
            "us": best_times.median(), "spread": best_times.spread(), "of_copy": copy_us / best_times.median(),
            "next": behind, "model": gain, "measured": times.len(), "legal": candidates.len(), "failed": failed,
            "summary": summary,
        }))
    }
}

/// The hash of a config's Tile IR.
pub(super) fn ir_of(job: &Job, config: &Config) -> Result<String> {
    Ok(ir_hash(&*build_kernel(job.def, &job.spec, config)?))
}

/// What the model says of a legal config.
pub(super) fn cost(c: &Candidate) -> Option<f64> {
    match &c.outcome {
        Outcome::Legal(cost) => cost.map(|c| c.cycles),
        Outcome::Refused(_) => None,
    }
}

/// Ranks a job's configs and compiles those that are measured first.
fn ready_up(job: Job, machine: Machine, share: f64, records: &Records, pool: &Pool) -> Result<Ready> {
    let candidates = ranked(&job, machine, records).with_context(|| job.text())?;
    let requests =
        candidates.iter().take(measured(candidates.len(), share)).map(|c| build_request(&job, &c.config)).collect();
    let (mut first, mut failed) = (Vec::new(), Vec::new());
    for (at, answer) in pool.ask_all(requests)?.into_iter().enumerate() {
        match answer {
            Answer::Done(_) => first.push(at),
            Answer::Refused(why) | Answer::Lost(why) => failed.push((candidates[at].config.to_string(), why)),
        }
    }
    Ok(Ready { job, candidates, first, failed })
}
