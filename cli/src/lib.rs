//! The command line of Atlas, with one file per verb. A user's crate gets the same verbs for its own kernels by calling
//! [`main`] from its `main`.
//!
//! | file | holds |
//! |---|---|
//! | `list`, `compile`, `explain`, `verify`, `bench`, `tune`, `bundle`, `wheel`, `demo`, `doctor` | the verbs |
//! | `explain_error` | what a diagnostic code means |
//! | `differential` | `verify --differential`: a GPU against the simulator |
//! | `fuzz` | random kernels against the interpreter |
//! | `tune` | the search for the best configs |
//! | `bundle` | kernels compiled ahead of time, and their evidence |
//! | `jobs` | problems to tune or to ship |
//! | `oracle`, `roundings` | compares any kernel with the interpreter; how far its roundings move its results |
//! | `archs` | GPUs and targets that the user names |
//! | `artifact` | files of compiled kernels |
//! | `arguments` | tensors for kernels of which only the signature is known |
//! | `input` | the user's arguments, resolved: kernels, dims, dtypes, configs |
//! | `sizes` | sizes of dims that the user gave, and their checks |
//! | `stages` | the one place that calls the code generator |
//! | `counts` | one small run in the simulator, for `explain` |
//! | `simulate` | `verify` in the simulator |
//! | `verify_row` | a row in the results of `verify` |
//! | `sample` | times one problem on a GPU |
//! | `ptxas` | registers and spills, if NVIDIA's assembler is found |
//! | `host_info` | the machine on which a measurement was taken |
//! | `gpu_lock` | one process measures on a GPU at a time |
//! | `sweep` | sizes of one dim, for `explain` and `bench` |
//! | `print` | output to stdout and stderr |
//! | `show` | tables, progress, JSON |
#![warn(clippy::too_many_lines)]
#![forbid(unsafe_code)]

mod archs;
mod arguments;
mod artifact;
mod bench;
mod bench_plans;
mod bundle;
mod compile;
mod counts;
mod demo;
mod differential;
mod doctor;
mod explain;
mod explain_error;
mod fuzz;
mod gpu_lock;
mod host_info;
mod input;
mod jobs;
mod list;
mod oracle;
mod print;
pub mod ptxas;
mod roundings;
mod sample;
mod show;
mod simulate;
mod sizes;
mod stages;
mod sweep;
mod tune;
mod verify;
mod verify_row;
mod wheel;

use self::print::tell;
use atlas_runtime::{CacheDir, standard_streams};
use clap::{Parser, Subcommand};
use std::ffi::OsString;
use std::io::ErrorKind;
use std::process::ExitCode;

#[derive(Parser)]
#[command(name = "atlas", version, about = "A GPU kernel language: compile, explain, verify and measure kernels.")]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Kernels, their dims, dtypes and tune spaces.
    List(list::ListArgs),
    /// Any stage of a kernel as text.
    Compile(compile::CompileArgs),
    /// The chosen config and why; placement and resources.
    Explain(explain::ExplainArgs),
    /// What a diagnostic code means, with an example and what to do.
    ExplainError(explain_error::ExplainErrorArgs),
    /// Every kernel against its f64 reference.
    Verify(verify::VerifyArgs),
    /// Random kernels, compiled and run, against the interpreter.
    Fuzz(fuzz::FuzzArgs),
    /// Measure the kernels on a GPU.
    Bench(bench::BenchArgs),
    /// Search for the best configs, and record them.
    Tune(tune::TuneArgs),
    /// Compile kernels ahead of time into one file, for programs without a compiler.
    Bundle(bundle::BundleArgs),
    /// A Python package of a library of kernels.
    Wheel(wheel::WheelArgs),
    #[command(hide = true)]
    TuneWorker(tune::WorkerArgs),
    /// Compile, run and check the kernels at the sizes of real models.
    Demo(demo::DemoArgs),
    /// What this machine has, what is missing, and how to get it.
    Doctor(doctor::DoctorArgs),
}

impl Verb {
    /// Whether another process of this program started it, which has already printed its warnings.
    fn is_child(&self) -> bool {
        match self {
            Verb::TuneWorker(_) => true,
            Verb::Verify(args) => args.is_child(),
            _ => false,
        }
    }
}

