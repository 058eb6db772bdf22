//! The command line of `atlas`, also for these kernels.

use shipping_kernels as _;

fn main() -> std::process::ExitCode {
    atlas_cli::main()
}
