//! The project's chores: `cargo xtask setup | test | demo | static | tidy | validate | wheel | diagnostics | book`. Builds without LLVM.
#![warn(clippy::too_many_lines)]

mod book;
mod command;
mod demo;
mod ptxas;
mod resources;
mod same_ptx;
mod setup;
mod test;
mod tidy;
mod validate;
mod wheel;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", about = "The chores of the Atlas repository.")]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Install what is missing: LLVM 22 and NVIDIA's assembler.
    Setup(setup::SetupArgs),
    /// Every check that needs no GPU. CI runs this.
    Test(test::TestArgs),
    /// Build the command line, then compile, run and check the shipped kernels.
    Demo(demo::DemoArgs),
    /// Build the binary with LLVM linked in and compare its PTX with that of the test build.
    Static(same_ptx::SamePtxArgs),
    /// Check the source against the rules of ARCHITECTURE.md.
    Tidy,
    /// Assemble every shipped kernel and compare its resources with the committed table.
    Validate(validate::ValidateArgs),
    /// Build the Python package with the C library inside.
    Wheel(wheel::WheelArgs),
    /// Write the pages about diagnostic codes, and the data of `atlas explain-error`, from the tests.
    Diagnostics,
    /// Render the book with mdbook.
    Book,
    /// Start a test binary and ask it for the time of each test: how `test` has cargo start them.
    #[command(name = test::timed::VERB, hide = true)]
    StartTest(test::timed::TimedArgs),
}

fn main() -> ExitCode {
    // A reader that stops early (`cargo xtask tidy | head`) ends the program quietly, where `println!` would panic.
    sigpipe::reset();
    let root = command::root();
    let done = match Cli::parse().verb {
        Verb::Setup(args) => setup::run(&root, &args),
        Verb::Test(args) => test::run(&root, &args),
        Verb::Demo(args) => demo::run(&root, &args),
        Verb::Static(args) => same_ptx::run(&root, &args),
        Verb::Tidy => tidy::run(&root),
        Verb::Validate(args) => validate::run(&root, &args),
        Verb::Wheel(args) => wheel::run(&root, &args),
        Verb::Diagnostics => tidy::diagnostics::run(&root),
        Verb::Book => book::run(&root),
        Verb::StartTest(args) => test::timed::start(&args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("error: {e:#}");
            ExitCode::FAILURE
        }
    }
}
