//! Runs tests, and notes how long each of them takes.
//!
//! libtest prints the time of a test with an option that only nightly toolchains accept, unless `RUSTC_BOOTSTRAP` is set.
//! Set for cargo, the variable would change what build scripts make and rebuild everything. So cargo is told to start test
//! binaries by this program ([`start`]), which sets the variable for them alone.

use crate::command;
use anyhow::{Context, Result, anyhow, bail};
use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

/// The verb by which cargo starts test binaries.
pub(crate) const VERB: &str = "start-test";

/// The arguments of the verb.
#[derive(clap::Args)]
pub(crate) struct TimedArgs {
    /// The test binary and its arguments.
    #[arg(required = true, num_args = 1.., trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<OsString>,
}

/// A test, and the seconds that it took.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Timed {
    pub(crate) name: String,
    pub(crate) seconds: f64,
}

/// What came of tests.
#[derive(Debug, Default)]
pub(crate) struct Tested {
    /// The times of those that passed.
    pub(crate) times: Vec<Timed>,
    /// What cargo says of it if one failed.
    pub(crate) failed: Option<anyhow::Error>,
    /// What the failed tests printed, a line each.
    pub(crate) output: Vec<String>,
}

/// Runs tests by `cargo test` with these arguments. Lines about tests that pass are not printed.
pub(crate) fn run(root: &Path, args: &[&str], of_tests: &[&str]) -> Result<Tested> {
    let mut test = command::cargo(root);
    test.args(["test", "--quiet", "--no-fail-fast"]).args(args);
    let this = std::env::current_exe().context("this program has no path")?;
    let runner = format!("target.\"cfg(all())\".runner = [{:?}, {VERB:?}]", this.display().to_string());
    test.args(["--config", &runner, "--", "--format=pretty"]).args(of_tests);
    println!("+ {}", command::text(&test));
    let mut child = test.stdout(Stdio::piped()).spawn().context("cannot start cargo")?;
    let mut tested = Tested::default();
    let mut failures = Failures::default();
    for line in child.stdout.take().map(BufReader::new).into_iter().flat_map(BufRead::lines) {
        let line = line.context("the output of tests is not text")?;
        match passed(&line) {
            Some(timed) => tested.times.extend(timed),
            None if line.is_empty() || line.starts_with("running ") => {}
            None => {
                println!("{line}");
                failures.read(line);
            }
        }
    }
    let status = child.wait().context("cannot wait for cargo")?;
    if !status.success() {
        tested.failed = Some(anyhow!("`{}` failed ({status})", command::text(&test)));
        tested.output = failures.lines;
    }
    Ok(tested)
}

/// How many lines of a failed test are kept for the summary.
const LINES: usize = 30;

/// The outputs of failed tests, which libtest prints after all tests of a binary.
#[derive(Default)]
struct Failures {
    lines: Vec<String>,
    /// How many lines of the test that is being read are kept; `None` outside a test.
    kept: Option<usize>,
}

impl Failures {
    fn read(&mut self, line: String) {
        if line.starts_with("---- ") {
            self.kept = Some(0);
        } else if line == "failures:" || line.starts_with("test ") {
            self.kept = None;
        }
        if let Some(kept) = self.kept.as_mut().filter(|kept| **kept < LINES) {
            *kept += 1;
            self.lines.push(line);
        }
    }
}

/// For the line of a test that passed or was ignored, its time if it has one; for other lines `None`.
fn passed(line: &str) -> Option<Option<Timed>> {
    let (name, outcome) = line.strip_prefix("test ")?.split_once(" ... ")?;
    let seconds = outcome.strip_prefix("ok").or_else(|| outcome.strip_prefix("ignored"))?;
    let seconds = seconds.trim().strip_prefix('<').and_then(|s| s.strip_suffix("s>")).and_then(|s| s.parse().ok());
    Some(seconds.map(|seconds| Timed { name: name.to_owned(), seconds }))
}

/// Starts a test binary as cargo would, and asks it for times.
pub(crate) fn start(args: &TimedArgs) -> Result<()> {
    let (binary, rest) = args.command.split_first().context("no test binary is named")?;
    let mut test = Command::new(binary);
    test.args(rest);
    // The variable would reach the cargo that trybuild starts.
    let starts_cargo = Path::new(binary).file_stem().is_some_and(|name| name.to_string_lossy().starts_with("ui-"));
    if !starts_cargo {
        test.env("RUSTC_BOOTSTRAP", "1").args(["-Zunstable-options", "--report-time"]);
    }
    let status = test.status().with_context(|| format!("cannot start {}", binary.display()))?;
    if !status.success() {
        bail!("{}: {status}", binary.display());
    }
    Ok(())
}

/// The tests that took longest, slowest first, one a line.
pub(crate) fn slowest(mut times: Vec<(&str, Timed)>, count: usize) -> String {
    times.sort_by(|(_, a), (_, b)| b.seconds.total_cmp(&a.seconds));
    let line = |(step, t): &(&str, Timed)| format!("{step:<12} {:>8.1} s  {}\n", t.seconds, t.name);
    times.iter().take(count).map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::{Failures, LINES, Timed, passed, slowest};

    fn timed(name: &str, seconds: f64) -> Timed {
        Timed { name: name.to_owned(), seconds }
    }

    #[test]
    fn times_are_read_from_the_lines_of_tests() {
        assert_eq!(passed("test a::b ... ok <1.250s>"), Some(Some(timed("a::b", 1.25))));
        assert_eq!(passed("test a::b ... ok"), Some(None));
        assert_eq!(passed("test a::b ... ignored, too slow"), Some(None));
        for other in ["test a::b ... FAILED <0.1s>", "running 3 tests", "test result: ok. 3 passed", "anything"] {
            assert_eq!(passed(other), None, "{other}");
        }
    }

    #[test]
    fn the_output_of_failed_tests_is_kept() {
        let mut failures = Failures::default();
        let long = (0..LINES + 5).map(|i| format!("line {i}"));
        let lines = ["test a ... FAILED", "failures:", "---- a stdout ----", "why"].map(str::to_owned).into_iter();
        let ends = ["---- b stdout ----", "and why", "failures:", "    a", "test result: FAILED"].map(str::to_owned);
        lines.chain(long).chain(ends).for_each(|line| failures.read(line));
        let kept = failures.lines;
        assert_eq!(kept.len(), LINES + 2);
        assert_eq!((kept[0].as_str(), kept[1].as_str()), ("---- a stdout ----", "why"));
        assert_eq!(&kept[LINES..], ["---- b stdout ----", "and why"]);
    }

    #[test]
    fn the_slowest_come_first() {
        let times = vec![("test", timed("a", 1.0)), ("test-llvm", timed("b", 20.0)), ("test", timed("c", 3.0))];
        assert_eq!(slowest(times, 2), "test-llvm        20.0 s  b\ntest              3.0 s  c\n");
    }
}
