//! GPUs and targets that the user names by their architectures.

use anyhow::{Result, bail};
use atlas_codegen::{Machine, Platform};

/// The machine of an arch.
pub(super) fn machine(text: &str) -> Result<Machine> {
    text.parse().map_err(|e: String| anyhow::anyhow!("--arch: {e}"))
}

/// The machines of several archs. An arch may occur only once.
pub(super) fn machines(archs: &[String]) -> Result<Vec<Machine>> {
    once("--arch", archs)?;
    archs.iter().map(|text| machine(text)).collect()
}

/// Refuses a list of an option that names something twice.
pub(super) fn once(option: &str, list: &[String]) -> Result<()> {
    if list.iter().any(|one| one.trim().is_empty()) {
        bail!("{option} has nothing before or after a comma");
    }
    match list.iter().enumerate().find(|(at, one)| list[..*at].contains(one)) {
        Some((_, twice)) => bail!("{option} names {twice} twice"),
        None => Ok(()),
    }
}

/// The platform of an arch or of a target's name.
pub(super) fn platform(text: &str) -> Result<Platform> {
    text.parse().map_err(|e: String| anyhow::anyhow!("--arch: {e}"))
}
