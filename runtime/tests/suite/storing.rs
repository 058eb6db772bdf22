//! The kernel store: two tiers, several writers, damaged entries, and folders that cannot be used.

use atlas_codegen::{AbiParam, KernelImage, Target};
use atlas_dsl::ir::GridExtent;
use atlas_dsl::{Dim, Param};
use atlas_runtime::image_file::{ImageFileError, decode, decode_entry, encode, encode_entry};
use atlas_runtime::{CacheDir, KernelKey, Store};
use sha2::{Digest, Sha256};
use std::fs;
use std::path::Path;
use std::process::Command;
use tempfile::TempDir;

const KEY: KernelKey = KernelKey([7; 32]);
const CHILD_FOLDER: &str = "ATLAS_TEST_STORE";

fn image() -> KernelImage {
    KernelImage {
        entry: "axpy".to_owned(),
        ptx: ".version 7.8\n".repeat(5000),
        ptx_version: (7, 8),
        target: Target { sm: 90, specific: true },
        params: vec![
            AbiParam::Ptr(Param::from_u32(0)),
            AbiParam::Dim(Dim::from_u32(1)),
            AbiParam::Stride(Param::from_u32(0), 2),
            AbiParam::Scalar(Param::from_u32(3)),
            AbiParam::GridCount(1),
        ],
        maps: Vec::new(),
        grid: vec![GridExtent::Points(Dim::from_u32(0)), GridExtent::Tiles { dim: Dim::from_u32(1), size: 64 }],
        threads: 128,
        persistent: false,
        splits: 1,
        partial_bytes: 0,
        shared_bytes: 50_000,
    }
}

fn store(folder: &Path) -> Store {
    Store::new(CacheDir::At(folder.to_owned()))
}

#[test]
fn an_image_survives_its_file() {
    assert_eq!(decode(&encode(&image())).unwrap(), image());
    let entry = encode_entry(&KEY, &image());
    assert_eq!(decode_entry(&KEY, &entry).unwrap(), image());
    assert_eq!(decode_entry(&KernelKey([8; 32]), &entry).unwrap_err(), ImageFileError::OtherKernel);
}

/// The payload of an image file, with an edit of its text.
fn edited(good: &[u8], from: &str, to: &str) -> Vec<u8> {
    let text = std::str::from_utf8(&good[44..]).unwrap();
    assert!(text.contains(from), "{text}");
    let payload = text.replacen(from, to, 1).into_bytes();
    [&good[..12], &Sha256::digest(&payload)[..], &payload].concat()
}

#[test]
fn a_split_of_programs_makes_sense() {
    let mut split = KernelImage { splits: 3, partial_bytes: 1536, ..image() };
    split.params.extend([AbiParam::Arrivals, AbiParam::Partials]);
    let good = encode(&split);
    assert_eq!(decode(&good).unwrap(), split);
    for (from, to) in [
        ("\"splits\":3", "\"splits\":0"),
        ("\"splits\":3,\"partial_bytes\":1536", "\"splits\":1,\"partial_bytes\":0"),
        ("\"persistent\":false", "\"persistent\":true"),
        ("\"partial_bytes\":1536", "\"partial_bytes\":1544"),
    ] {
        assert_eq!(decode(&edited(&good, from, to)).unwrap_err(), ImageFileError::Undecodable, "{to}");
    }
    let whole = encode(&image());
    for (from, to) in [
        ("\"splits\":1", "\"splits\":0"),
        ("\"partial_bytes\":0", "\"partial_bytes\":16"),
        ("{\"grid_count\":1}", "\"arrivals\""),
        ("{\"grid_count\":1}", "\"partials\""),
    ] {
        assert_eq!(decode(&edited(&whole, from, to)).unwrap_err(), ImageFileError::Undecodable, "{to}");
    }
}

/// The greatest number stands for no parameter and no dim.
#[test]
fn a_number_that_names_nothing_is_refused() {
    let good = encode(&image());
    for (from, to) in [
        ("{\"ptr\":0}", "{\"ptr\":4294967295}"),
        ("{\"dim\":1}", "{\"dim\":4294967295}"),
        ("{\"stride\":[0,2]}", "{\"stride\":[4294967295,2]}"),
        ("{\"scalar\":3}", "{\"scalar\":4294967295}"),
        ("{\"points\":0}", "{\"points\":4294967295}"),
        ("{\"tiles\":[1,64]}", "{\"tiles\":[4294967295,64]}"),
    ] {
        assert_eq!(decode(&edited(&good, from, to)).unwrap_err(), ImageFileError::Undecodable, "{to}");
    }
}

