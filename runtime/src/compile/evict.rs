//! Keeps the disk cache below a number of bytes by removing the least recently used entries first.
//!
//! Several processes may evict at once. Each only removes files, and a reader that loses an entry compiles it again. A
//! file that is gone already, or cannot be removed, is skipped. Nothing here makes a launch fail.

use std::fs::{self, DirEntry};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// The prefix of the names of folders with entries. The rest of the name is the version of LLVM.
pub(crate) const FOLDER: &str = "llvm-";
/// The suffix of an entry's file name, after its key.
pub(crate) const ENDING: &str = ".kernel";
/// The hexadecimal digits of a key.
const KEY_DIGITS: usize = 64;
/// The age at which a temporary file counts as abandoned by a writer that died.
const ABANDONED: Duration = Duration::from_secs(3600);

/// One entry.
struct CacheEntry {
    used: SystemTime,
    path: PathBuf,
    bytes: u64,
}

/// Removes abandoned temporary files. If the entries take more than `most` bytes, also removes entries until the rest
/// takes at most nine tenths of `most`. Files and folders of other names are left alone.
pub(crate) fn evict(root: &Path, most: u64) -> io::Result<()> {
    let mut files = Vec::new();
    let is_ours = |e: &DirEntry| e.file_name().to_str().is_some_and(|name| name.starts_with(FOLDER));
    for folder in fs::read_dir(root)?.flatten().filter(|e| is_ours(e) && e.file_type().is_ok_and(|t| t.is_dir())) {
        // A folder that vanishes or cannot be read is skipped.
        let entries = fs::read_dir(folder.path()).into_iter().flatten().flatten();
        files.extend(entries.filter_map(|entry| entry_of(&entry)));
    }
    // A sparse file may report more bytes than the disk has.
    let (mut total, most) = (files.iter().map(|f| u128::from(f.bytes)).sum::<u128>(), u128::from(most));
    if total <= most {
        return Ok(());
    }
    files.sort_by(|a, b| (a.used, &a.path).cmp(&(b.used, &b.path)));
    for file in files {
        if total <= most / 10 * 9 {
            break;
        }
        let removed = fs::remove_file(&file.path);
        if removed.is_ok() || removed.is_err_and(|e| e.kind() == io::ErrorKind::NotFound) {
            total -= u128::from(file.bytes);
        }
    }
    Ok(())
}

/// The cache entry of a file. Removes a temporary file that nobody writes any more.
fn entry_of(entry: &DirEntry) -> Option<CacheEntry> {
    let name = entry.file_name();
    let name = name.to_str()?;
    let metadata = entry.metadata().ok().filter(fs::Metadata::is_file)?;
    let used = metadata.modified().ok()?;
    let is_key = |text: &str| text.len() == KEY_DIGITS && text.bytes().all(|b| b.is_ascii_hexdigit());
    let hidden = name.strip_prefix('.').and_then(|rest| rest.split_once(&format!("{ENDING}.")));
    if hidden.is_some_and(|(key, _)| is_key(key)) {
        if used.elapsed().is_ok_and(|age| age > ABANDONED) {
            // If it cannot be removed now, a later eviction removes it.
            let _ = fs::remove_file(entry.path());
        }
        return None;
    }
    let is_entry = name.strip_suffix(ENDING).is_some_and(is_key);
    is_entry.then(|| CacheEntry { used, path: entry.path(), bytes: metadata.len() })
}

/// Marks an entry as used now. This may fail in a read-only folder, where nothing is evicted either.
pub(crate) fn touch(path: &Path) {
    let _ = fs::File::options().append(true).open(path).and_then(|f| f.set_modified(SystemTime::now()));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compile::KernelKey;
    use tempfile::TempDir;

    /// A file of 100 bytes that was last used `age` seconds ago.
    fn file(folder: &Path, name: &str, age: u64) -> PathBuf {
        fs::create_dir_all(folder).unwrap();
        let path = folder.join(name);
        fs::write(&path, [0; 100]).unwrap();
        let used = SystemTime::now() - Duration::from_secs(age);
        fs::File::options().append(true).open(&path).unwrap().set_modified(used).unwrap();
        path
    }

    /// The file name of an entry.
    fn name(key: u8) -> String {
        format!("{}{ENDING}", KernelKey([key; 32]))
    }

    #[test]
    fn the_least_recently_used_go_first_in_whatever_folder() {
        let root = TempDir::new().unwrap();
        let (a, b) = (root.path().join("llvm-22.1.8"), root.path().join("llvm-none"));
        let old = [file(&a, &name(1), 500), file(&b, &name(2), 400)];
        let new = [file(&a, &name(3), 30), file(&b, &name(4), 20)];
        evict(root.path(), 400).unwrap();
        assert!(old.iter().chain(&new).all(|p| p.exists()), "400 bytes fit");
        touch(&old[0]);
        evict(root.path(), 399).unwrap();
        assert!(old[0].exists() && !old[1].exists() && new.iter().all(|p| p.exists()));
    }

    #[test]
    fn only_entries_and_what_dead_writers_left_are_removed() {
        let root = TempDir::new().unwrap();
        let (a, other) = (root.path().join("llvm-22.1.8"), root.path().join("svm"));
        let (writing, entry) = (file(&a, &format!(".{}.78.0", name(2)), 1), file(&a, &name(3), 1));
        let abandoned = file(&a, &format!(".{}.77.0", name(1)), 9999);
        let short = name(4)[1..].to_owned();
        let mine = [
            file(&a, "notes.txt", 9999),
            file(&a, "gaussian.kernel", 9999),
            file(&a, &short, 9999),
            file(&a, ".gaussian.kernel.swp", 9999),
            file(&other, &name(3), 9999),
            file(&other, &format!(".{}.77.0", name(1)), 9999),
        ];
        evict(root.path(), 0).unwrap();
        assert!(writing.exists() && !abandoned.exists() && !entry.exists());
        assert!(mine.iter().all(|p| p.exists()), "{mine:?}");
    }

    /// Together they have more bytes than a 64-bit number can count.
    #[test]
    fn entries_with_holes_are_counted() {
        let root = TempDir::new().unwrap();
        let a = root.path().join("llvm-22.1.8");
        let sparse: Vec<PathBuf> = (1..4).map(|key| file(&a, &name(key), 100)).collect();
        let set =
            |path: &PathBuf| fs::File::options().append(true).open(path).unwrap().set_len(i64::MAX as u64).is_ok();
        let new = file(&a, &name(4), 1);
        // Some file systems do not allow files of this size.
        let all = sparse.iter().all(set);
        evict(root.path(), 300).unwrap();
        assert!(new.exists() && (!all || sparse.iter().all(|path| !path.exists())));
    }

    #[test]
    fn a_folder_that_is_not_there_is_an_error_and_no_panic() {
        assert!(evict(Path::new("/there/is/no/such/folder"), 0).is_err());
    }
}
