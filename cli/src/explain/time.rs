//! The expected time of a launch: by the cost model, by a record, and the lower bound.
//!
//! The cost model ranks configs, and its cycles are not times: with one factor for all kernels, the predictions for the
//! sizes measured on an H200 are off by a factor of 1.6 in the median and of 5 for one in ten. If the GPU has records
//! of the kernel itself, they give the microseconds per cycle, and times are printed. These are off by a factor of 1.3
//! in the median and of 2.5 for one in ten (`tests/roofline.rs`).

use super::super::jobs::Job;
use atlas_codegen::{Card, Machine};
use atlas_dsl::{Config, KernelDef, Specialization};
use atlas_runtime::records::{
    Records, TunedSize, class_text, ir_hash, is_of_target, is_simulated, target_text, tune_hash,
};
use atlas_runtime::{ConfigSource, Cost, Outcome, Roofline, Selection, Unit, build_kernel, roofline};
use serde_json::{Value, json};

/// The config that runs a problem, its expected time, and the next config.
pub(super) struct Time {
    config: Config,
    cost: Cost,
    /// The most threads of an SM.
    most_threads: u32,
    /// The next config, and the ratio of its cycles to those of the first.
    next: Option<(Config, f64)>,
    /// The measurement at these sizes, or why it is not used.
    recorded: Option<Result<TunedSize, String>>,
    /// Microseconds per cycle of the model, for each of the kernel's records, ascending.
    us: Vec<f64>,
    /// The lower bound.
    roofline: Option<Roofline>,
}

/// The platform, card and records to explain for.
#[derive(Clone, Copy)]
pub(super) struct On<'a> {
    pub(super) machine: Machine,
    pub(super) card: &'static Card,
    pub(super) records: &'a Records,
}

impl Time {
    /// The expected time for the problem of a selection. `None` if the selection has no cost.
    pub(super) fn of(
        def: &'static KernelDef,
        spec: &Specialization,
        dims: &[u64],
        on: On<'_>,
        selection: &Selection,
        config: &Config,
    ) -> Option<Time> {
        let On { machine, card, records } = on;
        let cost = |c: &atlas_runtime::Candidate| match &c.outcome {
            Outcome::Legal(cost) => *cost,
            Outcome::Refused(_) => None,
        };
        let this = cost(selection.legal().find(|c| c.config == *config)?)?;
        let next = selection.legal().find(|c| c.config != *config);
        let next = next.and_then(|c| Some((c.config.clone(), cost(c)?.cycles / this.cycles)));
        let (types, tensors) = class_text(def, spec);
        let record = records.of_kernel(def.name);
        let is_own = record.is_some_and(|r| r.tune == tune_hash(def));
        let target = target_text(&machine);
        let here = def.dims_text(dims);
        let mut rows = record.into_iter().flat_map(|r| &r.sizes).filter(|s| s.is_of(&types, &tensors, &here));
        let first = rows.clone().next();
        let row = rows.find(|s| is_fresh(def, s, &target)).or(first).cloned();
        let recorded = row.map(|row| match selection.source {
            ConfigSource::Record if is_own && is_fresh(def, &row, &target) => Ok(row),
            // The record was followed, but this row is stale: a later record of these sizes decided.
            ConfigSource::Record => Err("it is of another kernel than this is now".to_owned()),
            _ => Err(selection.notes.first().cloned().unwrap_or_default()),
        });
        // The time of a cycle depends on the kernel and the GPU. A changed kernel, or another one of the same name,
        // gives no information. Neither do instruction counts.
        let of_now = record
            .into_iter()
            .filter(|r| is_own && !is_simulated(&r.gpu))
            .flat_map(|r| &r.sizes)
            .filter(|s| is_fresh(def, s, &target));
        let mut us: Vec<f64> = of_now.map(|s| s.chosen().us / s.chosen().cycles).collect();
        us.sort_by(f64::total_cmp);
        let roofline = roofline(def, spec, dims, config, machine, card).ok();
        Some(Time {
            config: config.clone(),
            cost: this,
            most_threads: machine.sm_threads,
            next,
            recorded,
            us,
            roofline,
        })
    }

    /// The config.
    pub(super) fn config(&self) -> &Config {
        &self.config
    }

    /// The predicted microseconds, if records of the kernel give the time of a cycle. Never below the lower bound.
    pub(super) fn predicted_us(&self) -> Option<f64> {
        let n = self.us.len();
        self.by_record((self.us.get(n.saturating_sub(1) / 2)? * self.us.get(n / 2)?).sqrt())
    }

    /// The prediction with `us` microseconds per cycle.
    fn by_record(&self, us: f64) -> Option<f64> {
        Some((self.cost.cycles * us).max(self.bound_us().unwrap_or(0.0)))
    }

    /// The predictions with the fewest and the most microseconds per cycle among the records.
    fn predicted_range(&self) -> Option<(f64, f64)> {
        self.by_record(*self.us.first()?).zip(self.by_record(*self.us.last()?))
    }

    /// The microseconds of the lower bound.
    pub(super) fn bound_us(&self) -> Option<f64> {
        self.roofline.map(|r| r.us)
    }

    /// The model's cycles.
    pub(super) fn cycles(&self) -> f64 {
        self.cost.cycles
    }

    /// The recorded microseconds of these sizes.
    pub(super) fn recorded_us(&self) -> Option<f64> {
        Some(self.recorded.as_ref()?.as_ref().ok()?.chosen().us)
    }

    /// The lower bound as a share of a measured time.
    fn of_bound(&self, us: f64) -> Option<f64> {
        self.bound_us().filter(|bound| *bound > 0.0).map(|bound| bound / us)
    }

