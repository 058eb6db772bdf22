//! The search: measures the problems that are ready, and records the results.

use super::super::gpu_lock;
use super::super::jobs::Job;
use super::super::print::{say, tell};
use super::child::{Answer, Pool, WorkerProcess};
use super::left_out::{left_out, reasons};
use super::pack::Task;
use super::search::{ROUNDS, Times, halving};
use super::{TuneArgs, build_request, file, measured, of_other_sizes, ranked, show};
use anyhow::{Context, Result, bail};
use atlas_codegen::Machine;
use atlas_dsl::{Config, Kernel};
use atlas_runtime::records::{
    MODEL, Records, Timed, TunedSize, class_text, ir_hash, is_of_target, row_target, target_text, tune_hash,
};
use atlas_runtime::{Candidate, Device, Outcome, build_kernel, choose_for};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The number of sizes that are compiled ahead of the one that is measured.
const AHEAD: usize = 3;
/// A problem does not see the records of this many problems before it, because they may still be measured while it is
/// compiled.
const LAG: usize = AHEAD + 2;

/// A size with compiled candidates.
struct ReadyTask {
    job: Job,
    candidates: Vec<Candidate>,
    /// The indices of the candidates to measure, and of those that failed to compile.
    first: Vec<usize>,
    failed: Vec<(String, String)>,
}

/// A measured size, and whether the record could be written.
struct Tuned {
    row: Value,
    recorded: Result<()>,
}

/// How a search ended.
enum End {
    Done,
    /// The user's time limit is reached.
    Spent,
    /// The device does not respond.
    Gone,
    /// A record cannot be written, and neither could any other.
    Unwritten(anyhow::Error),
}

/// The search on one GPU.
pub(super) struct Tuner<'a> {
    pub(super) args: &'a TuneArgs,
    pub(super) machine: Machine,
    pub(super) device: Device,
    pub(super) gpu: String,
    /// Date, driver, clocks and compiler.
    pub(super) measured: String,
    pub(super) pool: Arc<Pool>,
    pub(super) worker: WorkerProcess,
    /// The job whose tensors the worker holds, and the microseconds that a copy of the same number of bytes takes.
    pub(super) opened: Option<(String, f64)>,
    /// The total time that the measuring worker was busy.
    pub(super) busy: Duration,
    /// Whether no worker could even be started on the device.
    pub(super) is_gone: bool,
    /// The user's time limit.
    pub(super) deadline: Option<Instant>,
}

