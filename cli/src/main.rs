//! The command line for the kernels that ship with Atlas.

use std::process::ExitCode;

fn main() -> ExitCode {
    atlas_cli::main()
}
