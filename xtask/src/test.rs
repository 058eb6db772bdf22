//! `cargo xtask test`: runs every check that needs no GPU, and times each.

use crate::{command, setup, tidy, validate};
use anyhow::{Context, Result, bail};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// The arguments of the task.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Stop at the first step that fails, instead of running the later ones too.
    #[arg(long)]
    fail_fast: bool,
    /// Run only the steps with these names.
    #[arg(long, value_delimiter = ',', value_name = "STEP")]
    only: Vec<String>,
}

type Check = fn(&Path) -> Result<()>;

/// Everything, including the parts that a user of the library does not build.
const WHOLE: [&str; 3] = ["--workspace", "--features", "atlas/verify"];

/// The packages with code under the feature `jit`, and the package with the examples.
const WITH_LLVM: [&str; 10] = [
    "-p",
    "atlas",
    "-p",
    "atlas-cli",
    "-p",
    "atlas-codegen",
    "-p",
    "atlas-runtime",
    "--features",
    "atlas/jit,atlas/verify,atlas-cli/jit",
];

/// The same with known mistakes that a test can plant. Without a planted mistake the compiler is the same, so no crate
/// is built twice.
const WITH_MUTATIONS: [&str; 10] = [
    "-p",
    "atlas",
    "-p",
    "atlas-cli",
    "-p",
    "atlas-codegen",
    "-p",
    "atlas-runtime",
    "--features",
    "atlas/jit,atlas/verify,atlas-cli/jit,atlas-cli/mutations",
];
/// The tests that plant them.
const MUTATIONS: &str = "mutations::";

/// The steps in order: those that need no LLVM first.
const STEPS: [(&str, Check); 13] = [
    ("setup", |root| setup::run(root, &setup::Args::default())),
    ("tidy", tidy::run),
    ("fmt", |root| command::run(command::cargo(root).args(["fmt", "--all", "--check"]))),
    ("clippy", |root| clippy(root, &[&["--all-targets"][..], &WHOLE].concat())),
    // Exactly what a user of the library builds.
    ("clippy-default", |root| clippy(root, &["-p", "atlas", "-p", "atlas-runtime", "-p", "atlas-ops"])),
    ("clippy-llvm", |root| clippy(root, &[&["--all-targets"][..], &WITH_LLVM].concat())),
    ("test", |root| command::run(command::cargo(root).args(["test", "--quiet"]).args(WHOLE))),
    ("test-llvm", |root| {
        let mut test = command::cargo(root);
        test.args(["test", "--quiet"]).args(WITH_MUTATIONS).args(["--", "--skip", MUTATIONS]);
        command::run(&mut test)
    }),
    ("mutations", |root| {
        let mut test = command::cargo(root);
        test.args(["test", "--quiet"]).args(WITH_MUTATIONS).args(["--test", "main", "--", MUTATIONS]);
        command::run(&mut test)
    }),
    ("examples", examples),
    ("shipping", shipping),
    ("doc", |root| {
        let flags = std::env::var("RUSTDOCFLAGS").unwrap_or_default();
        let mut doc = command::cargo(root);
        doc.args(["doc", "--workspace", "--no-deps", "--features", "atlas/verify,atlas-cli/jit"]);
        command::run(doc.env("RUSTDOCFLAGS", format!("{flags} -D warnings").trim()))
    }),
    ("validate", |root| validate::run(root, &validate::Args::default())),
];

fn clippy(root: &Path, packages: &[&str]) -> Result<()> {
    let mut clippy: Command = command::cargo(root);
    clippy.args(["clippy", "--quiet"]).args(packages);
    command::run(clippy.args(["--", "-D", "warnings"]))
}