impl Tuner<'_> {
    /// Tunes the problems that are not recorded yet. Returns false if some could not be tuned.
    pub(super) fn run(&mut self, tasks: Vec<Task>) -> Result<bool> {
        let start = Instant::now();
        self.deadline = self.args.budget.and_then(|s| start.checked_add(Duration::from_secs(s)));
        let kernels: BTreeSet<&str> = tasks.iter().map(|t| t.job.def.name).collect();
        file::probe(&self.args.records, &self.gpu, kernels)?;
        let _lock = gpu_lock::acquire(&self.device)?;
        let total = tasks.len();
        let todo: Vec<usize> = (0..total).filter(|&at| self.args.again || !self.is_recorded(&tasks[at].job)).collect();
        let known = total - todo.len();
        let mut progress = show::Progress::new(todo.len());
        let (tell, done) = channel();
        let (maker, ready) = self.ready_ahead(tasks, todo, done);
        let (mut rows, mut failures) = (Vec::new(), 0);
        let end = loop {
            let (at, ready) = match self.wait_for(&ready, &mut progress) {
                Ok(next) => next,
                Err(RecvTimeoutError::Timeout) => break End::Spent,
                Err(RecvTimeoutError::Disconnected) => break End::Done,
            };
            let tuned = ready.and_then(|ready| {
                progress.step(&ready.job.text());
                match self.is_over() {
                    true => Ok(None),
                    false => self.tune(&ready, &mut progress).with_context(|| ready.job.text()),
                }
            });
            // The receiver is gone after the last problem.
            let _ = tell.send(at);
            match tuned {
                Ok(Some(Tuned { row, recorded })) => {
                    if !self.args.json {
                        tell!("  {}", row["summary"].as_str().unwrap_or(""));
                    }
                    rows.push(row);
                    if let Err(e) = recorded {
                        break End::Unwritten(e);
                    }
                }
                Ok(None) => break End::Spent,
                Err(e) => {
                    failures += 1;
                    tell!("error: {e:#}");
                    if self.is_gone {
                        break End::Gone;
                    }
                }
            }
        };
        drop(progress);
        match end {
            // The thread that prepares problems has ended, so its result is available.
            End::Done if maker.join().is_err() => {
                failures += 1;
                tell!(
                    "error: a problem could not be made ready, and those after it were not tuned: this is a bug of Atlas"
                );
            }
            End::Done => {}
            End::Spent => tell!("the budget is spent: {} of {total} sizes are recorded", known + rows.len()),
            End::Gone => tell!("error: {} does not answer; what is recorded stays", self.args.device),
            End::Unwritten(e) => {
                failures += 1;
                tell!("error: {e:#}; nothing more is measured");
            }
        }
        let seconds = start.elapsed().as_secs_f64();
        match self.args.json {
            true => show::json(&json!({
                "gpu": self.gpu, "measured": self.measured, "seconds": seconds, "gpu_seconds": self.busy.as_secs_f64(),
                "known": known, "sizes": rows,
            })),
            false => say!(
                "{} sizes tuned, {} known before, in {seconds:.1} s, of which the {} was asked for {:.1} s",
                rows.len(),
                known,
                if self.device.simulates() { "simulator" } else { "GPU" },
                self.busy.as_secs_f64()
            ),
        }
        Ok(failures == 0)
    }

    /// Prepares problems in a thread of its own, a few ahead of the one that is measured, and sends each with its
    /// index.
    ///
    /// Records correct the ranking of a problem: those of all earlier problems except the last few, however fast they
    /// are measured. So a search that is interrupted and restarted ends with the same record.
    fn ready_ahead(
        &self,
        tasks: Vec<Task>,
        todo: Vec<usize>,
        done: Receiver<usize>,
    ) -> (JoinHandle<()>, Receiver<(usize, Result<ReadyTask>)>) {
        let (sender, ready) = sync_channel(AHEAD);
        let (pool, machine, share) = (self.pool.clone(), self.machine, self.args.share);
        let (folder, gpu) = (self.args.records.clone(), self.gpu.clone());
        let maker = std::thread::spawn(move || {
            let mut last = None;
            for &at in &todo {
                let seen = (at + 1).saturating_sub(LAG);
                let needed = todo.iter().copied().take_while(|&t| t < seen).last();
                while last < needed {
                    match done.recv() {
                        Ok(at) => last = Some(at),
                        Err(_) => return,
                    }
                }
                let records = of_other_sizes(&tasks[at].job, &tasks[seen..], &folder, &gpu);
                // The receiver is gone once the time limit is reached.
                if sender.send((at, ready_up(tasks[at].clone(), machine, share, &records, &pool))).is_err() {
                    return;
                }
            }
        });
        (maker, ready)
    }

    /// The next problem that is ready, if there is one before the time limit.
    fn wait_for<T>(
        &self,
        ready: &Receiver<T>,
        progress: &mut show::Progress,
    ) -> std::result::Result<T, RecvTimeoutError> {
        loop {
            let left = self.deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            match ready.recv_timeout(left.map_or(show::WITHIN, |left| left.min(show::WITHIN))) {
                Err(RecvTimeoutError::Timeout) if !self.is_over() => {
                    progress.before_next("the configs of the next size are ranked and compiled");
                }
                end => return end,
            }
        }
    }

    /// Whether the time limit is reached.
    fn is_over(&self) -> bool {
        self.deadline.is_some_and(|d| Instant::now() >= d)
    }

    /// True if a job's sizes are recorded for the kernel's current version.
    fn is_recorded(&self, job: &Job) -> bool {
        let (types, tensors) = class_text(job.def, &job.spec);
        let record = file::read(&self.args.records, &self.gpu, job.def.name).filter(|r| r.tune == tune_hash(job.def));
        let target = target_text(&self.machine);
        let dims = job.dims_text();
        let rows = record.iter().flat_map(|r| &r.sizes).filter(|size| size.is_of(&types, &tensors, &dims));
        rows.into_iter().any(|size| {
            let config = size.chosen().config.parse::<Config>();
            let is_now = |k: &Kernel| ir_hash(k) == size.ir && is_of_target(k, size, &target);
            config.is_ok_and(|c| build_kernel(job.def, &job.spec, &c).is_ok_and(|k| is_now(&k)))
        })
    }

    /// Measures a size and records it. `None` if the time limit was reached before all its candidates were tried.
    fn tune(&mut self, ready: &ReadyTask, progress: &mut show::Progress) -> Result<Option<Tuned>> {
        let ReadyTask { job, candidates, first, failed } = ready;
        let mut failed = failed.clone();
        let mut times: BTreeMap<usize, Times> = BTreeMap::new();
        match self.measure(job, candidates, first, &mut times, &mut failed, progress)? {
            true => self.record(job, candidates, &times, &failed).map(Some),
            false => Ok(None),
        }
    }

    /// Times some candidates, skipping those that fail. Returns false, and no times, if the time limit was reached
    /// before all times were known.
    pub(super) fn measure(
        &mut self,
        job: &Job,
        candidates: &[Candidate],
        which: &[usize],
        times: &mut BTreeMap<usize, Times>,
        failed: &mut Vec<(String, String)>,
        progress: &mut show::Progress,
    ) -> Result<bool> {
        let name = |at: usize| candidates[at].config.to_string();
        let mut good: Vec<usize> = Vec::new();
        for (tried, &at) in which.iter().enumerate() {
            if self.is_over() {
                return Ok(false);
            }
            progress.within(&format!("config {} of {} runs once", tried + 1, which.len()));
            match self.ask_opened(job, &json!({ "verb": "try", "config": name(at) }))? {
                Answer::Done(answer) if answer["spills"].as_u64().unwrap_or(0) > 0 => {
                    failed.push((name(at), "its registers spill".to_owned()));
                }
                Answer::Done(_) => good.push(at),
                Answer::Refused(why) | Answer::Lost(why) => failed.push((name(at), why)),
            }
        }
        self.load(job, &mut good, name, failed)?;
        if good.is_empty() {
            return Ok(true);
        }
        let mut lost: Vec<usize> = Vec::new();
        // The simulator counts instructions, which are the same each time.
        let mut counted: BTreeMap<usize, f64> = BTreeMap::new();
        let mut is_cut = false;
        let mut round = 0;
        let found = halving(good.len(), |alive, runs| -> Result<Vec<Vec<f64>>> {
            let mut all = vec![Vec::new(); alive.len()];
            round += 1;
            for run in 0..runs {
                let configs = alive.len();
                progress.within(&format!("round {round} of {ROUNDS}, {configs} configs, run {} of {runs}", run + 1));
                // One request per candidate, each with its own time limit. The order rotates, so that no candidate
                // always follows the same one.
                for i in (0..alive.len()).map(|i| (i + run) % alive.len()) {
                    let at = good[alive[i]];
                    is_cut |= self.is_over();
                    if is_cut || lost.contains(&at) {
                        continue;
                    }
                    if let Some(&count) = counted.get(&at) {
                        all[i].push(count);
                        continue;
                    }
                    let why = match self.ask(&json!({ "verb": "time", "config": name(at) }))? {
                        Answer::Done(answer) => {
                            let us = answer["us"].as_f64();
                            all[i].extend(us);
                            if self.device.simulates() {
                                counted.extend(us.map(|us| (at, us)));
                            }
                            continue;
                        }
                        Answer::Refused(why) => why,
                        Answer::Lost(why) => {
                            self.opened = None;
                            why
                        }
                    };
                    failed.push((name(at), format!("while it was timed: {why}")));
                    lost.push(at);
                    // The others continue to be timed.
                    let mut rest: Vec<usize> = alive.iter().map(|&i| good[i]).filter(|at| !lost.contains(at)).collect();
                    let before = rest.clone();
                    self.load(job, &mut rest, name, failed)?;
                    lost.extend(before.into_iter().filter(|at| !rest.contains(at)));
                }
            }
            for (us, &i) in all.iter_mut().zip(alive) {
                if lost.contains(&good[i]) {
                    us.clear();
                }
            }
            Ok(all)
        })?;
        if is_cut {
            return Ok(false);
        }
        for (at, t) in good.into_iter().zip(found) {
            times.insert(at, t);
        }
        Ok(true)
    }

    /// Lets the worker reload candidates that it tried before, if it was lost since. Removes candidates whose reload
    /// loses it again.
    fn load(
        &mut self,
        job: &Job,
        good: &mut Vec<usize>,
        name: impl Fn(usize) -> String,
        failed: &mut Vec<(String, String)>,
    ) -> Result<()> {
        // It may be lost again during the reload, with everything that it had loaded.
        let mut lost = true;
        while lost {
            lost = false;
            for &at in &good.clone() {
                let request = json!({ "verb": "try", "config": name(at), "unless_loaded": true });
                let answer = self.ask_opened(job, &request)?;
                lost |= matches!(answer, Answer::Lost(_));
                if let Answer::Refused(why) | Answer::Lost(why) = answer {
                    good.retain(|&g| g != at);
                    failed.push((name(at), why));
                }
            }
        }
        Ok(())
    }

    /// Sends the worker a request about a job, after giving it the job's tensors if it does not have them.
    fn ask_opened(&mut self, job: &Job, request: &Value) -> Result<Answer> {
        let name = job.text();
        if self.opened.as_ref().is_none_or(|(n, _)| *n != name) {
            self.opened = None;
            let answer = self.ask(&job.request("open"))?;
            if let Answer::Lost(_) = answer {
                // Either the problem is too large for the host, or the GPU has failed.
                self.is_gone = !matches!(self.ask(&json!({ "verb": "ping" }))?, Answer::Done(_));
            }
            match answer {
                Answer::Done(answer) => self.opened = Some((name, answer["copy_us"].as_f64().unwrap_or(0.0))),
                Answer::Refused(why) | Answer::Lost(why) => bail!("its tensors cannot be made: {why}"),
            }
        }
        let answer = self.ask(request)?;
        if let Answer::Lost(_) = answer {
            self.opened = None;
        }
        Ok(answer)
    }

    fn ask(&mut self, request: &Value) -> Result<Answer> {
        let start = Instant::now();
        let answer = self.worker.ask(request);
        self.busy += start.elapsed();
        answer
    }

    fn record(
        &self,
        job: &Job,
        candidates: &[Candidate],
        times: &BTreeMap<usize, Times>,
        failed: &[(String, String)],
    ) -> Result<Tuned> {
        let timed = times.iter().filter(|(_, t)| t.median.is_finite() && t.median > 0.0);
        let mut order: Vec<(usize, &Times)> = timed.map(|(&at, t)| (at, t)).collect();
        order.sort_by(|a, b| a.1.median.total_cmp(&b.1.median));
        // The model's cycles without corrections, because the candidates may have been ranked with some.
        let plain = choose_for(job.def, &job.spec, &job.dims, Some(self.machine));
        let cycles: BTreeMap<&Config, f64> = plain.legal().filter_map(|c| Some((&c.config, cost(c)?))).collect();
        prefer_the_models(&mut order, |at| cycles.get(&candidates[at].config).copied());
        let Some(&(best, best_times)) = order.first() else {
            bail!("no config could be measured: {}", reasons(failed.iter().map(|(config, why)| (config, why))));
        };
        let config = &candidates[best].config;
        let timed = order.iter().filter_map(|(at, t)| {
            let config = &candidates[*at].config;
            Some(Timed { config: config.to_string(), us: t.median, cycles: *cycles.get(config)? })
        });
        let (types, tensors) = class_text(job.def, &job.spec);
        let copy_us = self.opened.as_ref().map_or(0.0, |o| o.1);
        let kernel = build_kernel(job.def, &job.spec, config)?;
        let size = TunedSize {
            types,
            tensors,
            dims: job.dims_text(),
            ir: ir_hash(&kernel),
            spread: best_times.spread,
            of_copy: copy_us / best_times.median,
            measured: self.measured.clone(),
            model: MODEL,
            target: row_target(&kernel, &self.machine),
            configs: timed.collect(),
        };
        let by_model = plain.chosen().and_then(|c| size.configs.iter().find(|t| t.config == c.to_string()));
        let gain = by_model.map(|m| m.us / size.configs[0].us);
        let behind = size.configs.get(1).map(|t| t.us / size.configs[0].us);
        let took = match self.device.simulates() {
            true => format!("{} warp instructions", best_times.median),
            false => show::time(best_times.median / 1e3),
        };
        let summary = format!(
            "{config}: {took}{}, {} of {} configs measured{}",
            gain.map_or_else(String::new, |g| format!(" (the model's choice takes {g:.2} times as long)")),
            times.len(),
            candidates.len(),
            left_out(failed, plain.refused()),
        );
        let row = json!({
            "kernel": job.def.name, "types": size.types, "tensors": size.tensors, "dims": job.dims_text(), "config": config.to_string(),
            "us": best_times.median, "spread": best_times.spread, "of_copy": copy_us / best_times.median,
            "next": behind, "model": gain, "measured": times.len(), "legal": candidates.len(), "failed": failed,
            "summary": summary,
        });
        let recorded = file::put(&self.args.records, &self.gpu, job.def.name, &tune_hash(job.def), size);
        Ok(Tuned { row, recorded })
    }
}

