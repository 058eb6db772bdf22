//! Reads files with a bound, and regular files without blocking.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::path::Path;

/// The most bytes of a text that is read. Records, sizes and kernels are far smaller.
pub const MOST_TEXT: u64 = 64 << 20;

/// Reads the file that a path leads to, if it has at most `most` bytes. Blocks on a pipe.
///
/// # Errors
/// If it cannot be read, or [`ErrorKind::FileTooLarge`].
pub fn read(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    read_open(&File::open(path)?, most)
}

/// The same for a regular file. Anything else, such as a pipe or a device, is not read and does not block.
///
/// # Errors
/// If it cannot be read, [`ErrorKind::InvalidInput`] if it is not a regular file, or [`ErrorKind::FileTooLarge`].
pub fn read_regular(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    read_open(&open_regular(File::options().read(true), path)?, most)
}

/// Reads the text that a path leads to, of at most [`MOST_TEXT`] bytes. Blocks on a pipe.
///
/// # Errors
/// Those of [`read()`], or [`ErrorKind::InvalidData`] if it is not UTF-8.
pub fn read_text(path: &Path) -> io::Result<String> {
    text(read(path, MOST_TEXT)?)
}

/// Reads the text of a regular file, of at most [`MOST_TEXT`] bytes.
///
/// # Errors
/// Those of [`read_regular`], or [`ErrorKind::InvalidData`] if it is not UTF-8.
pub fn read_regular_text(path: &Path) -> io::Result<String> {
    text(read_regular(path, MOST_TEXT)?)
}

fn text(bytes: Vec<u8>) -> io::Result<String> {
    String::from_utf8(bytes).map_err(|_| io::Error::new(ErrorKind::InvalidData, "it is no text in UTF-8"))
}

fn read_open(file: &File, most: u64) -> io::Result<Vec<u8>> {
    let too_large = || io::Error::new(ErrorKind::FileTooLarge, format!("it has more than {most} bytes"));
    // If the metadata already gives too large a size, nothing is read.
    if file.metadata().is_ok_and(|m| m.is_file() && m.len() > most) {
        return Err(too_large());
    }
    let mut bytes = Vec::new();
    file.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most { Err(too_large()) } else { Ok(bytes) }
}

/// Opens a regular file, without waiting for the other end of a pipe.
pub(super) fn open_regular(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    // Checked before opening too, because opening a device may have an effect.
    if fs::metadata(path).is_ok_and(|m| !m.is_file()) {
        return Err(if path.is_dir() { ErrorKind::IsADirectory.into() } else { not_regular() });
    }
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::custom_flags(options, libc::O_NONBLOCK);
    let file = options.open(path)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(not_regular()) }
}

pub(super) fn not_regular() -> io::Error {
    io::Error::new(ErrorKind::InvalidInput, "it is no regular file")
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;
    use std::process::Command;
    use tempfile::TempDir;

    /// Neither a pipe without a writer nor an endless device.
    #[test]
    fn reading_waits_for_nobody_and_has_an_end() {
        let folder = TempDir::new().unwrap();
        let at = |name: &str| folder.path().join(name);
        assert!(Command::new("mkfifo").arg(at("pipe")).status().unwrap().success());
        symlink("/dev/zero", at("zero")).unwrap();
        symlink("pipe", at("link")).unwrap();
        for name in ["pipe", "link", "zero"] {
            assert_eq!(read_regular(&at(name), 10).unwrap_err().kind(), ErrorKind::InvalidInput, "{name}");
        }
        assert_eq!(read_regular(folder.path(), 10).unwrap_err().kind(), ErrorKind::IsADirectory);
        assert_eq!(read(&at("zero"), 10).unwrap_err().kind(), ErrorKind::FileTooLarge);
        File::create(at("sparse")).unwrap().set_len(1 << 40).unwrap();
        assert_eq!(read_regular(&at("sparse"), 10).unwrap_err().kind(), ErrorKind::FileTooLarge);
        fs::write(at("ten"), "0123456789").unwrap();
        assert_eq!(read_regular(&at("ten"), 10).unwrap(), b"0123456789");
        assert_eq!(read(&at("ten"), 9).unwrap_err().kind(), ErrorKind::FileTooLarge);
        fs::write(at("latin"), b"\xe4").unwrap();
        assert_eq!(read_regular_text(&at("latin")).unwrap_err().kind(), ErrorKind::InvalidData);
    }
}
