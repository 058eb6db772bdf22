//! A hash of a crate's sources, for its build script: the relative paths and the contents of its files, and nothing else, so that
//! two checkouts of one commit agree whatever their files' times and places.
//!
//! The crates that decide what a kernel compiles to each have such a hash. Together they are in the key of every compiled
//! kernel. Each hashes its own sources, because a published crate has no others.
#![forbid(unsafe_code)]

use sha2::{Digest, Sha256};
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Gives the crate whose build script calls this its hash as `env!("ATLAS_SOURCE_HASH")`.
///
/// # Errors
/// If a file of its folder `src` cannot be read.
pub fn emit() -> io::Result<()> {
    let package = std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default();
    let src = Path::new(&package).join("src");
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=src");
    println!("cargo:rustc-env=ATLAS_SOURCE_HASH={}", of(&src)?);
    Ok(())
}

/// The hash of a folder, as 64 hexadecimal digits.
///
/// # Errors
/// If a file cannot be read.
pub fn of(folder: &Path) -> io::Result<String> {
    let mut hash = Sha256::new();
    let mut part = |bytes: &[u8]| {
        // With its length, so that no two lists of parts read alike.
        hash.update((bytes.len() as u64).to_le_bytes());
        hash.update(bytes);
    };
    let mut files = Vec::new();
    collect(folder, "src", &mut files)?;
    files.sort();
    for (path, file) in files {
        part(path.as_bytes());
        part(&fs::read(file)?);
    }
    let mut text = String::new();
    for byte in hash.finalize() {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    Ok(text)
}

/// The files below a folder, each with its path from there, which has `/` on every system.
fn collect(folder: &Path, name: &str, files: &mut Vec<(String, PathBuf)>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let path = format!("{name}/{}", entry.file_name().to_string_lossy());
        if entry.file_type()?.is_dir() {
            collect(&entry.path(), &path, files)?;
        } else if path.ends_with(".rs") {
            files.push((path, entry.path()));
        }
    }
    Ok(())
}