/// The hash of a config's Tile IR.
pub(super) fn ir_of(job: &Job, config: &Config) -> Result<String> {
    Ok(ir_hash(&*build_kernel(job.def, &job.spec, config)?))
}

/// The model's cycles of a legal config.
pub(super) fn cost(c: &Candidate) -> Option<f64> {
    match &c.outcome {
        Outcome::Legal(cost) => cost.map(|c| c.cycles),
        Outcome::Refused(_) => None,
    }
}

/// Ranks a problem's configs and compiles those that are measured: a share of the first ones, or those of a pack.
fn ready_up(task: Task, machine: Machine, share: f64, records: &Records, pool: &Pool) -> Result<ReadyTask> {
    let Task { job, only } = task;
    #[cfg(feature = "mutations")]
    assert!(std::env::var("ATLAS_TUNE_FAULT").as_deref() != Ok("unready"), "planted");
    let candidates = ranked(&job, machine, records).with_context(|| job.text())?;
    let places: Vec<usize> = match &only {
        None => (0..measured(candidates.len(), share)).collect(),
        Some(only) => (0..candidates.len()).filter(|&at| only.contains(&candidates[at].config)).collect(),
    };
    let requests = places.iter().map(|&at| build_request(&job, &candidates[at].config)).collect();
    let (mut first, mut failed) = (Vec::new(), Vec::new());
    for (at, answer) in places.into_iter().zip(pool.ask_all(requests)?) {
        match answer {
            // The cause may be the config, or a lack of memory in the worker. The measurement will show which.
            Answer::Done(_) | Answer::Lost(_) => first.push(at),
            Answer::Refused(why) => failed.push((candidates[at].config.to_string(), why)),
        }
    }
    Ok(ReadyTask { job, candidates, first, failed })
}

