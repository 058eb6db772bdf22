//! The kernel store: compiled kernels by key, in memory and then on disk.
//!
//! Disk entries are files named by their key, written whole to a temporary name and then renamed, so that several
//! processes share a folder without locks: a reader sees a whole entry or none, and writers of one key write the
//! same bytes. The disk can only help. An entry that is damaged is removed and rebuilt; a folder that cannot be
//! read or written costs a compilation, is counted, and fails nothing.

use crate::image_file::{decode, encode};
use crate::key::KernelKey;
use atlas_codegen::KernelImage;
use std::collections::BTreeMap;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::UNIX_EPOCH;

/// The environment variable that names the cache folder; empty for no disk cache.
pub const CACHE_DIR_VARIABLE: &str = "ATLAS_CACHE_DIR";

/// Where compiled kernels are kept between processes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum CacheDir {
    /// Nowhere.
    #[default]
    Off,
    /// In this folder, which is made when first written.
    At(PathBuf),
}

impl CacheDir {
    /// The user's choice: `ATLAS_CACHE_DIR` if it is set (nowhere if it is empty), else `atlas` in the user's cache
    /// folder (`$XDG_CACHE_HOME` or `~/.cache`), else nowhere. This is the only place of the crate that reads the
    /// environment; devices call it once, when they are made.
    pub fn from_env() -> CacheDir {
        match std::env::var_os(CACHE_DIR_VARIABLE) {
            Some(path) if path.is_empty() => CacheDir::Off,
            Some(path) => CacheDir::At(PathBuf::from(path)),
            None => match directories::BaseDirs::new() {
                Some(dirs) => CacheDir::At(dirs.cache_dir().join("atlas")),
                None => CacheDir::Off,
            },
        }
    }
}

/// What a store has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreStats {
    /// Entries found in memory.
    pub memory_hits: u64,
    /// Entries found on disk.
    pub disk_hits: u64,
    /// Entries found nowhere.
    pub misses: u64,
    /// Damaged disk entries, each removed.
    pub corrupt_entries: u64,
    /// Disk reads and writes that failed.
    pub disk_failures: u64,
}

#[derive(Default)]
struct Counters {
    memory_hits: AtomicU64,
    disk_hits: AtomicU64,
    misses: AtomicU64,
    corrupt_entries: AtomicU64,
    disk_failures: AtomicU64,
}

/// Compiled kernels by key.
pub struct Store {
    memory: Mutex<BTreeMap<KernelKey, Arc<KernelImage>>>,
    folder: Option<PathBuf>,
    counters: Counters,
}

impl Store {
    /// An empty store over a folder, which need not exist.
    pub fn new(dir: CacheDir) -> Store {
        let folder = match dir {
            CacheDir::Off => None,
            CacheDir::At(path) => Some(path.join("kernels").join(build_id())),
        };
        Store { memory: Mutex::default(), folder, counters: Counters::default() }
    }

    /// The entry of a key: from memory, else from disk, else none.
    pub fn get(&self, key: &KernelKey) -> Option<Arc<KernelImage>> {
        if let Some(image) = self.memory.lock().unwrap_or_else(PoisonError::into_inner).get(key) {
            count(&self.counters.memory_hits);
            return Some(image.clone());
        }
        match self.read(key) {
            Some(image) => {
                count(&self.counters.disk_hits);
                Some(self.remember(key, Arc::new(image)))
            }
            None => {
                count(&self.counters.misses);
                None
            }
        }
    }

    /// Adds an entry, in memory and, if it can, on disk.
    pub fn put(&self, key: &KernelKey, image: KernelImage) -> Arc<KernelImage> {
        if let Some(folder) = &self.folder
            && write_whole(folder, &file_name(key), &encode(&image)).is_err()
        {
            count(&self.counters.disk_failures);
        }
        self.remember(key, Arc::new(image))
    }

    /// The file of a key's entry, if there is a disk cache.
    pub fn path(&self, key: &KernelKey) -> Option<PathBuf> {
        self.folder.as_ref().map(|folder| folder.join(file_name(key)))
    }

    /// What the store has done so far.
    pub fn stats(&self) -> StoreStats {
        let read = |c: &AtomicU64| c.load(Ordering::Relaxed);
        StoreStats {
            memory_hits: read(&self.counters.memory_hits),
            disk_hits: read(&self.counters.disk_hits),
            misses: read(&self.counters.misses),
            corrupt_entries: read(&self.counters.corrupt_entries),
            disk_failures: read(&self.counters.disk_failures),
        }
    }

    /// The first image of a key stays, so that all of a process's launches share one.
    fn remember(&self, key: &KernelKey, image: Arc<KernelImage>) -> Arc<KernelImage> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner).entry(*key).or_insert(image).clone()
    }

    fn read(&self, key: &KernelKey) -> Option<KernelImage> {
        let path = self.path(key)?;
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(e) => {
                if e.kind() != ErrorKind::NotFound {
                    count(&self.counters.disk_failures);
                }
                return None;
            }
        };
        match decode(&bytes) {
            Ok(image) => Some(image),
            Err(_) => {
                count(&self.counters.corrupt_entries);
                // The entry is about to be rebuilt and renamed over this one, so a failed removal does not matter.
                let _ = fs::remove_file(&path);
                None
            }
        }
    }
}

fn file_name(key: &KernelKey) -> String {
    format!("{key}.kernel")
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// Writes a file so that its name never shows a part of it.
fn write_whole(folder: &Path, name: &str, bytes: &[u8]) -> io::Result<()> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    fs::create_dir_all(folder)?;
    let unique = NEXT.fetch_add(1, Ordering::Relaxed);
    let temporary = folder.join(format!(".{name}.{}.{unique}", std::process::id()));
    let written = fs::write(&temporary, bytes).and_then(|()| fs::rename(&temporary, folder.join(name)));
    if written.is_err() {
        // Nothing is lost if the remains of a failed write stay.
        let _ = fs::remove_file(&temporary);
    }
    written
}

/// Names the program that compiles: its length and time of linking. A program that was built again may hold another
/// compiler under the same version, so programs never share entries with their own earlier builds.
fn build_id() -> &'static str {
    static ID: OnceLock<String> = OnceLock::new();
    ID.get_or_init(|| {
        let metadata = std::env::current_exe().and_then(fs::metadata);
        let time =
            metadata.as_ref().ok().and_then(|m| m.modified().ok()).and_then(|t| t.duration_since(UNIX_EPOCH).ok());
        match (metadata, time) {
            (Ok(m), Some(t)) => format!("{:x}-{:x}", m.len(), t.as_nanos()),
            _ => format!("process-{}", std::process::id()),
        }
    })
}