/// Runs the command line of this program over every kernel linked into it.
pub fn main() -> ExitCode {
    let parsed = parse(std::env::args_os());
    // If stdout is closed, Rust's runtime opens `/dev/null` in its place, and the output would be lost without an
    // error.
    if standard_streams::was_closed(1) && !parsed.as_ref().is_err_and(clap::Error::use_stderr) {
        tell!("error: cannot write to stdout: it is closed");
        return ExitCode::FAILURE;
    }
    let verb = match parsed {
        Ok(cli) => cli.verb,
        Err(what) => return print_and_leave(&what),
    };
    // A reader that stops early (`atlas explain .. | head`) ends the program quietly, where `println!` would panic. A
    // search also writes to its workers, and must survive the death of one.
    if !matches!(&verb, Verb::Tune(args) if args.has_workers()) {
        sigpipe::reset();
    }
    if !verb.is_child()
        && let Some(problem) = CacheDir::problem()
    {
        tell!("warning: {problem}");
    }
    match perform(verb, &mut warn_here) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(e) => {
            let text = format!("{e:#}");
            let prefix = if text.starts_with("error") { "" } else { "error: " };
            tell!("{prefix}{text}");
            ExitCode::FAILURE
        }
    }
}

/// Prints the requested help, or the error in the command line.
fn print_and_leave(what: &clap::Error) -> ExitCode {
    let status = u8::try_from(what.exit_code()).map_or(ExitCode::FAILURE, ExitCode::from);
    let printed = what.print().map_err(anyhow::Error::new).and_then(|()| print::finish());
    match printed {
        Err(e) if !what.use_stderr() && !is_closed_pipe(&e) => {
            tell!("error: cannot write to stdout: {}", e.root_cause());
            ExitCode::FAILURE
        }
        _ => status,
    }
}

fn is_closed_pipe(e: &anyhow::Error) -> bool {
    e.downcast_ref::<std::io::Error>().is_some_and(|e| e.kind() == ErrorKind::BrokenPipe)
}

/// Runs a command line, which begins with the program's name, from within another program. Returns false if a check
/// failed.
///
/// # Errors
/// The error that [`main`] would print.
pub fn run<T: Into<OsString> + Clone>(args: impl IntoIterator<Item = T>) -> Result<bool, String> {
    run_with(args, warn_here)
}

/// The same, but warnings of `atlas bundle` go to `warn` instead of being printed, because a build script reports them
/// in its own way.
///
/// # Errors
/// The error that [`main`] would print.
pub fn run_with<T: Into<OsString> + Clone>(
    args: impl IntoIterator<Item = T>,
    mut warn: impl FnMut(&str),
) -> Result<bool, String> {
    let cli = parse(args).map_err(|e| e.to_string())?;
    perform(cli.verb, &mut warn).map_err(|e| format!("{e:#}"))
}

fn parse<T: Into<OsString>>(args: impl IntoIterator<Item = T>) -> Result<Cli, clap::Error> {
    let args: Vec<OsString> = args.into_iter().map(Into::into).collect();
    Cli::try_parse_from(&args).map_err(|error| input::with_tip(error, &args))
}

fn warn_here(what: &str) {
    tell!("warning: {what}");
}

fn perform(verb: Verb, warn: &mut dyn FnMut(&str)) -> anyhow::Result<bool> {
    // These launch problems of their own making, which are not part of the user's program.
    let of_its_own = matches!(verb, Verb::Bundle(_) | Verb::Tune(_) | Verb::TuneWorker(_));
    let paused = of_its_own.then(atlas_runtime::sizes::pause);
    let done = match verb {
        Verb::List(args) => list::run(&args),
        Verb::Compile(args) => compile::run(&args),
        Verb::Explain(args) => explain::run(&args),
        Verb::ExplainError(args) => explain_error::run(&args),
        Verb::Verify(args) => verify::run(&args),
        Verb::Fuzz(args) => fuzz::run(&args),
        Verb::Bench(args) => bench::run(&args),
        Verb::Tune(args) => tune::run(&args),
        Verb::Bundle(args) => bundle::run(&args, warn),
        Verb::Wheel(args) => wheel::run(&args),
        Verb::TuneWorker(args) => tune::work(&args),
        Verb::Demo(args) => demo::run(&args),
        Verb::Doctor(args) => doctor::run(&args),
    };
    if paused.is_none() {
        atlas_runtime::sizes::flush();
    }
    // If both fail, the verb's own error is reported, and the lost output is not.
    let said = print::finish();
    let done = done?;
    said.map(|()| done)
}
