//! Record files in a folder, `FOLDER/GPU/KERNEL.toml`: read, changed and written whole under a lock of the folder.

use super::super::gpu_lock::slug;
use super::super::print::tell;
use anyhow::{Context, Result, bail};
use atlas_runtime::files;
use atlas_runtime::records::{MOST_CONFIGS, MOST_SIZES, Record, TunedSize};
use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

/// The path of a kernel's record.
pub(super) fn path(folder: &Path, gpu: &str, kernel: &str) -> PathBuf {
    folder.join(slug(gpu)).join(format!("{kernel}.toml"))
}

/// Each record in a folder and its subfolders, or why the file is not a record. `flag` is the option that named the
/// folder.
///
/// # Errors
/// If there are none, or the folder cannot be read.
pub(super) fn records(folder: &Path, flag: &str) -> Result<Vec<(PathBuf, Result<Record>)>> {
    let files = list(folder).with_context(|| format!("{flag}: cannot read {}", folder.display()))?;
    if files.is_empty() {
        bail!("{flag}: there are no records in {}", folder.display());
    }
    let read = |path: &Path| -> Result<Record> {
        let name = path.display().to_string();
        let text = files::read_regular_text(path).with_context(|| format!("cannot read {name}"))?;
        Record::parse(&name, &text).map_err(anyhow::Error::new)
    };
    Ok(files.into_iter().map(|path| (path.clone(), read(&path))).collect())
}

/// The paths of all records in a folder and its subfolders.
fn list(folder: &Path) -> std::io::Result<Vec<PathBuf>> {
    let list =
        |path: &Path| -> std::io::Result<Vec<PathBuf>> { fs::read_dir(path)?.map(|e| e.map(|e| e.path())).collect() };
    let mut files = list(folder)?;
    for inner in files.clone().iter().filter(|p| p.is_dir()) {
        files.extend(list(inner)?);
    }
    files.retain(|p| p.is_file() && p.extension().is_some_and(|e| e == "toml"));
    files.sort();
    Ok(files)
}

/// The record of a kernel. `None` if there is no file or it cannot be used, in which case the reason is printed.
pub(super) fn read(folder: &Path, gpu: &str, kernel: &str) -> Option<Record> {
    known(&path(folder, gpu, kernel)).unwrap_or_else(|e| {
        tell!("warning: {e:#}");
        None
    })
}

fn known(path: &Path) -> Result<Option<Record>> {
    match files::read_regular_text(path) {
        Ok(text) => Ok(Some(Record::parse(&path.display().to_string(), &text).map_err(anyhow::Error::new)?)),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
        Err(e) => Err(e).with_context(|| format!("cannot read {}", path.display())),
    }
}

/// Checks that records of kernels on a GPU can be written, before anything is measured.
///
/// # Errors
/// If they cannot be written.
pub(super) fn probe<'a>(folder: &Path, gpu: &str, kernels: impl IntoIterator<Item = &'a str>) -> Result<()> {
    let own = folder.join(slug(gpu));
    let cannot = || format!("cannot write records into {}", own.display());
    fs::create_dir_all(&own).with_context(cannot)?;
    files::lock_file(&folder.join(".lock")).map(drop).with_context(cannot)?;
    files::check_folder(&own).with_context(cannot)?;
    for kernel in kernels {
        let path = path(folder, gpu, kernel);
        let is_file = files::regular(&path).and_then(|file| files::check(&file));
        is_file.with_context(|| format!("cannot write the record {}", path.display()))?;
    }
    Ok(())
}

/// Puts a size into the record of a kernel, replacing an existing one. Measurements of another tune space are removed.
/// Processes that tune into one folder wait for each other here.
///
/// # Errors
/// If the file cannot be written.
pub(super) fn put(folder: &Path, gpu: &str, kernel: &str, tune: &str, mut size: TunedSize) -> Result<()> {
    let path = path(folder, gpu, kernel);
    let cannot = || format!("cannot write the record {}", path.display());
    fs::create_dir_all(path.parent().unwrap_or(folder)).with_context(cannot)?;
    let lock = files::lock_file(&folder.join(".lock")).with_context(cannot)?;
    lock.lock().with_context(cannot)?;
    let before = known(&path).or_else(|e| {
        // The user may want to repair it.
        let aside = keep_aside(&path).with_context(cannot)?;
        tell!("warning: {e:#}; it is kept as {}", aside.display());
        anyhow::Ok(None)
    })?;
    let mut record = before.filter(|r| r.tune == tune && r.gpu == gpu).unwrap_or_else(|| Record {
        kernel: kernel.to_owned(),
        gpu: gpu.to_owned(),
        tune: tune.to_owned(),
        sizes: Vec::new(),
    });
    record.sizes.retain(|s| !s.is_of(&size.types, &size.tensors, &size.dims) || s.target != size.target);
    if record.sizes.len() >= MOST_SIZES {
        bail!("{} has {MOST_SIZES} sizes, and cannot have more", path.display());
    }
    size.configs.truncate(MOST_CONFIGS);
    record.sizes.push(size.rounded());
    // In a canonical order, so that files with the same content have the same text.
    record.sizes.sort_by_cached_key(|s| (s.types.clone(), s.tensors.clone(), numbers(&s.dims), s.target.clone()));
    replace(&path, &record.to_string())
}

