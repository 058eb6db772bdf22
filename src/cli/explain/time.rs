//! What a launch is expected to take: by the cost model, by a record, and at the least.

use super::super::jobs::Job;
use atlas_codegen::Machine;
use atlas_dsl::{Config, KernelDef, Specialization};
use atlas_runtime::records::{Records, TunedSize, class_text, ir_hash, is_simulated, tune_hash};
use atlas_runtime::{Cost, Outcome, Selection, Source, build_kernel};
use serde_json::{Value, json};

/// The config that runs a problem, what it takes, and the one behind it.
pub(super) struct Time {
    config: Config,
    cost: Cost,
    /// Threads that an SM can hold.
    most_threads: u32,
    /// The next config and its cycles over those of the first.
    next: Option<(Config, f64)>,
    /// What was measured at these sizes, or why that is passed over.
    recorded: Option<Result<TunedSize, String>>,
    /// Microseconds of a cycle of the model, the median over the kernel's records.
    us: Option<f64>,
}

impl Time {
    /// Of the problem that a selection is for; none where it has no cost.
    pub(super) fn of(
        def: &'static KernelDef,
        spec: &Specialization,
        dims: &[u64],
        machine: Machine,
        records: &Records,
        selection: &Selection,
        config: &Config,
    ) -> Option<Time> {
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
        let row = record.and_then(|r| r.at(&types, &tensors, &def.dims_text(dims))).cloned();
        let recorded = row.map(|row| match selection.source {
            Source::Record if is_own && is_fresh(def, &row) => Ok(row),
            // A later record of these sizes is followed.
            Source::Record => Err("it is of another kernel than this is now".to_owned()),
            _ => Err(selection.notes.first().cloned().unwrap_or_default()),
        });
        // What a cycle takes is the GPU's: of a kernel that has changed, and of another of its name, it is not known.
        // Nor is it where instructions were counted.
        let of_now = record
            .into_iter()
            .filter(|r| is_own && !is_simulated(&r.gpu))
            .flat_map(|r| &r.sizes)
            .filter(|s| is_fresh(def, s));
        let mut us: Vec<f64> = of_now.map(|s| s.chosen().us / s.chosen().cycles).collect();
        us.sort_by(f64::total_cmp);
        let us = us.get(us.len() / 2).copied();
        Some(Time { config: config.clone(), cost: this, most_threads: machine.sm_threads, next, recorded, us })
    }

    /// The config.
    pub(super) fn config(&self) -> &Config {
        &self.config
    }

    /// Microseconds that the model predicts, where records say what its cycles are.
    pub(super) fn predicted_us(&self) -> Option<f64> {
        Some(self.cost.cycles * self.us?)
    }

    /// Of the bound.
    pub(super) fn bound_us(&self) -> Option<f64> {
        Some(self.cost.bound.cycles * self.us?)
    }

    /// The model's cycles, and those of the bound.
    pub(super) fn cycles(&self) -> (f64, f64) {
        (self.cost.cycles, self.cost.bound.cycles)
    }

    /// The time of a record of these sizes.
    pub(super) fn recorded_us(&self) -> Option<f64> {
        Some(self.recorded.as_ref()?.as_ref().ok()?.chosen().us)
    }

    pub(super) fn json(&self) -> Value {
        let b = &self.cost.bound;
        json!({
            "cycles": self.cost.cycles, "us": self.predicted_us(), "recorded_us": self.recorded_us(),
            "record_passed_over": self.recorded.as_ref().and_then(|r| r.as_ref().err()),
            "bound": { "cycles": b.cycles, "us": self.bound_us(), "unit": b.unit.to_string(), "bytes": b.bytes, "flops": b.flops },
            "waves": self.cost.waves, "programs_per_sm": self.cost.held, "resident_threads": self.cost.resident_threads,
            "next": self.next.as_ref().map(|(config, share)| json!([config.to_string(), share])),
            "next_recorded": self.recorded.as_ref().and_then(|r| r.as_ref().ok()?.configs.get(1)).map(|t| json!([t.config, t.us])),
        })
    }

    /// A few lines, each under a word.
    pub(super) fn text(&self) -> String {
        let (c, b) = (&self.cost, &self.cost.bound);
        let us = |us: Option<f64>| us.map_or_else(String::new, |us| format!(", about {us:.1} us"));
        let mut text = format!(
            "time     {:.0} cycles{} by the model; {} waves of {} programs per SM, {:.0} % of its threads\n",
            c.cycles,
            us(self.predicted_us()),
            c.waves,
            c.held,
            100.0 * c.resident_threads as f64 / f64::from(self.most_threads)
        );
        text += &format!(
            "bound    {:.0} cycles{} by {}: {:.1} MB and {:.2} GFLOP; the config is at {:.0} % of it\n",
            b.cycles,
            us(self.bound_us()),
            b.unit,
            b.bytes / 1e6,
            b.flops / 1e9,
            100.0 * b.cycles / c.cycles
        );
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
            // The simulator has no time, and counts.
            let took = match r.of_copy {
                0.0 => format!("{} warp instructions in the simulator", first.us),
                share => format!("{:.2} us, {share:.2} of a copy", first.us),
            };
            text += &format!("record   {}: {took}; {}\n", first.config, r.measured);
            if let Some(t) = r.configs.get(1) {
                text += &format!("         then {}: {:.1} % more\n", t.config, 100.0 * (t.us / first.us - 1.0));
            }
        }
        text
    }
}

/// Whether a size was measured of the kernel as it is.
fn is_fresh(def: &'static KernelDef, size: &TunedSize) -> bool {
    let is_own = |config: Config| {
        let job = Job::of_class(def.name, &size.types, &size.dims, &size.tensors, None).ok()?;
        build_kernel(def, &job.spec, &config).ok().map(|kernel| ir_hash(&kernel) == size.ir)
    };
    size.chosen().config.parse().ok().and_then(is_own).unwrap_or(false)
}

/// Times at each of some sizes; sizes at which nothing is legal are left out.
pub(super) fn along(
    def: &'static KernelDef,
    sizes: &[(u64, Specialization, Vec<u64>)],
    machine: Machine,
    records: &Records,
) -> Vec<(u64, Time)> {
    let one = |(n, spec, dims): &(u64, Specialization, Vec<u64>)| {
        let selection = atlas_runtime::choose_with(def, spec, dims, machine, records);
        let config = selection.chosen()?.clone();
        Some((*n, Time::of(def, spec, dims, machine, records, &selection, &config)?))
    };
    sizes.iter().filter_map(one).collect()
}