/// Runs each example. It compares its results with a plain loop and fails if they differ.
fn examples(root: &Path) -> Result<()> {
    let entries = std::fs::read_dir(root.join("examples")).context("cannot read the folder examples")?;
    let files = entries.flatten().map(|e| e.path()).filter(|p| p.extension().is_some_and(|e| e == "rs"));
    let mut names: Vec<String> = files.filter_map(|p| Some(p.file_stem()?.to_str()?.to_owned())).collect();
    names.sort();
    for name in names {
        let mut example = command::cargo(root);
        command::run(example.args(["run", "--quiet", "-p", "atlas", "--features", "jit,verify", "--example", &name]))?;
    }
    Ok(())
}

/// Builds and runs the example of a program without a compiler. Its build script has one.
fn shipping(root: &Path) -> Result<()> {
    let manifest = root.join("examples/shipping/Cargo.toml").display().to_string();
    let target = root.join("target/shipping").display().to_string();
    let mut fmt = command::cargo(root);
    command::run(fmt.args(["fmt", "--all", "--check", "--manifest-path", &manifest]))?;
    let mut program = command::cargo(root);
    command::run(program.args(["run", "--quiet", "--manifest-path", &manifest, "--target-dir", &target]))?;
    let mut tools = command::cargo(root);
    tools.args(["run", "--quiet", "--manifest-path", &manifest, "--target-dir", &target, "-p", "shipping-tools"]);
    let records = root.join("examples/shipping/records").display().to_string();
    command::run(tools.args(["--", "tune", "--check", "--records", &records, "--device", "cpu"]))
}

/// Runs every step. Fails if any step fails.
pub(crate) fn run(root: &Path, args: &Args) -> Result<()> {
    if let Some(unknown) = args.only.iter().find(|name| !STEPS.iter().any(|(step, _)| step == name)) {
        let known: Vec<&str> = STEPS.iter().map(|(name, _)| *name).collect();
        bail!("no step is called `{unknown}`; the steps are {}", known.join(", "));
    }
    let start = Instant::now();
    let mut rows: Vec<(&str, Duration, Option<String>)> = Vec::new();
    for (name, check) in STEPS {
        if !args.only.is_empty() && !args.only.iter().any(|o| o == name) {
            continue;
        }
        println!("== {name}");
        let begun = Instant::now();
        let failure = check(root).err().map(|e| format!("{e:#}"));
        let time = begun.elapsed();
        if let Some(text) = &failure {
            eprintln!("error: {text}");
        }
        println!("== {name}: {} in {:.1} s\n", if failure.is_some() { "FAILED" } else { "ok" }, time.as_secs_f64());
        let stop = failure.is_some() && args.fail_fast;
        rows.push((name, time, failure));
        if stop {
            break;
        }
    }
    print!("{}", summary(&rows));
    println!("{:<12} {:>8.1} s", "total", start.elapsed().as_secs_f64());
    let failed: Vec<&str> = rows.iter().filter(|r| r.2.is_some()).map(|r| r.0).collect();
    if !failed.is_empty() {
        bail!("failed: {}", failed.join(", "));
    }
    Ok(())
}

fn summary(rows: &[(&str, Duration, Option<String>)]) -> String {
    let line = |(name, time, failure): &(&str, Duration, Option<String>)| {
        let what = failure.as_ref().map_or("ok", |text| text.lines().next().unwrap_or("failed"));
        format!("{name:<12} {:>8.1} s  {what}\n", time.as_secs_f64())
    };
    rows.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::{STEPS, summary};
    use std::time::Duration;

    #[test]
    fn the_summary_names_each_step_and_its_first_line_of_failure() {
        let rows = [("tidy", Duration::from_millis(1500), None), ("fmt", Duration::ZERO, Some("a\nb".to_owned()))];
        assert_eq!(summary(&rows), "tidy              1.5 s  ok\nfmt               0.0 s  a\n");
    }

    #[test]
    fn steps_have_names_of_their_own() {
        let names: std::collections::BTreeSet<&str> = STEPS.iter().map(|(name, _)| *name).collect();
        assert_eq!(names.len(), STEPS.len());
    }
}
