//! The kernel store: compiled kernels by key, in memory and then on disk.
//!
//! Disk entries are files named by their key. They are written whole to an unused name and then renamed, so several
//! processes share a folder without locks: a reader sees a whole entry or none, and all writers of one key write the
//! same bytes. The disk can only help. An entry that is damaged, or of another key than its name says, is removed and
//! rebuilt. A folder that cannot be read or written costs a compilation and is counted, but no launch fails.
//!
//! Both tiers are bounded by bytes, and the least recently used entries are removed first. The bound is 64 MiB in
//! memory. On disk it is `ATLAS_CACHE_MB`, or 512 MiB if that is not set. A kernel that is evicted from memory stays
//! alive while it is in use.

use super::evict::{ENDING, FOLDER, evict, touch};
use super::image_file::{decode_entry, encode_entry};
use super::key::KernelKey;
use crate::files;
use atlas_codegen::KernelImage;
use lru::LruCache;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// The environment variable that names the cache folder. If it is empty, there is no disk cache.
pub const CACHE_DIR_VARIABLE: &str = "ATLAS_CACHE_DIR";

/// The environment variable that bounds the cache folder, in MiB.
pub const CACHE_SIZE_VARIABLE: &str = "ATLAS_CACHE_MB";
/// The most bytes of the entries on disk and in memory.
const DISK_BYTES: u64 = 512 << 20;
const MEMORY_BYTES: u64 = 64 << 20;

/// Where compiled kernels are kept between processes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum CacheDir {
    /// Nowhere.
    #[default]
    Off,
    /// In this folder, which is created on the first write; at most 512 MiB.
    At(PathBuf),
    /// In this folder, with the given bound.
    Bounded {
        /// The folder.
        folder: PathBuf,
        /// The most bytes of its entries. The folder may exceed this by a sixteenth between two evictions.
        bytes: u64,
    },
}

impl CacheDir {
    /// The user's choice. The folder is `ATLAS_CACHE_DIR` if that is set (no disk cache if it is empty), else `atlas`
    /// in the user's cache folder (`$XDG_CACHE_HOME` or `~/.cache`), else there is no disk cache. The bound is
    /// `ATLAS_CACHE_MB` if that is a number. Otherwise it is the default, and [`CacheDir::problem`] says why. Devices
    /// call this once, when they are opened.
    pub fn from_env() -> CacheDir {
        let folder = match std::env::var_os(CACHE_DIR_VARIABLE) {
            Some(path) if path.is_empty() => None,
            Some(path) => Some(PathBuf::from(path)),
            None => directories::BaseDirs::new().map(|dirs| dirs.cache_dir().join("atlas")),
        };
        let size = asked_size().unwrap_or_else(|problem| {
            tracing::warn!("{problem}");
            None
        });
        match (folder, size) {
            (None, _) => CacheDir::Off,
            (Some(folder), None) => CacheDir::At(folder),
            (Some(folder), Some(size)) => CacheDir::Bounded { folder, bytes: size.saturating_mul(1 << 20) },
        }
    }
}

impl CacheDir {
    /// Why the user's choice is not followed, if it is not.
    pub fn problem() -> Option<String> {
        asked_size().err()
    }
}

/// The value of `ATLAS_CACHE_MB`, or why it cannot be used.
fn asked_size() -> Result<Option<u64>, String> {
    std::env::var_os(CACHE_SIZE_VARIABLE).map_or(Ok(None), |text| size_of(&text.to_string_lossy()))
}

