//! The result of `atlas explain`, as text and as JSON.

use super::super::counts::Counts;
use super::super::print::say;
use super::super::ptxas::Resources;
use super::super::show;
use super::fused;
use super::time::Time;
use atlas_codegen::notes::Note;
use atlas_codegen::{Explained, Platform};
use atlas_dsl::Config;
use atlas_dsl::def::Removed;
use atlas_runtime::{LoopInterval, ScratchBytes, Selection};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Configs that are listed unless all are asked for.
const CONFIGS: usize = 10;

/// A note about the registers in the ranking.
const REGISTERS: &str = "     registers here are estimates of all that a thread needs, below of its tiles alone; ptxas counts those that it uses";

/// What is explained.
pub(super) struct Page {
    pub(super) kernel: String,
    pub(super) dtype: String,
    pub(super) dims: BTreeMap<String, u64>,
    pub(super) on: Platform,
    pub(super) config: Config,
    pub(super) why: String,
    /// The grid as text, and its number of programs if every size is known.
    pub(super) grid: (String, Option<u64>),
    pub(super) removed: Vec<Removed>,
    /// `None` without ptxas.
    pub(super) resources: Option<Resources>,
    pub(super) time: Option<Time>,
    /// Times at the sizes of a dim.
    pub(super) sweep: (String, Vec<(u64, Time)>),
    pub(super) ranking: Option<Selection>,
    pub(super) loops: Vec<LoopInterval>,
    pub(super) placement: Explained,
    pub(super) counted: Option<Counts>,
}

impl Page {
    fn threads(&self) -> u32 {
        self.config.schedule.warps * 32
    }

    /// The programs, and the CTAs that share them.
    fn grid_text(&self) -> String {
        let (axes, programs) = &self.grid;
        let count = |n: Option<u64>| n.map_or_else(|| "?".to_owned(), |n| n.to_string());
        let threads = self.threads();
        let text = format!("grid     {axes} = {} programs of", count(*programs));
        match self.placement.splits {
            1 => format!("{text} {threads} threads"),
            splits => {
                let ctas = count(programs.map(|n| n.saturating_mul(splits.into())));
                format!("{text} {splits} CTAs, {ctas} CTAs of {threads} threads")
            }
        }
    }

    /// The scratch memory of a launch, or of one program if their number is not known; `None` if there is none.
    fn scratch(&self) -> Option<ScratchBytes> {
        let programs = self.grid.1.unwrap_or(1);
        let of_splits =
            (self.placement.splits > 1).then(|| ScratchBytes::of_programs(programs, self.placement.partial_bytes));
        match self.workspaces() {
            None | Some(0) => of_splits,
            Some(bytes) => Some(of_splits.unwrap_or_default().with_workspaces(bytes)),
        }
    }

    /// Bytes of the workspaces of packed operands; `None` if a size is not known.
    fn workspaces(&self) -> Option<u64> {
        let bytes = self.placement.workspaces.iter().map(|(w, dims)| {
            let sizes: Option<Vec<u64>> = dims.iter().map(|name| self.dims.get(name.as_str()).copied()).collect();
            sizes.map(|sizes| w.bytes(&sizes))
        });
        bytes.sum()
    }

    fn scratch_text(&self) -> Option<String> {
        let ScratchBytes { arrivals, partials, workspaces } = self.scratch()?;
        let of = if self.grid.1.is_some() { "" } else { " of each program" };
        let of_splits = format!("{arrivals} bytes for arrivals and {partials} for partial tiles{of}");
        let of_packing = format!("{workspaces} bytes for packed operands");
        let text = match (arrivals, workspaces) {
            (0, _) => of_packing,
            (_, 0) => of_splits,
            _ => format!("{of_splits}, {of_packing}"),
        };
        Some(format!("scratch  {text}, in global memory"))
    }

    /// Prints JSON.
    pub(super) fn print_json(&self) {
        let (axes, programs) = &self.grid;
        show::json(&json!({
            "kernel": self.kernel, "dtype": self.dtype, "dims": self.dims, "arch": self.on.to_string(),
            "config": self.config.to_string(), "why": self.why, "ranking": self.ranking.as_ref().map(ToString::to_string),
            "time": self.time.as_ref().map(Time::json),
            "sweep": self.sweep.1.iter().map(|(n, t)| json!([n, t.config().to_string(), t.json()])).collect::<Vec<_>>(),
            "grid": axes, "programs": programs, "ctas_per_program": self.placement.splits,
            "scratch": self.grid.1.and(self.scratch()).map(|s| json!({ "arrivals": s.arrivals, "partials": s.partials, "workspaces": s.workspaces })), "fused": fused::rows(&self.removed, &self.dims),
            "threads": self.threads(), "loops": self.loops.iter().map(loop_json).collect::<Vec<_>>(),
            "placement": self.placement.to_string(), "notes": notes(&self.placement),
            "sim": self.counted.as_ref().map(Counts::json),
            "ptxas": self.resources.map(|r| json!({ "registers": r.registers, "spills": r.spills, "shared": r.shared })),
        }));
    }

