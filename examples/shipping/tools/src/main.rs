//! Every verb of `atlas`, over these kernels too.

use shipping_kernels as _;

fn main() -> std::process::ExitCode {
    atlas_cli::main()
}
