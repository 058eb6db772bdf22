//! `cargo xtask demo`: builds the command line, then runs `atlas demo`.

use crate::{command, setup};
use anyhow::Result;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

/// The arguments of the task.
#[derive(clap::Args)]
pub(crate) struct DemoArgs {
    /// Passed on to `atlas demo`.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    rest: Vec<String>,
}

/// Sets up, builds and runs.
pub(crate) fn run(root: &Path, args: &DemoArgs) -> Result<()> {
    let start = Instant::now();
    setup::llvm()?;
    // The demo runs without ptxas. Only the columns for registers and spills need it.
    let ptxas = setup::ptxas(root);
    if let Err(e) = &ptxas {
        println!("setup: {e:#}; the demo goes on without");
    }
    let set_up = start.elapsed();
    command::run(command::cargo(root).args([
        "build",
        "--release",
        "-p",
        "atlas-gpu-cli",
        "--bin",
        "atlas",
        "--features",
        "jit",
    ]))?;
    let built = start.elapsed();
    let mut demo = Command::new(command::target_dir(root)?.join("release/atlas"));
    demo.current_dir(root).arg("demo").args(&args.rest);
    if let Ok(path) = ptxas {
        demo.env("ATLAS_PTXAS", path);
    }
    let done = command::run(&mut demo);
    println!(
        "set-up {:.1} s, build {:.1} s, demo {:.1} s",
        set_up.as_secs_f64(),
        (built - set_up).as_secs_f64(),
        (start.elapsed() - built).as_secs_f64()
    );
    done
}