#[test]
fn a_file_says_what_is_wrong_with_it() {
    let good = encode(&image());
    let damaged = |at: usize| {
        let mut bytes = good.clone();
        bytes[at] ^= 1;
        decode(&bytes).unwrap_err()
    };
    assert_eq!(damaged(0), ImageFileError::NotAnImage);
    assert_eq!(damaged(8), ImageFileError::OtherVersion(5));
    assert_eq!(damaged(20), ImageFileError::Damaged);
    assert_eq!(damaged(good.len() - 1), ImageFileError::Damaged);
    assert_eq!(decode(&good[..30]).unwrap_err(), ImageFileError::NotAnImage);
    assert_eq!(decode(&good[..good.len() / 2]).unwrap_err(), ImageFileError::Damaged);
    assert_eq!(decode(&[]).unwrap_err(), ImageFileError::NotAnImage);
}

#[test]
fn memory_then_disk() {
    let folder = TempDir::new().unwrap();
    let first = store(folder.path());
    assert!(first.get(&KEY).is_none());
    first.put(&KEY, image());
    assert_eq!(*first.get(&KEY).unwrap(), image());
    let second = store(folder.path());
    assert_eq!(*second.get(&KEY).unwrap(), image());
    second.get(&KEY).unwrap();
    let (a, b) = (first.stats(), second.stats());
    assert_eq!((a.misses, a.memory_hits, a.disk_hits), (1, 1, 0));
    assert_eq!((b.misses, b.memory_hits, b.disk_hits), (0, 1, 1));
    assert_eq!(a.disk_failures + b.disk_failures + a.corrupt_entries + b.corrupt_entries, 0);
}

#[test]
fn the_folder_stays_below_its_bound() {
    let folder = TempDir::new().unwrap();
    let entry = encode_entry(&KEY, &image()).len() as u64;
    let store = Store::new(CacheDir::Bounded { folder: folder.path().to_owned(), bytes: 4 * entry });
    for i in 0..20 {
        store.put(&KernelKey([i; 32]), image());
    }
    let kept = fs::read_dir(store.path(&KEY).unwrap().parent().unwrap()).unwrap().count();
    assert!((1..=4).contains(&kept), "{kept}");
    assert!(store.path(&KernelKey([19; 32])).unwrap().exists() && store.stats().disk_failures == 0);
    // An entry that is gone from the disk is still in memory. Another process does not find it, without an error.
    assert!(store.get(&KernelKey([0; 32])).is_some());
    let other = Store::new(CacheDir::At(folder.path().to_owned()));
    assert!(other.get(&KernelKey([0; 32])).is_none() && other.stats().disk_failures == 0);
}

#[test]
fn a_kernel_needs_no_compiler_once_it_is_stored() {
    let folder = TempDir::new().unwrap();
    let own = store(folder.path()).path(&KEY).unwrap();
    let written_by = own.parent().unwrap().with_file_name("llvm-22.1.8");
    fs::create_dir_all(&written_by).unwrap();
    fs::write(written_by.join(own.file_name().unwrap()), encode_entry(&KEY, &image())).unwrap();
    // A build with LLVM uses only the entries of its own version.
    let same = atlas_codegen::toolchain::llvm_version().is_none_or(|v| v == "22.1.8");
    assert_eq!(store(folder.path()).get(&KEY).is_some(), same);
}

#[test]
fn without_a_folder_only_memory_keeps() {
    let store = Store::new(CacheDir::Off);
    assert!(store.get(&KEY).is_none() && store.path(&KEY).is_none());
    store.put(&KEY, image());
    assert!(store.get(&KEY).is_some());
    assert_eq!(store.stats().disk_failures, 0);
}

#[test]
fn a_damaged_entry_is_removed_and_rebuilt() {
    let folder = TempDir::new().unwrap();
    let path = store(folder.path()).path(&KEY).unwrap();
    let whole = encode_entry(&KEY, &image());
    let (other, nameless) = (encode_entry(&KernelKey([8; 32]), &image()), encode(&image()));
    for content in [&b""[..], b"not a kernel", &whole[..whole.len() - 10], &[0; 4096], &other, &nameless] {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        let store = store(folder.path());
        assert!(store.get(&KEY).is_none());
        assert!(!path.exists());
        assert_eq!((store.stats().corrupt_entries, store.stats().disk_failures), (1, 0));
        store.put(&KEY, image());
        assert_eq!(fs::read(&path).unwrap(), whole);
    }
}

