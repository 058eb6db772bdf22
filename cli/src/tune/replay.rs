//! `atlas tune --replay`: evaluates, from records of all configs, how well sizes are tuned and how well configs are
//! chosen for other sizes.
//!
//! The sizes of each record are put in a random order. The first three fifths are tuned as `atlas tune` would, with the
//! recorded times instead of runs. For the others, the config is chosen as a launch would choose it, once from the
//! resulting records and once from the cost model alone. Regret is the time of the chosen config divided by that of the
//! best measured one.

use super::super::jobs::Job;
use super::super::print::say;
use super::super::show;
use super::tuner::{cost, ir_of};
use super::{file, measured, ranked};
use anyhow::{Context, Result};
use atlas_codegen::Machine;
use atlas_dsl::Config;
use atlas_dsl::def::DimDef;
use atlas_runtime::records::{MODEL, Record, Records, Timed, TunedSize, machine_of};
use atlas_runtime::{Selection, choose_for, choose_with, regions};
use rand::SeedableRng;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap};
use std::path::Path;

/// The share of a record's sizes that are tuned.
const TUNED: f64 = 0.6;

/// The number of variants per class in a bundle, which is the default of `atlas bundle`.
const VARIANTS: usize = 6;

/// Regrets of one kind, each with the chosen config.
#[derive(Clone, Default)]
struct Regrets(Vec<(f64, String)>);

impl Regrets {
    /// The geometric mean and the maximum.
    fn figures(&self) -> (f64, f64) {
        let mean = self.0.iter().map(|r| r.0.ln()).sum::<f64>() / self.0.len().max(1) as f64;
        (mean.exp(), self.0.iter().map(|r| r.0).fold(1.0, f64::max))
    }

    /// The regrets as JSON, largest first.
    fn json(&self) -> Value {
        let mut sorted = self.0.clone();
        sorted.sort_by(|a, b| b.0.total_cmp(&a.0));
        sorted.iter().map(|(regret, what)| json!([regret, what])).collect()
    }
}

/// The regrets of one kernel, or of all.
#[derive(Default)]
struct KernelRegrets {
    tuned: Regrets,
    held_out: Regrets,
    model: Regrets,
    bundled: Regrets,
    measured: usize,
    legal: usize,
}

/// The recorded times of one size.
struct Size {
    job: Job,
    size: TunedSize,
    us: HashMap<Config, (f64, f64)>,
}

impl Size {
    fn best(&self) -> f64 {
        self.us.values().map(|t| t.0).fold(f64::INFINITY, f64::min)
    }

    /// The regret of a time, with the config that took it and the best one.
    fn against_best(&self, us: f64, config: &str) -> (f64, String) {
        let best = &self.size.configs[0];
        let text = format!("{}: `{config}` {us:.2} us, `{}` {:.2} us", self.size.dims, best.config, best.us);
        (us / self.best(), text)
    }

    /// The regret of the config that a launch would run: the first of a selection that did not fail.
    fn regret(&self, selection: &Selection) -> (f64, String) {
        let first = selection.legal().find_map(|c| Some((&c.config, self.us.get(&c.config)?.0)));
        let none = || self.against_best(f64::INFINITY, "none");
        first.map_or_else(none, |(config, us)| self.against_best(us, &config.to_string()))
    }
}

/// Replays all records of a folder.
pub(super) fn run(folder: &Path, machine: Machine, share: f64, seed: u64, json: bool) -> Result<bool> {
    let (mut rows, mut all) = (BTreeMap::new(), KernelRegrets::default());
    for (_, record) in file::records(folder, "--replay")? {
        let record = record?;
        let row = replay(&record, machine, share, seed).with_context(|| record.kernel.clone())?;
        all.tuned.0.extend(row.tuned.0.iter().cloned());
        all.held_out.0.extend(row.held_out.0.iter().cloned());
        all.model.0.extend(row.model.0.iter().cloned());
        all.bundled.0.extend(row.bundled.0.iter().cloned());
        all.measured += row.measured;
        all.legal += row.legal;
        rows.insert(record.kernel, row);
    }
    rows.insert("all".to_owned(), all);
    print(&rows, json);
    Ok(true)
}