    /// Prints text: of the configs the first ones, or all.
    pub(super) fn print(&self, all: bool) {
        let shape: Vec<String> = self.dims.iter().map(|(name, n)| format!("{name}={n}")).collect();
        let shape = shape.join(" ");
        let of: Vec<&str> = [&self.kernel, &self.dtype, &shape].into_iter().map(String::as_str).collect();
        let of: Vec<&str> = of.into_iter().filter(|part| !part.is_empty()).collect();
        say!("kernel   {} on {}", of.join(" "), self.on);
        say!("config   {}", self.config);
        say!("why      {}", self.why);
        say!("{}", self.grid_text());
        if let Some(text) = self.scratch_text() {
            say!("{text}");
        }
        if !self.removed.is_empty() {
            say!("{}", fused::text(&self.removed, &self.dims));
        }
        let resources = self.resources.map_or_else(
            || "not asked, because it was not found (`atlas doctor` says where it is looked for)".to_owned(),
            |r| {
                let (registers, spills, shared) = (r.registers, r.spills, r.shared);
                format!("{registers} registers, {spills} bytes spilled, {shared} bytes of static shared memory")
            },
        );
        say!("ptxas    {resources}");
        if let Some(time) = &self.time {
            say!("{}", time.text().trim_end_matches('\n'));
        }
        for line in self.loops.iter().map(loop_text) {
            say!("{line}");
        }
        if !self.sweep.1.is_empty() {
            say!("\n{}", sweep_table(&self.sweep.0, &self.sweep.1));
        }
        if let Some(ranking) = &self.ranking {
            say!("\nconfigs, best first: {}\n{REGISTERS}", ranking_text(ranking, all));
        }
        say!("\n{}", self.placement.to_string().trim_end());
        if let Some(counted) = &self.counted {
            say!("\n{}", counted.text().trim_end());
            if self.config.schedule.packs_operands() {
                say!("without the kernels before it, which pack its operands");
            }
        }
    }
}

/// The configs, and how many are left out.
fn ranking_text(ranking: &Selection, all: bool) -> String {
    let (legal, refused) = (ranking.legal().count(), ranking.refused().count());
    let listed = legal.min(CONFIGS);
    if all || (legal == listed && refused == 0) {
        return ranking.to_string().trim_end().to_owned();
    }
    let mut first = ranking.clone();
    first.candidates.truncate(listed);
    let mut rest = Vec::new();
    if legal > listed {
        rest.push(format!("{} slower ones", legal - listed));
    }
    if refused > 0 {
        rest.push(format!("{refused} that are refused"));
    }
    format!("{}\n     and {}: --all lists them", first.to_string().trim_end(), rest.join(" and "))
}

/// A pipelined loop in a line: the interval, what sets it, and what else takes a cycle or more.
fn loop_text(l: &LoopInterval) -> String {
    let (by, cycles) = l.interval();
    let others = l.limits[1..].iter().filter(|(_, cycles)| *cycles >= 1.0);
    let others: Vec<String> = others.map(|(limit, cycles)| format!("{limit} {cycles:.0}")).collect();
    let beside = if others.is_empty() { String::new() } else { format!(" ({})", others.join(", ")) };
    let (line, column) = (l.loc.line, l.loc.column);
    format!("loop     {line}:{column}  II {cycles:.0} cycles by {by}{beside}; {:.0} iterations", l.iterations)
}

fn loop_json(l: &LoopInterval) -> Value {
    let (by, cycles) = l.interval();
    let limits: serde_json::Map<_, _> = l.limits.iter().map(|(limit, c)| (limit.to_string(), json!(c))).collect();
    json!({
        "line": l.loc.line, "column": l.loc.column, "iterations": l.iterations, "ii_cycles": cycles, "by": by.to_string(),
        "cycles": limits,
    })
}

fn sweep_table(dim: &str, times: &[(u64, Time)]) -> String {
    let mut table = show::table(&[dim, "config", "model cycles", "us", "recorded us", "bound us"]);
    for (n, t) in times {
        let us = |us: Option<f64>| us.map_or_else(|| "-".to_owned(), |us| format!("{us:.2}"));
        table.add_row(vec![
            n.to_string(),
            t.config().to_string(),
            format!("{:.0}", t.cycles()),
            us(t.predicted_us()),
            us(t.recorded_us()),
            us(t.bound_us()),
        ]);
    }
    table.to_string()
}

/// The decisions as JSON.
fn notes(explained: &Explained) -> Vec<Value> {
    let row = |n: &Note| {
        json!({
            "pass": n.pass, "subject": n.subject, "line": n.loc.line, "column": n.loc.column,
            "decision": n.decision, "because": n.because,
        })
    };
    explained.notes.iter().map(row).collect()
}
