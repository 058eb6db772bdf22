//! `cargo xtask test`: runs every check that needs no GPU, and times each.

pub(crate) mod timed;

use self::timed::Timed;
use crate::command::{WITH_LLVM, WITHOUT_LLVM};
use crate::{command, setup, tidy, validate, wheel};
use anyhow::{Context, Result, bail};
use std::fmt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// The arguments of the task.
#[derive(clap::Args)]
pub(crate) struct TestArgs {
    /// Stop at the first step that fails, instead of running the later ones too.
    #[arg(long)]
    fail_fast: bool,
    /// Run only the steps with these names.
    #[arg(long, value_delimiter = ',', value_name = "STEP")]
    only: Vec<String>,
}

/// What a step needs, and what it leaves for the summary.
struct Run<'r> {
    root: &'r Path,
    /// The times of its tests.
    times: Vec<Timed>,
    /// What its failed tests printed.
    output: Vec<String>,
    /// Why it was skipped, in whole or in part.
    skipped: Option<String>,
}

type StepFn = fn(&mut Run<'_>) -> Result<()>;

/// Packages for the development of Atlas alone.
const UNPUBLISHED: [&str; 2] = ["xtask", "atlas-gpu-interp"];

/// Unit tests and tests of whole packages, without the examples in documentation.
const TESTS: [&str; 1] = ["--tests"];

/// The tests that plant mistakes.
const MUTATIONS: &str = "mutations::";

/// How many of the slowest tests the summary names.
const SLOWEST: usize = 10;

/// The steps in order.
const STEPS: [(&str, StepFn); 17] = [
    ("setup", |run| setup::run(run.root, &setup::SetupArgs::default())),
    ("tidy", |run| tidy::run(run.root)),
    ("fmt", |run| command::run(command::cargo(run.root).args(["fmt", "--all", "--check"]))),
    ("deny", deny),
    // What is published has all that it is built from. Nothing is built here: that would take as long as all tests of one package.
    ("package", |run| {
        let mut package = command::cargo(run.root);
        package.args(["package", "--workspace", "--no-verify", "--allow-dirty", "--offline", "--quiet"]);
        command::run(package.args(UNPUBLISHED.iter().flat_map(|name| ["--exclude", name])))
    }),
    ("clippy", |run| clippy(run.root, &[&["--all-targets"][..], &WITH_LLVM].concat())),
    // Exactly what a user of the library builds.
    ("clippy-default", |run| clippy(run.root, &["-p", "atlas-gpu", "-p", "atlas-gpu-runtime", "-p", "atlas-gpu-ops"])),
    ("clippy-without-llvm", |run| {
        clippy(run.root, &[&["--all-targets", "-p", "atlas-gpu-cli"][..], &WITHOUT_LLVM].concat())
    }),
    ("test", |run| {
        run.test(&[&WITH_LLVM[..], &TESTS].concat(), &["--skip", MUTATIONS])?;
        run.documents(&WITH_LLVM)
    }),
    ("mutations", |run| run.test(&[&WITH_LLVM[..], &["--test", "main"]].concat(), &[MUTATIONS])),
    // What users without LLVM run: the C library, and devices that have no compiler.
    ("without-llvm", |run| {
        run.test(&[&WITHOUT_LLVM[..], &TESTS].concat(), &[])?;
        run.test(&["-p", "atlas-gpu-runtime", "--features", "sim", "--test", "suite"], &[])?;
        run.documents(&WITHOUT_LLVM)
    }),
    ("candle", candle),
    // The step `test` has built the program that makes its bundle.
    ("python", |run| {
        run.skipped = wheel::test(run.root)?;
        Ok(())
    }),
    ("examples", examples),
    ("shipping", shipping),
    ("doc", |run| {
        let flags = std::env::var("RUSTDOCFLAGS").unwrap_or_default();
        let mut doc = command::cargo(run.root);
        doc.args(["doc", "--workspace", "--no-deps", "--features", "atlas-gpu/verify,atlas-gpu-cli/jit"]);
        command::run(doc.env("RUSTDOCFLAGS", format!("{flags} -D warnings").trim()))
    }),
    ("validate", |run| validate::run(run.root, &validate::ValidateArgs::default())),
];

impl Run<'_> {
    /// Runs tests, and keeps their times and what those print that fail.
    fn test(&mut self, args: &[&str], of_tests: &[&str]) -> Result<()> {
        let tested = timed::run(self.root, args, of_tests)?;
        self.times.extend(tested.times);
        self.output.extend(tested.output);
        tested.failed.map_or(Ok(()), Err)
    }

    /// Runs the examples in documentation.
    fn documents(&self, packages: &[&str]) -> Result<()> {
        command::run(command::cargo(self.root).args(["test", "--quiet", "--no-fail-fast", "--doc"]).args(packages))
    }
}