/// The number of MiB in a text. `None` if the text is empty.
fn size_of(text: &str) -> Result<Option<u64>, String> {
    match text.trim() {
        "" => Ok(None),
        number => number.parse().map(Some).map_err(|_| {
            let (usual, most) = (DISK_BYTES >> 20, u64::MAX);
            format!("{CACHE_SIZE_VARIABLE}: `{number}` is no whole number from 0 to {most}; the bound is the usual {usual} MiB")
        }),
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
    /// Disk entries that were damaged or belonged to another kernel. Each was removed.
    pub corrupt_entries: u64,
    /// Disk reads and writes that failed.
    pub disk_failures: u64,
}

#[derive(Default)]
struct StoreCounters {
    memory_hits: AtomicU64,
    disk_hits: AtomicU64,
    misses: AtomicU64,
    corrupt_entries: AtomicU64,
    disk_failures: AtomicU64,
}

/// Compiled kernels by key.
pub struct Store {
    memory: Mutex<MemoryTier>,
    disk: Option<DiskTier>,
    counters: StoreCounters,
}

/// The entries in memory.
struct MemoryTier {
    images: LruCache<KernelKey, Arc<KernelImage>>,
    bytes: u64,
    most: u64,
}

/// The entries on disk.
struct DiskTier {
    root: PathBuf,
    /// The folders that entries are read from. New entries are written to the first.
    folders: Vec<PathBuf>,
    most: u64,
    /// Bytes written since the last eviction. The mutex is also the lock of the next eviction.
    written: Mutex<u64>,
}

impl MemoryTier {
    /// The first image of a key stays, so all launches of a process share one.
    fn remember(&mut self, key: &KernelKey, image: Arc<KernelImage>) -> Arc<KernelImage> {
        if let Some(first) = self.images.get(key) {
            return first.clone();
        }
        self.bytes += image.ptx.len() as u64;
        self.images.put(*key, image.clone());
        while self.bytes > self.most && self.images.len() > 1 {
            let Some((_, oldest)) = self.images.pop_lru() else { break };
            self.bytes -= oldest.ptx.len() as u64;
        }
        image
    }
}

impl DiskTier {
    fn at(folder: &Path, most: u64) -> DiskTier {
        let root = folder.join("kernels");
        // The first write evicts, because earlier processes may have left too much.
        DiskTier { folders: folders(&root), root, most, written: Mutex::new(most) }
    }

    /// Writes an entry, and evicts each time a sixteenth of the bound has been written.
    fn write(&self, key: &KernelKey, bytes: &[u8]) -> io::Result<()> {
        write_whole(&self.folders[0], &file_name(key), bytes)?;
        // If another thread is evicting already, this one leaves it to that thread.
        let Ok(mut written) = self.written.try_lock() else { return Ok(()) };
        *written = written.saturating_add(bytes.len() as u64);
        if *written < self.most / 16 {
            return Ok(());
        }
        *written = 0;
        evict(&self.root, self.most)
    }
}

impl Store {
    /// An empty store in a folder, which need not exist.
    pub fn new(dir: CacheDir) -> Store {
        let disk = match dir {
            CacheDir::Off => None,
            CacheDir::At(folder) => Some(DiskTier::at(&folder, DISK_BYTES)),
            CacheDir::Bounded { folder, bytes } => Some(DiskTier::at(&folder, bytes)),
        };
        let memory = MemoryTier { images: LruCache::unbounded(), bytes: 0, most: MEMORY_BYTES };
        Store { memory: Mutex::new(memory), disk, counters: StoreCounters::default() }
    }

    /// The entry of a key: from memory, else from disk, else `None`.
    pub fn get(&self, key: &KernelKey) -> Option<Arc<KernelImage>> {
        if let Some(image) = self.memory.lock().unwrap_or_else(PoisonError::into_inner).images.get(key) {
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

    /// Adds an entry in memory and, if possible, on disk.
    pub fn put(&self, key: &KernelKey, image: KernelImage) -> Arc<KernelImage> {
        if let Some(disk) = &self.disk {
            let bytes = encode_entry(key, &image);
            // An entry that is too large to be read back would only waste space.
            if bytes.len() as u64 <= MEMORY_BYTES && disk.write(key, &bytes).is_err() {
                count(&self.counters.disk_failures);
            }
        }
        self.remember(key, Arc::new(image))
    }

    /// The file that a key's entry is written to. `None` without a disk cache.
    pub fn path(&self, key: &KernelKey) -> Option<PathBuf> {
        self.disk.as_ref().map(|disk| disk.folders[0].join(file_name(key)))
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

    fn remember(&self, key: &KernelKey, image: Arc<KernelImage>) -> Arc<KernelImage> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner).remember(key, image)
    }

    fn read(&self, key: &KernelKey) -> Option<KernelImage> {
        let folders = &self.disk.as_ref()?.folders;
        folders.iter().find_map(|folder| self.read_file(key, &folder.join(file_name(key))))
    }

    fn read_file(&self, key: &KernelKey, path: &Path) -> Option<KernelImage> {
        let image = match files::read_regular(path, MEMORY_BYTES) {
            Ok(bytes) => decode_entry(key, &bytes).ok(),
            // Not an entry: a pipe, a device or a file without an end.
            Err(e) if matches!(e.kind(), ErrorKind::InvalidInput | ErrorKind::FileTooLarge) => None,
            Err(e) => {
                if e.kind() != ErrorKind::NotFound {
                    count(&self.counters.disk_failures);
                }
                return None;
            }
        };
        match image {
            Some(_) => touch(path),
            None => {
                count(&self.counters.corrupt_entries);
                // The entry is about to be rebuilt and renamed over this one, so a failed removal does not matter.
                let _ = fs::remove_file(path);
            }
        }
        image
    }
}

fn file_name(key: &KernelKey) -> String {
    format!("{key}{ENDING}")
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// Writes a file such that its name never shows partial content.
fn write_whole(folder: &Path, name: &str, bytes: &[u8]) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    // Opening a pipe would wait for its other end.
    files::write(&files::regular(&folder.join(name))?, bytes)
}

/// The folders with entries that this program may use. A program with a compiler uses those of its LLVM. A program
/// without one uses those of any LLVM, the newest first.
fn folders(root: &Path) -> Vec<PathBuf> {
    if let Some(version) = atlas_codegen::toolchain::llvm_version() {
        return vec![root.join(format!("{FOLDER}{version}"))];
    }
    let numbers = |name: &str| -> Option<Vec<u32>> {
        name.strip_prefix(FOLDER)?.split('.').map(|n| n.parse().ok()).collect::<Option<_>>()
    };
    let entries = fs::read_dir(root).into_iter().flatten().flatten();
    let mut found: Vec<(Vec<u32>, PathBuf)> =
        entries.filter_map(|e| Some((numbers(e.file_name().to_str()?)?, e.path()))).collect();
    found.sort_by(|a, b| b.cmp(a));
    let own = root.join(format!("{FOLDER}none"));
    std::iter::once(own).chain(found.into_iter().map(|(_, path)| path)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(bytes: usize) -> Arc<KernelImage> {
        Arc::new(KernelImage { ptx: "x".repeat(bytes), ..crate::compile::empty_image() })
    }

    #[test]
    fn a_bound_that_is_no_number_is_told() {
        assert_eq!(size_of(""), Ok(None));
        assert_eq!(size_of(" 64 "), Ok(Some(64)));
        for wrong in ["abc", "-1", "99999999999999999999", "1.5", "64MB"] {
            let said = size_of(wrong).unwrap_err();
            assert!(
                said.contains(&format!("ATLAS_CACHE_MB: `{wrong}`")) && said.ends_with("the usual 512 MiB"),
                "{said}"
            );
        }
    }

    #[test]
    fn memory_keeps_what_was_used_last() {
        let mut memory = MemoryTier { images: LruCache::unbounded(), bytes: 0, most: 100 };
        let key = |i: u8| KernelKey([i; 32]);
        let first = memory.remember(&key(1), image(40));
        memory.remember(&key(2), image(40));
        assert!(Arc::ptr_eq(&memory.remember(&key(1), image(40)), &first), "the first of a key stays");
        memory.remember(&key(3), image(40));
        assert_eq!([1, 2, 3].map(|i| memory.images.contains(&key(i))), [true, false, true]);
        // A single entry that is too large stays until the next one is added.
        memory.remember(&key(4), image(400));
        assert_eq!((memory.images.len(), memory.bytes), (1, 400));
        memory.remember(&key(5), image(1));
        assert_eq!((memory.images.len(), memory.bytes), (1, 1));
    }
}