    pub(super) fn json(&self) -> Value {
        let bound = self.roofline.map(|r| {
            json!({
                "us": r.us, "unit": r.unit.to_string(), "bytes": r.bytes, "flops": r.flops, "gpu": r.card.name,
                "dram_bytes_per_s": r.card.dram_bytes, "fits_l2": r.fits_l2, "data_decide_more": r.is_open,
                "of_bound": self.measured_us().and_then(|us| self.of_bound(us)),
            })
        });
        json!({
            "cycles": self.cost.cycles, "us": self.predicted_us(), "us_range": self.predicted_range(),
            "recorded_us": self.recorded_us(),
            "record_passed_over": self.recorded.as_ref().and_then(|r| r.as_ref().err()),
            "bound": bound,
            "waves": self.cost.waves, "ctas_per_sm": self.cost.ctas_per_sm, "resident_threads": self.cost.resident_threads,
            "next": self.next.as_ref().map(|(config, share)| json!([config.to_string(), share])),
            "next_recorded": self.recorded.as_ref().and_then(|r| r.as_ref().ok()?.configs.get(1)).map(|t| json!([t.config, t.us])),
        })
    }

    /// The recorded microseconds of these sizes, if a real GPU was measured.
    fn measured_us(&self) -> Option<f64> {
        let size = self.recorded.as_ref()?.as_ref().ok()?;
        (size.of_copy > 0.0).then(|| size.chosen().us)
    }

    /// A few lines, each with a label.
    pub(super) fn text(&self) -> String {
        let c = &self.cost;
        let time = match (self.predicted_us(), self.predicted_range()) {
            (Some(us), Some((low, high))) => {
                let records = match self.us.len() {
                    1 => "a record of this kernel".to_owned(),
                    n => format!("{n} records of this kernel, by single ones {low:.1} to {high:.1} us"),
                };
                format!("about {us:.1} us by the model, whose {:.0} cycles are scaled by {records}", c.cycles)
            }
            _ => {
                let bound =
                    self.bound_us().map_or_else(String::new, |us| format!("at least {us:.2} us, as the bound says; "));
                format!("{bound}{:.0} cycles by the model, which rank configs and are no time", c.cycles)
            }
        };
        let mut text = format!(
            "time     {time}; {} waves of {} {} per SM, {:.0} % of its threads\n",
            c.waves,
            c.ctas_per_sm,
            if self.config.schedule.split_k > 1 { "CTAs" } else { "programs" },
            100.0 * c.resident_threads as f64 / f64::from(self.most_threads)
        );
        if let Some(r) = &self.roofline {
            text += &format!(
                "bound    {:.2} us by {}: {:.1} MB, each element once, and {:.2} GFLOP of products, at the rates of an {}\n",
                r.us,
                r.unit,
                r.bytes / 1e6,
                r.flops / 1e9,
                r.card.name
            );
            if r.fits_l2 && r.unit == Unit::Dram {
                text += "         all of it fits the L2 cache: a launch that finds it there may be faster\n";
            }
            if r.is_open {
                text += "         data, numbers given by value or computed indices decide how far loops go or what is read: the bound has what \
                         is certain, and the time by the model assumes 512 elements for each such loop\n";
            }
        }
        if let Some((config, share)) = &self.next {
            let apart = 100.0 * (share - 1.0);
            let what = if apart < 0.0 { "less, which the model cannot tell apart" } else { "more" };
            text += &format!("next     {config}: {:.1} % {what}\n", apart.abs());
        }
        if let Some(Err(why)) = &self.recorded {
            text += &format!("record   passed over: {why}\n");
        }
        if let Some(Ok(r)) = &self.recorded {
            let first = r.chosen();
            // A simulated GPU has instruction counts, not times.
            let took = match r.of_copy {
                0.0 => format!("{} warp instructions in the simulator", first.us),
                share => format!("{:.2} us, {share:.2} of a copy", first.us),
            };
            let of_bound = self.measured_us().and_then(|us| self.of_bound(us));
            let of_bound = of_bound.map_or_else(String::new, |share| format!(", {:.0} % of the bound", 100.0 * share));
            text += &format!("record   {}: {took}{of_bound}; {}\n", first.config, r.measured);
            if let Some(t) = r.configs.get(1) {
                text += &format!("         then {}: {:.1} % more\n", t.config, 100.0 * (t.us / first.us - 1.0));
            }
        }
        text
    }
}

/// Whether the measurement is of the kernel's current version.
fn is_fresh(def: &'static KernelDef, size: &TunedSize, target: &str) -> bool {
    let is_own = |config: Config| {
        let job = Job::of_class(def.name, &size.types, &size.dims, &size.tensors, None).ok()?;
        let kernel = build_kernel(def, &job.spec, &config).ok()?;
        Some(ir_hash(&kernel) == size.ir && is_of_target(&kernel, size, target))
    };
    size.chosen().config.parse().ok().and_then(is_own).unwrap_or(false)
}

/// The times at several sizes. Sizes without a legal config are left out.
pub(super) fn along(
    def: &'static KernelDef,
    sizes: &[(u64, Specialization, Vec<u64>)],
    on: On<'_>,
) -> Vec<(u64, Time)> {
    let one = |(n, spec, dims): &(u64, Specialization, Vec<u64>)| {
        let selection = atlas_runtime::choose_with(def, spec, dims, on.machine, on.records);
        let config = selection.chosen()?.clone();
        Some((*n, Time::of(def, spec, dims, on, &selection, &config)?))
    };
    sizes.iter().filter_map(one).collect()
}