/// Writes a record whole: a concurrent reader gets the old text or the new one.
///
/// # Errors
/// If the file cannot be written.
pub(super) fn replace(path: &Path, text: &str) -> Result<()> {
    files::write(path, text.as_bytes()).with_context(|| format!("cannot write the record {}", path.display()))
}

/// Copies a file to an unused name: `K.toml.bad`, then `K.toml.bad1` and so on.
fn keep_aside(path: &Path) -> std::io::Result<PathBuf> {
    let content = files::read_regular(path, files::MOST_TEXT)?;
    let endings = std::iter::once("toml.bad".to_owned()).chain((1..).map(|n| format!("toml.bad{n}")));
    for aside in endings.map(|ending| path.with_extension(ending)) {
        match File::options().write(true).create_new(true).open(&aside) {
            Ok(mut file) => return file.write_all(&content).map(|()| aside),
            Err(e) if e.kind() == ErrorKind::AlreadyExists => {}
            Err(e) => return Err(e),
        }
    }
    Err(ErrorKind::AlreadyExists.into())
}

fn numbers(dims: &str) -> Vec<u64> {
    dims.split(['=', ' ']).filter_map(|n| n.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use atlas_runtime::records::{MODEL, Timed};

    fn size() -> TunedSize {
        TunedSize {
            types: String::new(),
            tensors: String::new(),
            dims: "N=8".to_owned(),
            ir: "0".repeat(16),
            spread: 0.0,
            of_copy: 0.0,
            measured: "for a test".to_owned(),
            model: MODEL,
            target: String::new(),
            configs: vec![Timed { config: "BN=1".to_owned(), us: 1.0, cycles: 1.0 }],
        }
    }

    /// Neither a locked file, nor earlier copies, nor files with predictable names are overwritten.
    #[test]
    fn no_other_file_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let record = path(folder.path(), "a gpu", "k");
        let own = record.parent().unwrap().to_owned();
        fs::create_dir_all(&own).unwrap();
        fs::write(&record, "no record").unwrap();
        let others = [
            folder.path().join(".lock"),
            own.join("k.toml.bad"),
            own.join("k.toml.new"),
            own.join(format!(".probe.{}", std::process::id())),
        ];
        others.iter().for_each(|path| fs::write(path, "mine").unwrap());
        probe(folder.path(), "a gpu", ["k"]).unwrap();
        put(folder.path(), "a gpu", "k", "tune", size()).unwrap();
        assert!(others.iter().all(|path| fs::read_to_string(path).unwrap() == "mine"));
        assert_eq!(fs::read_to_string(own.join("k.toml.bad1")).unwrap(), "no record");
        assert_eq!(fs::read_dir(&own).unwrap().count(), 5);
        assert_eq!(known(&record).unwrap().unwrap().sizes.len(), 1);
    }

    /// Neither before nor after measuring does it wait for a pipe without a writer.
    #[test]
    #[cfg(unix)]
    fn a_pipe_in_place_of_a_record_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let record = path(folder.path(), "a gpu", "k");
        fs::create_dir_all(record.parent().unwrap()).unwrap();
        assert!(std::process::Command::new("mkfifo").arg(&record).status().unwrap().success());
        let said = format!("{:#}", probe(folder.path(), "a gpu", ["k"]).unwrap_err());
        assert!(said.contains("k.toml: it is no regular file"), "{said}");
        assert!(read(folder.path(), "a gpu", "k").is_none());
        assert!(put(folder.path(), "a gpu", "k", "tune", size()).is_err());
    }

    /// A record with characters that Rust and TOML escape differently is kept when a size is added.
    #[test]
    fn a_record_stays_readable_when_a_size_is_added() {
        let folder = tempfile::tempdir().unwrap();
        let first =
            TunedSize { measured: "a\u{a0}b\u{7f}".to_owned(), spread: f64::NAN, dims: "N=9".to_owned(), ..size() };
        let times = vec![Timed { config: "BN=1".to_owned(), us: 0.0004, cycles: 0.01 }];
        put(folder.path(), "a gpu", "k", "tune", TunedSize { configs: times.clone(), ..first.clone() }).unwrap();
        put(folder.path(), "a gpu", "k", "tune", size()).unwrap();
        let record = known(&path(folder.path(), "a gpu", "k")).unwrap().unwrap();
        assert_eq!(record.sizes.len(), 2);
        assert_eq!((&record.sizes[1].measured, &record.sizes[1].configs), (&first.measured, &times));
    }

    #[test]
    #[cfg(unix)]
    fn a_record_is_written_through_a_link() {
        let folder = tempfile::tempdir().unwrap();
        let record = path(folder.path(), "a gpu", "k");
        fs::create_dir_all(record.parent().unwrap()).unwrap();
        let real = folder.path().join("real");
        std::os::unix::fs::symlink(&real, &record).unwrap();
        put(folder.path(), "a gpu", "k", "tune", size()).unwrap();
        assert!(record.is_symlink() && known(&real).unwrap().is_some());
    }
}
