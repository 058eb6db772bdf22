//! `atlas verify --differential`: compares the same PTX on a GPU and in the simulator, bit by bit.
//!
//! | file | holds |
//! |---|---|
//! | `instructions` | a program for each instruction form, against the simulator's arithmetic |
//! | `kernels` | the shipped kernels, in every element type and for several targets, on both |
//! | `gpu` | the consequences of a failed launch on the GPU |
//! | `verdict` | bit-equal, within the bound, or not |

mod gpu;
mod instructions;
mod kernels;
mod verdict;

use super::print::say;
use super::show::{self, Progress};
use anyhow::{Result, bail};
use atlas_ops::Problem;
use atlas_runtime::{Device, DeviceId, FormPrograms};
use serde_json::{Value, json};
use verdict::Verdict;

/// One comparison and its result.
struct ComparisonRow {
    /// An instruction with its modifiers, or a kernel with its problem, target and config.
    name: String,
    verdict: Verdict,
    /// Details for the report.
    details: Value,
}

/// Rows, and why they ended early, if they did.
#[derive(Default)]
struct Section {
    rows: Vec<ComparisonRow>,
    /// Why the rest was not run.
    stopped: Option<String>,
}

/// The items that `--only` selects.
struct SelectedItems {
    instructions: FormPrograms,
    kernels: Vec<Problem>,
}

/// Runs the comparison.
pub(super) fn run(device: &str, only: Option<&str>, as_json: bool) -> Result<bool> {
    let chosen = SelectedItems::new(only)?;
    let device = super::input::device(device)?;
    if !matches!(device.id(), DeviceId::Cuda(_)) {
        bail!("--differential compares a GPU with the simulator, and `{device}` is no GPU; name one: --device cuda:0");
    }
    let kernels = kernels::trials(&chosen.kernels, &device);
    let instructions = instructions::run(&device, &chosen.instructions);
    let kernels = match &instructions.stopped {
        Some(why) => Section { rows: Vec::new(), stopped: Some(why.clone()) },
        None => kernels::run(&device, &kernels),
    };
    let report = report(&device, &instructions, &kernels);
    if as_json {
        show::json(&report);
    } else {
        print("instructions", &instructions);
        print("kernels", &kernels);
    }
    Ok([&instructions, &kernels].into_iter().all(Section::agrees))
}

impl SelectedItems {
    fn new(only: Option<&str>) -> Result<SelectedItems> {
        let instructions = FormPrograms::new(|case| match only {
            None | Some("instructions") => true,
            Some("kernels") => false,
            Some(name) => case.name.starts_with(name),
        });
        let mut kernels = kernels::problems();
        match only {
            None | Some("kernels") => {}
            Some("instructions") => kernels.clear(),
            Some(name) => kernels.retain(|p| p.op.name == name || p.kernel.name == name),
        }
        if instructions.cases().is_empty() && kernels.is_empty() {
            bail!(
                "`{}` begins no instruction's name and is no op; see `atlas list`, or name an instruction such as \
                 add.rn.f32",
                only.unwrap_or_default()
            );
        }
        Ok(SelectedItems { instructions, kernels })
    }
}

impl Section {
    fn count(&self, verdict: Verdict) -> usize {
        self.rows.iter().filter(|row| row.verdict == verdict).count()
    }

    fn agrees(&self) -> bool {
        self.stopped.is_none() && self.count(Verdict::Disagrees) == 0
    }

    /// Counts, and all rows except bit-equal ones without details.
    fn json(&self) -> Value {
        let told = self.rows.iter().filter(|row| row.verdict != Verdict::Equal || !row.details.is_null());
        let rows: Vec<Value> = told
            .map(|row| json!({ "name": row.name, "verdict": row.verdict.name(), "details": row.details }))
            .collect();
        json!({
            "compared": self.rows.len(),
            "bit_equal": self.count(Verdict::Equal),
            "within_bound": self.count(Verdict::Within),
            "disagree": self.count(Verdict::Disagrees),
            "stopped": self.stopped,
            "rows": rows,
        })
    }

    fn summary(&self) -> String {
        format!(
            "{} compared: {} bit-equal, {} within their bound, {} disagree",
            self.rows.len(),
            self.count(Verdict::Equal),
            self.count(Verdict::Within),
            self.count(Verdict::Disagrees)
        )
    }
}

fn report(device: &Device, instructions: &Section, kernels: &Section) -> Value {
    json!({
        "device": device.to_string(),
        "driver": device.driver_version().map(|(major, minor)| format!("{major}.{minor}")),
        "instructions": instructions.json(),
        "kernels": kernels.json(),
    })
}

fn print(what: &str, section: &Section) {
    if section.rows.is_empty() && section.stopped.is_none() {
        return;
    }
    for row in section.rows.iter().filter(|row| row.verdict == Verdict::Disagrees) {
        say!("{}: {}", row.name, row.details);
    }
    say!("{what}: {}", section.summary());
    if let Some(why) = &section.stopped {
        say!("{what}: stopped: {why}");
    }
}

/// A progress callback that prints only some steps, to keep a log short.
fn every(count: usize, total: usize) -> impl FnMut(&str) {
    let mut progress = Progress::new(total.div_ceil(count));
    let mut done = 0;
    move |what| {
        if done % count == 0 {
            progress.step(what);
        }
        done += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(only: Option<&str>) -> (usize, Vec<&'static str>) {
        let chosen = SelectedItems::new(only).unwrap();
        let mut kernels: Vec<&str> = chosen.kernels.iter().map(|p| p.kernel.name).collect();
        kernels.dedup();
        (chosen.instructions.cases().len(), kernels)
    }

    #[test]
    fn only_chooses() {
        let (all, _) = names(None);
        assert!(all > 1000 && names(Some("instructions")) == (all, vec![]));
        assert_eq!(names(Some("kernels")).0, 0);
        let (adds, kernels) = names(Some("add."));
        assert!(0 < adds && adds < all && kernels.is_empty());
        assert_eq!(names(Some("poly3")), (0, vec!["poly3"; 1]));
        let Err(error) = SelectedItems::new(Some("gemm")) else { panic!("there is no gemm") };
        assert!(error.to_string().contains("`gemm` begins no instruction's name"), "{error}");
    }

    #[test]
    fn the_report_counts_and_lists_what_is_not_equal() {
        let row = |verdict, details: Value| ComparisonRow { name: "add.u32".to_owned(), verdict, details };
        let rows = vec![
            row(Verdict::Equal, Value::Null),
            row(Verdict::Within, json!({ "elements": 3 })),
            row(Verdict::Disagrees, json!({ "error": "no module" })),
        ];
        let mut section = Section { rows, stopped: None };
        assert!(!section.agrees());
        let report = section.json();
        assert_eq!(report["compared"], 3);
        assert_eq!(
            (&report["bit_equal"], &report["within_bound"], &report["disagree"]),
            (&json!(1), &json!(1), &json!(1))
        );
        assert_eq!(report["rows"].as_array().map(Vec::len), Some(2));
        assert_eq!(report["rows"][1]["details"]["error"], "no module");
        section.rows.pop();
        assert!(section.agrees());
        section.stopped = Some("a fault".to_owned());
        assert!(!section.agrees());
    }
}
