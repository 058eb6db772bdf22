//! `atlas wheel`: a Python package of a library of kernels, such as a crate with `atlas_c::export!` builds.
//!
//! The package has the library, a bundle if there is one, and functions with the names of the kernels, for arrays of NumPy and tensors of
//! PyTorch. It needs nothing of Atlas where it is installed.
//!
//! | module | holds |
//! |---|---|
//! | `library` | the functions in a library's file, and which systems it runs on |
//! | `signature` | parameters of a kernel for Python |
//! | `package`, `python_names` | the files of the package; names that Python has taken |
//! | `archive` | the wheel: an archive with a list of its files |

mod archive;
mod library;
mod package;
mod python_names;
mod signature;

use self::library::Library;
use self::package::Package;
use super::print::{say, tell};
use anyhow::{Context, Result};
use atlas_runtime::bundle::Bundle;
use std::path::PathBuf;

/// The arguments of the verb.
#[derive(clap::Args)]
pub(super) struct WheelArgs {
    /// The shared library of a crate with `atlas_c::export!`, such as target/release/libmine.so.
    library: PathBuf,
    /// The name to import: small letters, digits and underscores. Without it, that of the library's file.
    #[arg(long)]
    name: Option<String>,
    /// The version of the package.
    #[arg(long, default_value = "0.1.0")]
    version: String,
    /// What the package is, in one line.
    #[arg(long)]
    summary: Option<String>,
    /// A file of compiled kernels, as `atlas bundle` writes it, for GPUs. A library without LLVM runs no others there.
    #[arg(long, value_name = "FILE")]
    bundle: Option<PathBuf>,
    /// The folder for the wheel.
    #[arg(long, value_name = "DIR", default_value = ".")]
    out_dir: PathBuf,
}

/// Writes the wheel.
pub(super) fn run(args: &WheelArgs) -> Result<bool> {
    let bytes = std::fs::read(&args.library).with_context(|| format!("cannot read {}", args.library.display()))?;
    let library = Library::read(&args.library, &bytes)?;
    let name = match &args.name {
        Some(name) => name.clone(),
        None => package::name_of(&args.library).with_context(|| {
            format!("--name is missing, and {} is no lib*.so with a name for Python", args.library.display())
        })?,
    };
    let bundle = match &args.bundle {
        Some(path) => {
            let bytes = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
            Bundle::read(&path.display().to_string(), bytes.clone())?;
            Some(bytes)
        }
        None => None,
    };
    let package = Package {
        name: &name,
        version: &args.version,
        summary: args.summary.as_deref().unwrap_or("Kernels compiled by Atlas."),
        library: &library,
        bytes: &bytes,
        bundle: bundle.as_deref(),
    };
    package.check()?;
    let wheel = archive::write(&package, &args.out_dir)?;
    if !library.foreign.is_empty() {
        tell!(
            "warning: the library needs {}, which not every Linux has, so the tag of the wheel is {}, and an index takes no such wheels",
            library.foreign.join(", "),
            library.tag
        );
    }
    let size = std::fs::metadata(&wheel).map_or(0, |m| m.len());
    say!("{}: {} functions, {:.1} MB", wheel.display(), library.functions.len(), size as f64 / 1e6);
    Ok(true)
}
