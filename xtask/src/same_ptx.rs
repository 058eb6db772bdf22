//! `cargo xtask static`: builds the binary with LLVM linked in, and compares its PTX with that of the test build.

use crate::{command, validate};
use anyhow::{Context, Result, bail};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The arguments of the task.
#[derive(clap::Args)]
pub(crate) struct SamePtxArgs {
    /// Compare with this binary instead of building one.
    #[arg(long, value_name = "ATLAS")]
    binary: Option<PathBuf>,
}

/// Builds both binaries and compares the PTX of every shipped kernel.
pub(crate) fn run(root: &Path, args: &SamePtxArgs) -> Result<()> {
    let target = command::target_dir(root)?;
    let linked_in = match &args.binary {
        Some(path) => std::path::absolute(path).with_context(|| format!("no binary at {}", path.display()))?,
        None => {
            let build = ["build", "--release", "-p", "atlas-gpu-cli", "--bin", "atlas", "--features", "static-llvm"];
            command::run(command::cargo(root).args(build))?;
            target.join("release/atlas")
        }
    };
    let shared = validate::build(root)?;
    let (a, b) = (target.join("same-ptx/shared"), target.join("same-ptx/static"));
    validate::compile(root, &shared, &a)?;
    validate::compile(root, &linked_in, &b)?;
    let n = compare(&files(&a)?, &files(&b)?)?;
    println!("static: {n} files are byte-identical");
    Ok(())
}

type Files = BTreeMap<PathBuf, Vec<u8>>;

/// Every file below a folder, by its relative path.
fn files(folder: &Path) -> Result<Files> {
    let mut files = Files::new();
    let mut open = vec![folder.to_owned()];
    while let Some(dir) = open.pop() {
        let entries = std::fs::read_dir(&dir).with_context(|| format!("cannot read {}", dir.display()))?;
        for path in entries.flatten().map(|e| e.path()) {
            if path.is_dir() {
                open.push(path);
            } else {
                let bytes = std::fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
                files.insert(path.strip_prefix(folder).unwrap_or(&path).to_owned(), bytes);
            }
        }
    }
    Ok(files)
}

/// Returns the number of files. Both sides must have the same files, byte for byte.
fn compare(a: &Files, b: &Files) -> Result<usize> {
    let names: std::collections::BTreeSet<&PathBuf> = a.keys().chain(b.keys()).collect();
    let other: Vec<String> =
        names.into_iter().filter(|name| a.get(*name) != b.get(*name)).map(|name| name.display().to_string()).collect();
    if !other.is_empty() {
        bail!("{} files differ: {}", other.len(), other.join(", "));
    }
    if a.is_empty() {
        bail!("nothing was compiled");
    }
    Ok(a.len())
}

#[cfg(test)]
mod tests {
    use super::{Files, compare, files};

    #[test]
    fn one_byte_and_one_file_make_a_difference() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("sm_80")).unwrap();
        std::fs::write(dir.path().join("sm_80/a.ptx"), "ret;").unwrap();
        let a = files(dir.path()).unwrap();
        assert_eq!(compare(&a, &a).unwrap(), 1);
        std::fs::write(dir.path().join("sm_80/a.ptx"), "ret; ").unwrap();
        let b = files(dir.path()).unwrap();
        assert!(compare(&a, &b).unwrap_err().to_string().contains("sm_80/a.ptx"));
        assert!(compare(&a, &Files::new()).is_err(), "a file is missing");
        assert!(compare(&Files::new(), &Files::new()).is_err(), "nothing to compare");
    }
}
