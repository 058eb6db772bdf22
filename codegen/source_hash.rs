//! A hash of the files of some folders: their relative paths and contents, and nothing else, so that two checkouts of
//! one commit agree whatever their files' times and places.

use sha2::{Digest, Sha256};
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The hash of folders, each with the name that it goes by, as 64 hexadecimal digits.
pub(crate) fn of(folders: &[(&str, PathBuf)]) -> io::Result<String> {
    let mut hash = Sha256::new();
    let mut part = |bytes: &[u8]| {
        // With its length, so that no two lists of parts read alike.
        hash.update((bytes.len() as u64).to_le_bytes());
        hash.update(bytes);
    };
    for (name, folder) in folders {
        let mut files = Vec::new();
        collect(folder, name, &mut files)?;
        files.sort();
        for (path, file) in files {
            part(path.as_bytes());
            part(&fs::read(file)?);
        }
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
