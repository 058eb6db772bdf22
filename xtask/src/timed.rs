//! Runs tests, and notes how long each of them takes.
//!
//! libtest prints the time of a test with an option that only nightly toolchains accept, unless `RUSTC_BOOTSTRAP` is set.
//! Set for cargo, the variable would change what build scripts make and rebuild everything. So cargo is told to start test
//! binaries by this program ([`start`]), which sets the variable for them alone.

use crate::command;
use anyhow::{Context, Result, bail};
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

/// Runs tests by `cargo test` with these arguments, and returns the times of those that passed. Lines about tests that pass
/// are not printed.
pub(crate) fn run(root: &Path, args: &[&str], of_tests: &[&str]) -> Result<Vec<Timed>> {
    let mut test = command::cargo(root);
    test.args(["test", "--quiet", "--no-fail-fast"]).args(args);
    let this = std::env::current_exe().context("this program has no path")?;
    let runner = format!("target.\"cfg(all())\".runner = [{:?}, {VERB:?}]", this.display().to_string());
    test.args(["--config", &runner, "--", "--format=pretty"]).args(of_tests);
    println!("+ {}", command::text(&test));
    let mut child = test.stdout(Stdio::piped()).spawn().context("cannot start cargo")?;
    let mut times = Vec::new();
    for line in child.stdout.take().map(BufReader::new).into_iter().flat_map(BufRead::lines) {
        let line = line.context("the output of tests is not text")?;
        match passed(&line) {
            Some(timed) => times.extend(timed),
            None if line.is_empty() || line.starts_with("running ") => {}
            None => println!("{line}"),
        }
    }
    let status = child.wait().context("cannot wait for cargo")?;
    if !status.success() {
        bail!("`{}` failed ({status})", command::text(&test));
    }
    Ok(times)
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
    use super::{Timed, passed, slowest};

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
    fn the_slowest_come_first() {
        let times = vec![("test", timed("a", 1.0)), ("test-llvm", timed("b", 20.0)), ("test", timed("c", 3.0))];
        assert_eq!(slowest(times, 2), "test-llvm        20.0 s  b\ntest              3.0 s  c\n");
    }
}