/// The share of its spread by which the time of a config may be longer than the best one without being slower: the difference of
/// two medians of some twenty times that spread so much.
const TIE: f64 = 0.25;

/// Puts the config first that the model ranks best among those that are as fast as the first. A GPU that is short of power takes
/// the same time for many configs, and which of them was fastest says nothing about the next run.
fn prefer_the_models(order: &mut [(usize, &Times)], cycles: impl Fn(usize) -> Option<f64>) {
    let Some(&(_, best)) = order.first() else { return };
    let most = best.median * (1.0 + TIE * best.spread);
    let ties = order.iter().take_while(|(_, t)| t.median <= most).count();
    let of = |at: usize| cycles(at).unwrap_or(f64::INFINITY);
    if let Some(first) = (0..ties).min_by(|&a, &b| of(order[a].0).total_cmp(&of(order[b].0))) {
        order[..=first].rotate_right(1);
    }
}

#[cfg(test)]
mod tests {
    use super::{Times, prefer_the_models};

    #[test]
    fn the_model_decides_between_configs_that_are_as_fast() {
        let times = [(1.0, 0.04), (1.009, 0.0), (1.02, 0.0)].map(|(median, spread)| Times { median, spread });
        let mut order: Vec<(usize, &Times)> = times.iter().enumerate().collect();
        prefer_the_models(&mut order, |at| Some([30.0, 20.0, 10.0][at]));
        assert_eq!(order.iter().map(|o| o.0).collect::<Vec<_>>(), [1, 0, 2]);
        // Times that hardly spread decide by themselves.
        let times = times.map(|t| Times { spread: 0.0, ..t });
        let mut order: Vec<(usize, &Times)> = times.iter().enumerate().collect();
        prefer_the_models(&mut order, |at| Some([30.0, 20.0, 10.0][at]));
        assert_eq!(order[0].0, 0);
    }
}
