//! The results of a fuzz run, as text and as JSON.

use super::super::print::say;
use super::recipe::{ParamRecipe, Recipe};
use super::trial::{Trial, TrialFailure};
use atlas_codegen::Target;
use atlas_dsl::Schedule;
use atlas_sim::launch::Policy;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write;

/// A failure and the smallest kernel found for it.
pub(super) struct Found {
    pub(super) seed: u64,
    pub(super) recipe: Recipe,
    pub(super) failure: TrialFailure,
    /// Whether it was found by comparing configs.
    pub(super) configs: bool,
}

/// Counts and failures.
#[derive(Default)]
pub(super) struct Report {
    /// Well formed kernels.
    pub(super) programs: usize,
    /// Pairs of a kernel and a target that were compiled.
    pub(super) compiled: usize,
    /// Those of them whose programs several CTAs share.
    pub(super) split: usize,
    /// Launches with correct results.
    pub(super) launches: usize,
    /// Compiled kernels that also ran in the ring.
    pub(super) in_ring: usize,
    /// Elements of outputs, and how many of them were judged.
    pub(super) elements: usize,
    pub(super) judged: usize,
    refused: BTreeMap<String, usize>,
    pub(super) found: Vec<Found>,
}

impl Report {
    /// Counts a refusal of the verifier or of the compiler.
    pub(super) fn refuse(&mut self, why: String) {
        *self.refused.entry(why).or_default() += 1;
    }

    /// Adds the results of another run.
    pub(super) fn merge(&mut self, other: Report) {
        self.programs += other.programs;
        self.compiled += other.compiled;
        self.split += other.split;
        self.launches += other.launches;
        self.in_ring += other.in_ring;
        self.elements += other.elements;
        self.judged += other.judged;
        other.refused.into_iter().for_each(|(why, n)| *self.refused.entry(why).or_default() += n);
        self.found.extend(other.found);
    }

    pub(super) fn json(&self, seed: u64, count: u64, targets: &[Target], seconds: f64) -> Value {
        json!({
            "seed": seed,
            "count": count,
            "arch": targets.iter().map(Target::to_string).collect::<Vec<_>>(),
            "programs": self.programs,
            "compiled": self.compiled,
            "split": self.split,
            "launches": self.launches,
            "in_ring": self.in_ring,
            "elements": self.elements,
            "judged": self.judged,
            "refused": self.refused,
            "seconds": seconds,
            "failures": self.found.iter().map(Found::json).collect::<Vec<_>>(),
        })
    }

    pub(super) fn print(&self, seconds: f64) {
        for found in &self.found {
            say!("{found}");
        }
        for (why, n) in &self.refused {
            say!("{n:>6} refused: {why}");
        }
        say!(
            "{} kernels, compiled {} times, {} launches, {} in the ring, {} of {} elements judged, {} fail, {seconds:.1} s",
            self.programs,
            self.compiled,
            self.launches,
            self.in_ring,
            self.judged,
            self.elements,
            self.found.len(),
        );
    }
}

impl Found {
    fn json(&self) -> Value {
        json!({
            "seed": self.seed,
            "kind": format!("{:?}", self.failure.kind),
            "target": self.failure.target.to_string(),
            "schedule": schedule(self.failure.schedule),
            "message": self.failure.message,
            "kernel": text(&self.recipe),
            "command": self.command(),
        })
    }

    /// The command that reproduces the failure.
    fn command(&self) -> String {
        let configs = if self.configs { " --configs" } else { "" };
        format!("atlas fuzz{configs} --seed {} --count 1 --arch {}", self.seed, self.failure.target)
    }
}

impl std::fmt::Display for Found {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let TrialFailure { kind, target, schedule: at, message } = &self.failure;
        writeln!(f, "seed {}: {kind:?} on {target}, schedule {}", self.seed, schedule(*at))?;
        writeln!(f, "  {}", message.replace('\n', "\n  "))?;
        writeln!(f, "{}again: {}", text(&self.recipe), self.command())
    }
}

fn schedule(at: Option<(Policy, u64)>) -> String {
    at.map_or_else(|| "none".to_owned(), |(policy, seed)| format!("{policy:?}").to_lowercase() + &format!(" {seed}"))
}

/// A recipe's kernel, with its sizes, its arguments and its config as comments.
pub(super) fn text(recipe: &Recipe) -> String {
    let mut text = String::new();
    let trial = match Trial::new(recipe) {
        Ok(trial) => trial,
        Err(diagnostics) => return format!("// not well formed: {diagnostics}\n"),
    };
    let sizes: Vec<String> = trial.dims.iter().enumerate().map(|(i, n)| format!("D{i}={n}")).collect();
    let s = recipe.schedule;
    let splits = if s.split_k > 1 { format!(" split_k={}", s.split_k) } else { String::new() };
    let (sizes, Schedule { stages, warps, occupancy, .. }) = (sizes.join(" "), s);
    let _ = writeln!(text, "// dims {sizes}; stages={stages} warps={warps} occupancy={occupancy}{splits}");
    for (p, data) in recipe.params.iter().zip(trial.kernel.params.values()) {
        let _ = match p {
            ParamRecipe::Tensor { view, fill, .. } => writeln!(text, "// {}: {fill:?} {view:?}", data.name),
            ParamRecipe::Scalar { value, .. } => writeln!(text, "// {} = {value}", data.name),
        };
    }
    text + &trial.kernel.to_string()
}

/// A reason without its numbers, so that equal reasons are counted together.
pub(super) fn without_numbers(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        match c {
            '0'..='9' if out.ends_with('#') => {}
            '0'..='9' => out.push('#'),
            c => out.push(c),
        }
    }
    out
}
