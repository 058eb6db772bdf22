//! The hash of sources follows their paths and contents, and nothing else.

use std::fs;
use tempfile::TempDir;

/// The hash of a folder of these files.
fn hash(files: &[(&str, &str)]) -> String {
    let folder = TempDir::new().unwrap();
    for (path, text) in files {
        let path = folder.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    atlas_source_hash::of(folder.path()).unwrap()
}

#[test]
fn equal_trees_have_one_hash_wherever_they_lie() {
    let files = [("a.rs", "fn a() {}"), ("sub/b.rs", "fn b() {}")];
    let reversed = [files[1], files[0]];
    assert_eq!(hash(&files), hash(&reversed));
    assert_eq!(hash(&files).len(), 64);
}

#[test]
fn any_change_of_a_source_changes_the_hash() {
    let base = hash(&[("a.rs", "fn a() {}"), ("b.rs", "")]);
    assert_ne!(hash(&[("a.rs", "fn a() { }"), ("b.rs", "")]), base);
    assert_ne!(hash(&[("a.rs", ""), ("b.rs", "fn a() {}")]), base);
    assert_ne!(hash(&[("a.rs", "fn a() {}")]), base);
    assert_ne!(hash(&[("sub/a.rs", "fn a() {}"), ("b.rs", "")]), base);
    // What an editor leaves behind is no source.
    assert_eq!(hash(&[("a.rs", "fn a() {}"), ("b.rs", ""), (".a.rs.swp", "x")]), base);
}