fn clippy(root: &Path, packages: &[&str]) -> Result<()> {
    let mut clippy: Command = command::cargo(root);
    clippy.args(["clippy", "--quiet"]).args(packages);
    command::run(clippy.args(["--", "-D", "warnings"]))
}

/// Arguments that make an example short which takes minutes without them.
const SHORTER: [(&str, &[&str]); 1] = [("08_learning", &["--check", "--steps", "3"])];

/// Runs each example. It compares its results with a plain loop and fails if they differ.
fn examples(run: &mut Run<'_>) -> Result<()> {
    let root = run.root;
    command::run(command::cargo(root).args(["build", "--quiet", "--examples"]).args(WITH_LLVM))?;
    let folder = command::target_dir(root)?.join("debug/examples");
    let entries = std::fs::read_dir(root.join("examples")).context("cannot read the folder examples")?;
    let files = entries.flatten().map(|e| e.path()).filter(|p| p.extension().is_some_and(|e| e == "rs"));
    let mut names: Vec<String> = files.filter_map(|p| Some(p.file_stem()?.to_str()?.to_owned())).collect();
    names.sort();
    names.iter().try_for_each(|name| {
        let shorter = SHORTER.iter().find(|(of, _)| of == name).map_or(&[][..], |(_, args)| *args);
        command::run(Command::new(folder.join(name)).args(shorter).current_dir(root))
    })
}

/// The manifest of the operations on tensors of candle, which are a workspace of their own.
const CANDLE: &str = "bindings/candle/Cargo.toml";

/// Tests the operations on tensors of candle, and runs their example. Lints are left out: for them, candle would be compiled once more.
fn candle(run: &mut Run<'_>) -> Result<()> {
    let root = run.root;
    let manifest = root.join(CANDLE).display().to_string();
    if !command::succeeds(command::cargo(root).args(["fetch", "--quiet", "--manifest-path", &manifest])) {
        run.skipped = Some("candle cannot be downloaded".to_owned());
        return Ok(());
    }
    let mut fmt = command::cargo(root);
    command::run(fmt.args(["fmt", "--all", "--check", "--manifest-path", &manifest]))?;
    // Crates that the workspace has compiled in the same version are not compiled again.
    let target = command::target_dir(root)?.display().to_string();
    let place = ["--manifest-path", &manifest, "--target-dir", &target];
    run.test(&[&place[..], &TESTS].concat(), &[])?;
    command::run(command::cargo(root).args(["test", "--quiet", "--doc"]).args(place))?;
    command::run(command::cargo(root).args(["run", "--quiet", "--example", "teacher"]).args(place))
}

/// Builds and runs the example of a program without a compiler. Its build script has one.
fn shipping(run: &mut Run<'_>) -> Result<()> {
    let root = run.root;
    let manifest = root.join("examples/shipping/Cargo.toml").display().to_string();
    // The lock file has the versions of the workspace's, so that most crates from the registry are compiled already.
    let target = command::target_dir(root)?.display().to_string();
    let mut fmt = command::cargo(root);
    command::run(fmt.args(["fmt", "--all", "--check", "--manifest-path", &manifest]))?;
    // A build script has no debug information. Where the tools have none either, both use the same crates.
    let cargo = || {
        let mut cargo = command::cargo(root);
        cargo.env("CARGO_PROFILE_DEV_DEBUG", "false");
        cargo.args(["run", "--quiet", "--manifest-path", &manifest, "--target-dir", &target]);
        cargo
    };
    command::run(&mut cargo())?;
    let records = root.join("examples/shipping/records").display().to_string();
    let mut tools = cargo();
    tools.args(["-p", "shipping-tools", "--", "tune", "--check", "--records", &records, "--device", "cpu"]);
    command::run(&mut tools)
}

/// Licences, sources and known vulnerabilities of the dependencies. The tool is not part of the set-up, and the list of
/// vulnerabilities is a download.
fn deny(run: &mut Run<'_>) -> Result<()> {
    if !command::works("cargo", &["deny", "--version"]) {
        run.skipped = Some("cargo-deny is not installed".to_owned());
        return Ok(());
    }
    let deny = |manifest: &str, args: &[&str]| {
        let mut deny = command::cargo(run.root);
        deny.args(["deny", "--manifest-path", &run.root.join(manifest).display().to_string()]).args(args);
        deny
    };
    let manifests = ["Cargo.toml", CANDLE];
    for manifest in manifests {
        command::run(&mut deny(manifest, &["check", "licenses", "bans", "sources"]))?;
    }
    if !command::succeeds(&mut deny(manifests[0], &["fetch", "db"])) {
        run.skipped = Some("without the list of vulnerabilities, which cannot be downloaded".to_owned());
        return Ok(());
    }
    manifests.iter().try_for_each(|manifest| command::run(&mut deny(manifest, &["check", "advisories"])))
}

