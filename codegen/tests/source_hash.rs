//! The hash of the code generator's sources follows their paths and contents, and nothing else.

#[path = "../source_hash.rs"]
mod source_hash;

use std::fs;
use std::path::Path;
use tempfile::TempDir;

/// The hash of a folder of these files.
fn hash(files: &[(&str, &str)]) -> String {
    let folder = TempDir::new().unwrap();
    for (path, text) in files {
        let path = folder.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    source_hash::of(&[("src", folder.path().to_owned())]).unwrap()
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

#[test]
fn this_build_carries_the_hash_of_its_sources() {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folders = [
        ("vocabulary", package.join("../dsl/vocabulary/src")),
        ("dsl", package.join("../dsl/src")),
        ("codegen", package.join("src")),
    ];
    let now = source_hash::of(&folders).unwrap();
    assert_eq!(atlas_codegen::toolchain::toolchain_id(), format!("atlas-codegen {now}"));
}
