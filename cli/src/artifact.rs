//! Files of compiled kernels: their names and how they are written.

use anyhow::{Context, Result};
use atlas_dsl::Config;
use atlas_runtime::files;
use std::path::Path;

/// A config as part of a file name: `BH64-BN64-stages2-warps4`.
pub(super) fn slug(config: &Config) -> String {
    config.to_string().replace('=', "").replace(' ', "-")
}

/// Writes a file, naming it if that fails.
pub(super) fn write(path: &Path, text: &str) -> Result<()> {
    files::write(path, text.as_bytes()).with_context(|| format!("cannot write {}", path.display()))
}
