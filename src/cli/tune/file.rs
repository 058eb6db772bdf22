//! Record files in a folder: `FOLDER/GPU/KERNEL.toml`, read, changed and written whole under a lock of the folder.

use anyhow::{Context, Result};
use atlas_runtime::records::{Record, TunedSize};
use std::fs::{self, File};
use std::path::{Path, PathBuf};

/// `NVIDIA H200` as a folder's name: `nvidia-h200`.
pub(super) fn slug(gpu: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
    gpu.chars().map(plain).collect::<String>().trim_matches('-').to_owned()
}

/// Where the record of a kernel stands.
pub(super) fn path(folder: &Path, gpu: &str, kernel: &str) -> PathBuf {
    folder.join(slug(gpu)).join(format!("{kernel}.toml"))
}

/// The record of a kernel; none if there is no file, or one that cannot be used, of which the reason is told.
pub(super) fn read(folder: &Path, gpu: &str, kernel: &str) -> Option<Record> {
    let path = path(folder, gpu, kernel);
    let text = fs::read_to_string(&path).ok()?;
    match Record::parse(&path.display().to_string(), &text) {
        Ok(record) => Some(record),
        Err(e) => {
            eprintln!("warning: {e}; it is written anew");
            None
        }
    }
}

/// Puts a size into the record of a kernel, in place of the one that was there. What was measured on another tune space goes.
/// Processes that tune into one folder wait for each other here.
///
/// # Errors
/// If the file cannot be written.
pub(super) fn put(folder: &Path, gpu: &str, kernel: &str, tune: &str, size: TunedSize) -> Result<()> {
    let path = path(folder, gpu, kernel);
    let cannot = || format!("cannot write the record {}", path.display());
    fs::create_dir_all(path.parent().unwrap_or(folder)).with_context(cannot)?;
    let lock = File::create(folder.join(".lock")).with_context(cannot)?;
    lock.lock().with_context(cannot)?;
    let mut record = read(folder, gpu, kernel).filter(|r| r.tune == tune && r.gpu == gpu).unwrap_or_else(|| Record {
        kernel: kernel.to_owned(),
        gpu: gpu.to_owned(),
        tune: tune.to_owned(),
        sizes: Vec::new(),
    });
    record.sizes.retain(|s| (&s.types, &s.tensors, &s.dims) != (&size.types, &size.tensors, &size.dims));
    record.sizes.push(size);
    // In an order of their own, so that files of one content are one text.
    record.sizes.sort_by_cached_key(|s| (s.types.clone(), s.tensors.clone(), numbers(&s.dims)));
    let whole = path.with_extension("toml.new");
    fs::write(&whole, record.to_string()).with_context(cannot)?;
    fs::rename(&whole, &path).with_context(cannot)
}

fn numbers(dims: &str) -> Vec<u64> {
    dims.split(['=', ' ']).filter_map(|n| n.parse().ok()).collect()
}
