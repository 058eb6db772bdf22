//! A wheel: an archive with a list of its files and their hashes, by the
//! [specification](https://packaging.python.org/en/latest/specifications/binary-distribution-format/).

use super::package::Package;
use anyhow::{Context, Result};
use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use sha2::{Digest, Sha256};
use std::fmt::Write as _;
use std::io::{Cursor, Write};
use std::path::{Path, PathBuf};
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

/// Writes the wheel of a package to a folder, and gives its path.
pub(super) fn write(package: &Package<'_>, folder: &Path) -> Result<PathBuf> {
    let (name, version) = (package.name, package.version);
    let info = format!("{name}-{version}.dist-info");
    let tag = format!("py3-none-{}", package.library.tag);
    let mut files = package.files();
    let wheel = format!(
        "Wheel-Version: 1.0\nGenerator: atlas {}\nRoot-Is-Purelib: false\nTag: {tag}\n",
        env!("CARGO_PKG_VERSION")
    );
    files.push((format!("{info}/METADATA"), package.metadata().into_bytes().into()));
    files.push((format!("{info}/WHEEL"), wheel.into_bytes().into()));
    let mut record = String::new();
    for (path, bytes) in &files {
        let hash = BASE64_URL_SAFE_NO_PAD.encode(Sha256::digest(bytes));
        writeln!(record, "{path},sha256={hash},{}", bytes.len())?;
    }
    writeln!(record, "{info}/RECORD,,")?;
    files.push((format!("{info}/RECORD"), record.into_bytes().into()));
    // The same package makes the same bytes: no times.
    let options = SimpleFileOptions::default().compression_method(CompressionMethod::Deflated).large_file(false);
    let mut archive = ZipWriter::new(Cursor::new(Vec::new()));
    for (path, bytes) in &files {
        let mode = if path.ends_with(".so") { 0o755 } else { 0o644 };
        archive.start_file(path.as_str(), options.unix_permissions(mode))?;
        archive.write_all(bytes)?;
    }
    let bytes = archive.finish()?.into_inner();
    std::fs::create_dir_all(folder).with_context(|| format!("cannot make the folder {}", folder.display()))?;
    let path = folder.join(format!("{name}-{version}-{tag}.whl"));
    atlas_runtime::files::write(&path, &bytes).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(path)
}