fn replay(record: &Record, machine: Machine, share: f64, seed: u64) -> Result<KernelRegrets> {
    let machine = record.sizes.first().map_or(machine, |size| machine_of(size, machine));
    let mut sizes = record.sizes.iter().map(|s| size(record, s, machine)).collect::<Result<Vec<_>>>()?;
    sizes.shuffle(&mut StdRng::seed_from_u64(seed));
    let (tuned, held_out) = sizes.split_at((sizes.len() as f64 * TUNED) as usize);
    let (mut records, mut row) = (Records::none(&record.gpu), KernelRegrets::default());
    let mut so_far = Record { sizes: Vec::new(), ..record.clone() };
    for s in tuned {
        let candidates = ranked(&s.job, machine, &records)?;
        let tried = &candidates[..measured(candidates.len(), share)];
        row.measured += tried.len();
        row.legal += candidates.len();
        let mut configs: Vec<Timed> = tried
            .iter()
            .map(|c| &c.config)
            .filter_map(|c| s.us.get(c).map(|&(us, cycles)| Timed { config: c.to_string(), us, cycles }))
            .collect();
        configs.sort_by(|a, b| a.us.total_cmp(&b.us));
        let Some(best) = configs.first() else { continue };
        row.tuned.0.push(s.against_best(best.us, &best.config));
        // The hash is of the Tile IR of the config that was best then.
        let ir = ir_of(&s.job, &best.config.parse().map_err(anyhow::Error::msg)?)?;
        so_far.sizes.push(TunedSize { configs, ir, model: MODEL, ..s.size.clone() });
        records.insert(so_far.clone());
    }
    for s in held_out {
        let chosen = choose_with(s.job.def, &s.job.spec, &s.job.dims, machine, &records);
        row.held_out.0.push(s.regret(&chosen));
        let chosen = choose_for(s.job.def, &s.job.spec, &s.job.dims, Some(machine));
        row.model.0.push(s.regret(&chosen));
        row.bundled.0.push(bundled(s, tuned, machine, &records)?);
    }
    Ok(row)
}

/// The choice of a bundle that was made without this size: from the tuned sizes of its class, or, if there are none,
/// from a size that is up to twice as large in each dim.
fn bundled(s: &Size, tuned: &[Size], machine: Machine, records: &Records) -> Result<(f64, String)> {
    let (def, spec, dims) = (s.job.def, &s.job.spec, &s.job.dims);
    let same = tuned.iter().filter(|t| t.job.spec == *spec).map(|t| t.job.dims.clone());
    let mut sizes: Vec<Vec<u64>> = same.collect();
    if sizes.is_empty() {
        let nearby = |(d, n): (&DimDef, &u64)| if d.whole { *n } else { n.next_power_of_two() };
        sizes.push(def.dims.iter().zip(dims).map(nearby).collect());
    }
    // A bundle has no configs that did not run or that spilled.
    let failed: Vec<Config> = def.configs().into_iter().filter(|c| !s.us.contains_key(c)).collect();
    let made = regions(def, spec, &sizes, machine, records, VARIANTS, &failed).map_err(anyhow::Error::msg)?;
    let (table, configs) = (made.table, made.configs);
    let first = table.choose(dims).map(|(v, _)| v);
    let order = first.into_iter().chain(table.order).map(|v| &configs[usize::from(v)]);
    let found = order.into_iter().find_map(|c| Some((c, s.us.get(c)?.0)));
    Ok(found.map_or((f64::INFINITY, "none".to_owned()), |(c, us)| s.against_best(us, &c.to_string())))
}

fn size(record: &Record, size: &TunedSize, machine: Machine) -> Result<Size> {
    let job = Job::of_class(&record.kernel, &size.types, &size.dims, &size.tensors, None)?;
    // The cycles of the current model; those in the record may be of another one.
    let selection = choose_for(job.def, &job.spec, &job.dims, Some(machine));
    let cycles: HashMap<&Config, f64> = selection.legal().filter_map(|c| Some((&c.config, cost(c)?))).collect();
    let timed = size.configs.iter().filter_map(|t| {
        let config: Config = t.config.parse().ok()?;
        let cycles = *cycles.get(&config)?;
        Some((config, (t.us, cycles)))
    });
    let us = timed.collect();
    Ok(Size { job, size: size.clone(), us })
}

fn print(rows: &BTreeMap<String, KernelRegrets>, json: bool) {
    let figures = |r: &KernelRegrets| [&r.tuned, &r.held_out, &r.model, &r.bundled].map(Regrets::figures);
    if json {
        let row = |(kernel, r): (&String, &KernelRegrets)| {
            let [tuned, held_out, model, bundled] = figures(r);
            json!({
                "kernel": kernel, "tuned": r.tuned.0.len(), "held_out": r.held_out.0.len(),
                "measured": r.measured, "legal": r.legal, "regret_tuned": tuned.0, "worst_tuned": tuned.1,
                "regret_held_out": held_out.0, "worst_held_out": held_out.1,
                "regret_model": model.0, "worst_model": model.1, "regret_bundled": bundled.0,
                "worst_bundled": bundled.1, "sizes_tuned": r.tuned.json(),
                "sizes_held_out": r.held_out.json(), "sizes_model": r.model.json(),
            })
        };
        return show::json(&Value::Array(rows.iter().map(row).collect()));
    }
    let mut table = show::table(&[
        "kernel",
        "measured",
        "tuned",
        "worst",
        "held out",
        "worst",
        "model alone",
        "worst",
        "bundle",
        "worst",
    ]);
    show::right(&mut table, &[1, 2, 3, 4, 5, 6, 7, 8, 9]);
    for (kernel, r) in rows {
        let share = format!("{:.0} %", 100.0 * r.measured as f64 / r.legal.max(1) as f64);
        let mut cells = vec![kernel.clone(), share];
        cells.extend(figures(r).into_iter().flat_map(|(mean, worst)| [format!("{mean:.3}"), format!("{worst:.3}")]));
        table.add_row(cells);
    }
    say!("{table}");
}