/// Runs every step. Fails if any step fails.
pub(crate) fn run(root: &Path, args: &TestArgs) -> Result<()> {
    if let Some(unknown) = args.only.iter().find(|name| !STEPS.iter().any(|(step, _)| step == name)) {
        let known: Vec<&str> = STEPS.iter().map(|(name, _)| *name).collect();
        bail!("no step is called `{unknown}`; the steps are {}", known.join(", "));
    }
    let start = Instant::now();
    let (mut rows, mut times, mut output) = (Vec::new(), Vec::new(), Vec::new());
    for (name, check) in STEPS {
        if !args.only.is_empty() && !args.only.iter().any(|o| o == name) {
            continue;
        }
        println!("== {name}");
        let (begun, spent) = (Instant::now(), cpu_seconds());
        let mut run = Run { root, times: Vec::new(), output: Vec::new(), skipped: None };
        let outcome = match check(&mut run) {
            Ok(()) => run.skipped.map_or(Outcome::Ok, Outcome::Skipped),
            Err(e) => Outcome::Failed(format!("{e:#}")),
        };
        if let Outcome::Failed(text) = &outcome {
            eprintln!("error: {text}");
        }
        let cpu = cpu_seconds().zip(spent).map(|(now, before)| now - before);
        let row = StepResult { name, time: begun.elapsed(), cpu, outcome };
        println!("== {row}\n");
        times.extend(run.times.into_iter().map(|t| (name, t)));
        output.extend(run.output);
        let stop = row.failed() && args.fail_fast;
        rows.push(row);
        if stop {
            break;
        }
    }
    if !times.is_empty() {
        println!("the slowest tests\n{}", timed::slowest(times, SLOWEST));
    }
    // Once more, for what stands between is long.
    output.iter().for_each(|line| println!("{line}"));
    rows.iter().for_each(|row| println!("{row}"));
    println!("{:<14} {:>8.1} s", "total", start.elapsed().as_secs_f64());
    let failed: Vec<&str> = rows.iter().filter(|r| r.failed()).map(|r| r.name).collect();
    if !failed.is_empty() {
        bail!("failed: {}", failed.join(", "));
    }
    Ok(())
}

/// Seconds of processors that the programs took which this one has started and seen end. Unlike the time, they do not depend on
/// what else a machine does. Nothing where the system does not say.
fn cpu_seconds() -> Option<f64> {
    /// The ticks of a second in what Linux says of processes.
    const TICKS: f64 = 100.0;
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    // The name of the program is in parentheses, and may have any character. The times of children are fields 16 and 17.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(13);
    let [user, system]: [f64; 2] = [fields.next()?.parse().ok()?, fields.next()?.parse().ok()?];
    Some((user + system) / TICKS)
}

/// What a step came to.
enum Outcome {
    Ok,
    /// Not everything was checked, for this reason.
    Skipped(String),
    /// The reason.
    Failed(String),
}

/// A step in the summary.
struct StepResult {
    name: &'static str,
    time: Duration,
    /// Seconds of processors.
    cpu: Option<f64>,
    outcome: Outcome,
}

impl StepResult {
    fn failed(&self) -> bool {
        matches!(self.outcome, Outcome::Failed(_))
    }
}

impl fmt::Display for StepResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:<14} {:>8.1} s  ", self.name, self.time.as_secs_f64())?;
        if let Some(cpu) = self.cpu {
            write!(f, "{cpu:>8.1} s of CPU  ")?;
        }
        match &self.outcome {
            Outcome::Ok => write!(f, "ok"),
            Outcome::Skipped(why) => write!(f, "skipped: {why}"),
            Outcome::Failed(why) => write!(f, "FAILED: {}", why.lines().next().unwrap_or_default()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Outcome, STEPS, StepResult, cpu_seconds};
    use std::time::Duration;

    #[test]
    fn the_summary_names_each_step_and_its_first_line_of_failure() {
        let of =
            |cpu, outcome| StepResult { name: "tidy", time: Duration::from_millis(1500), cpu, outcome }.to_string();
        let row = |outcome| of(None, outcome);
        assert_eq!(row(Outcome::Ok), "tidy                1.5 s  ok");
        assert_eq!(of(Some(2.5), Outcome::Ok), "tidy                1.5 s       2.5 s of CPU  ok");
        assert_eq!(row(Outcome::Failed("a\nb".to_owned())), "tidy                1.5 s  FAILED: a");
        assert_eq!(row(Outcome::Skipped("no net".to_owned())), "tidy                1.5 s  skipped: no net");
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn what_children_compute_counts() {
        let before = cpu_seconds().unwrap();
        let counts = "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done";
        assert!(std::process::Command::new("sh").args(["-c", counts]).status().unwrap().success());
        assert!(cpu_seconds().unwrap() > before);
    }

    #[test]
    fn steps_have_names_of_their_own() {
        let names: std::collections::BTreeSet<&str> = STEPS.iter().map(|(name, _)| *name).collect();
        assert_eq!(names.len(), STEPS.len());
    }
}