/// Neither a pipe without a writer nor an endless file is read or waited for.
#[test]
#[cfg(unix)]
fn what_is_no_file_is_removed_and_rebuilt() {
    let folder = TempDir::new().unwrap();
    let path = store(folder.path()).path(&KEY).unwrap();
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let pipe = || assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
    let device = || std::os::unix::fs::symlink("/dev/zero", &path).unwrap();
    let sparse = || fs::File::create(&path).unwrap().set_len(1 << 40).unwrap();
    let all: [&dyn Fn(); 3] = [&pipe, &device, &sparse];
    for make in all {
        make();
        // A writer that has not read before does not wait either.
        store(folder.path()).put(&KEY, image());
        if !path.is_file() {
            let store = store(folder.path());
            assert!(store.get(&KEY).is_none() && fs::symlink_metadata(&path).is_err());
            assert_eq!((store.stats().corrupt_entries, store.stats().disk_failures), (1, 0));
            store.put(&KEY, image());
        }
        assert_eq!(fs::read(&path).unwrap(), encode_entry(&KEY, &image()));
        fs::remove_file(&path).unwrap();
    }
    sparse();
    assert!(store(folder.path()).get(&KEY).is_none() && !path.exists());
}

#[test]
fn a_folder_that_cannot_be_made_only_means_no_disk_cache() {
    // The parent is a file: no user, not even root, can make a folder or a file in it. A full disk fails the same
    // calls.
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    let store = store(&file.join("cache"));
    assert!(store.get(&KEY).is_none());
    assert_eq!(*store.put(&KEY, image()), image());
    assert_eq!(*store.get(&KEY).unwrap(), image());
    assert!(store.stats().disk_failures >= 1);
}

#[test]
fn an_entry_that_cannot_be_written_leaves_nothing_behind() {
    // A folder has the entry's name, so the last step, the rename, fails.
    let folder = TempDir::new().unwrap();
    let store = store(folder.path());
    let path = store.path(&KEY).unwrap();
    fs::create_dir_all(path.join("in the way")).unwrap();
    store.put(&KEY, image());
    assert_eq!(store.stats().disk_failures, 1);
    assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
    assert!(store.get(&KEY).is_some());
}

#[test]
#[cfg(target_os = "linux")]
fn a_full_disk_only_means_no_disk_cache() {
    // Writes to /dev/full fail as on a full disk. Here it stands in for the folder.
    let store = store(Path::new("/dev/full"));
    store.put(&KEY, image());
    assert_eq!(store.stats().disk_failures, 1);
    assert!(store.get(&KEY).is_some());
}

#[test]
fn threads_share_a_folder() {
    let folder = TempDir::new().unwrap();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| write_and_read(folder.path()));
        }
    });
    assert_whole(folder.path());
}

#[test]
fn processes_share_a_folder() {
    let folder = TempDir::new().unwrap();
    let program = std::env::current_exe().unwrap();
    let children: Vec<_> = (0..4)
        .map(|_| {
            Command::new(&program)
                .args(["--ignored", "--exact", "storing::child_of_processes_share_a_folder"])
                .env(CHILD_FOLDER, folder.path())
                .spawn()
        })
        .collect();
    assert!(children.into_iter().all(|c| c.unwrap().wait().unwrap().success()));
    assert_whole(folder.path());
}

#[test]
#[ignore = "a child process of processes_share_a_folder"]
fn child_of_processes_share_a_folder() {
    if let Some(folder) = std::env::var_os(CHILD_FOLDER) {
        write_and_read(Path::new(&folder));
    }
}

/// Writes one key many times. Every concurrent read gets a whole entry or none.
fn write_and_read(folder: &Path) {
    for _ in 0..50 {
        let fresh = store(folder);
        if let Some(found) = fresh.get(&KEY) {
            assert_eq!(*found, image());
        }
        fresh.put(&KEY, image());
        let stats = fresh.stats();
        assert_eq!((stats.corrupt_entries, stats.disk_failures), (0, 0));
    }
}

/// Exactly one whole entry, and no temporary file.
fn assert_whole(folder: &Path) {
    let store = store(folder);
    assert_eq!(*store.get(&KEY).unwrap(), image());
    assert_eq!(fs::read_dir(store.path(&KEY).unwrap().parent().unwrap()).unwrap().count(), 1);
}
