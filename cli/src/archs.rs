//! GPUs and targets that the user typed, by the names of their architectures.

use anyhow::{Result, bail};
use atlas_codegen::{Machine, Platform};

/// A GPU by its arch.
pub(super) fn machine(text: &str) -> Result<Machine> {
    text.parse().map_err(|e: String| anyhow::anyhow!("--arch: {e}"))
}

/// GPUs by their archs, each once.
pub(super) fn machines(archs: &[String]) -> Result<Vec<Machine>> {
    once("--arch", archs)?;
    archs.iter().map(|text| machine(text)).collect()
}

/// Refuses an option's list that names something twice.
pub(super) fn once(option: &str, list: &[String]) -> Result<()> {
    if list.iter().any(|one| one.trim().is_empty()) {
        bail!("{option} has nothing before or after a comma");
    }
    match list.iter().enumerate().find(|(at, one)| list[..*at].contains(one)) {
        Some((_, twice)) => bail!("{option} names {twice} twice"),
        None => Ok(()),
    }
}

/// A GPU by its arch, or a target by its name.
pub(super) fn platform(text: &str) -> Result<Platform> {
    text.parse().map_err(|e: String| anyhow::anyhow!("--arch: {e}"))
}
