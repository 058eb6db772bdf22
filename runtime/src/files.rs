//! Files written whole: who reads one meanwhile sees the old content or the new one, and never a part of either.
//!
//! # Promise
//! [`write()`] changes what its path names, and no other file. A regular file is replaced and keeps its mode, and its owner
//! where the user may give files away. A link stays, and what it leads to is replaced. A device, a pipe or `/dev/stdout` is
//! written into. [`check`] says beforehand whether a regular file can be written, and changes none.
//!
//! # Argument
//! The new content goes to a file beside the one that it replaces, of a random name that is created only if nothing has it
//! (`tempfile`), and takes over the name by a rename. What is found there is asked before: links are followed one by one to
//! the name that the rename has to take. The links of `/proc/self/fd` lead to open files and not to names, so that they are
//! opened. A file that forbids writing is left as it is, though its folder would allow the rename.
//!
//! # Breaks it
//! - Links, pipes, devices, modes, and files with likely names: the tests below.
//! - The command line: tests/files.rs.

use std::fs::{self, File, Metadata};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use tempfile::NamedTempFile;

/// Links that are followed until a path counts as a circle.
const MOST_LINKS: u32 = 40;
/// Characters of a file's name that a temporary name repeats, at most: a name has 255 bytes.
const MOST_OF_NAME: usize = 80;

/// What a path leads to.
#[derive(Debug, PartialEq, Eq)]
enum Target {
    /// A regular file, or none yet.
    File(PathBuf),
    /// A device, a pipe, or a file that this process has open.
    Open(PathBuf),
}

/// Writes a file whole.
///
/// # Errors
/// If it cannot be written; a regular file is then as it was.
pub fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    match target(path)? {
        Target::File(path) => replace(&path, bytes),
        // What was printed so far stands before it, and what is printed later behind.
        Target::Open(path) if is_open_as_stdout(&path) => {
            let mut stdout = io::stdout().lock();
            stdout.write_all(bytes).and_then(|()| stdout.flush())
        }
        Target::Open(path) => File::options().write(true).truncate(true).open(path)?.write_all(bytes),
    }
}

/// Whether a file can be written, before the time that it takes to make it.
///
/// # Errors
/// If not.
pub fn check(path: &Path) -> io::Result<()> {
    match target(path)? {
        Target::File(path) => {
            replaced(&path)?;
            has_room(&mut beside(&path)?)
        }
        // To open a pipe would wait for its reader.
        Target::Open(_) => Ok(()),
    }
}

/// Whether files can be made in a folder, which has to be there.
///
/// # Errors
/// If not.
pub fn check_folder(folder: &Path) -> io::Result<()> {
    has_room(&mut beside(&folder.join("check"))?)
}

/// The path of the regular file that a path leads to, past all links; the file need not be there.
///
/// # Errors
/// If it is no regular file.
pub fn regular(path: &Path) -> io::Result<PathBuf> {
    match target(path)? {
        Target::File(path) => Ok(path),
        Target::Open(_) => Err(not_regular()),
    }
}

/// Whether what is written to a path goes where this process prints.
pub fn is_stdout(path: &Path) -> bool {
    matches!(target(path), Ok(Target::Open(path)) if is_open_as_stdout(&path))
}

/// Opens a file to be locked, and makes it if it is not there. Its content stays.
///
/// # Errors
/// If it cannot be opened, or is no regular file.
pub fn lock_file(path: &Path) -> io::Result<File> {
    File::options().create(true).truncate(false).write(true).open(regular(path)?)
}

fn not_regular() -> io::Error {
    io::Error::other("it is no regular file")
}

fn target(path: &Path) -> io::Result<Target> {
    let mut at = path.to_owned();
    for _ in 0..MOST_LINKS {
        let found = match fs::symlink_metadata(&at) {
            Ok(found) => found,
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(Target::File(at)),
            Err(e) => return Err(e),
        };
        if found.is_dir() {
            return Err(ErrorKind::IsADirectory.into());
        }
        if !found.is_symlink() {
            return Ok(if found.is_file() { Target::File(at) } else { Target::Open(at) });
        }
        let (folder, next) = (folder_of(&at).to_owned(), fs::read_link(&at)?);
        if holds_open_files(&folder) {
            return if fs::metadata(&at)?.is_dir() {
                Err(ErrorKind::IsADirectory.into())
            } else {
                Ok(Target::Open(at))
            };
        }
        at = folder.join(next);
    }
    Err(io::Error::other("its links lead in a circle"))
}

/// `/proc/PID/fd`.
fn holds_open_files(folder: &Path) -> bool {
    fs::canonicalize(folder).is_ok_and(|folder| folder.starts_with("/proc") && folder.ends_with("fd"))
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// What stands where a file is to be written, if it may be replaced.
fn replaced(path: &Path) -> io::Result<Option<Metadata>> {
    match File::options().write(true).open(path) {
        Ok(file) => Ok(Some(file.metadata()?)),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
        Err(e) => Err(e),
    }
}

fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let before = replaced(path)?;
    let mut new = beside(path)?;
    new.write_all(bytes)?;
    if let Some(before) = before {
        keep_owner(new.as_file(), &before);
        new.as_file().set_permissions(before.permissions())?;
    }
    new.persist(path).map_err(|e| e.error)?;
    Ok(())
}

/// A new file in the folder of another, with the mode of new files. It is removed when it is dropped.
fn beside(path: &Path) -> io::Result<NamedTempFile> {
    let name: String = path.file_name().unwrap_or_default().to_string_lossy().chars().take(MOST_OF_NAME).collect();
    let prefix = format!(".{name}.");
    let mut builder = tempfile::Builder::new();
    builder.prefix(&prefix);
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    builder.tempfile_in(folder_of(path))
}

/// A full disk takes a name and nothing else.
fn has_room(file: &mut NamedTempFile) -> io::Result<()> {
    file.write_all(&[b' '; 4096]).and_then(|()| file.flush())
}

#[cfg(unix)]
fn keep_owner(file: &File, before: &Metadata) {
    use std::os::unix::fs::{MetadataExt, fchown};
    let own = file.metadata().map(|now| (now.uid(), now.gid()));
    if own.is_ok_and(|own| own != (before.uid(), before.gid())) {
        // Who may not give files away owns what he writes.
        let _ = fchown(file, Some(before.uid()), Some(before.gid()));
    }
}

#[cfg(not(unix))]
fn keep_owner(_: &File, _: &Metadata) {}

/// Whether a path leads to what this process has as its standard output.
#[cfg(unix)]
fn is_open_as_stdout(path: &Path) -> bool {
    use std::os::fd::AsFd;
    use std::os::unix::fs::MetadataExt;
    let stdout = io::stdout().as_fd().try_clone_to_owned().and_then(|fd| File::from(fd).metadata());
    match (stdout, fs::metadata(path)) {
        (Ok(a), Ok(b)) => (a.dev(), a.ino()) == (b.dev(), b.ino()),
        _ => false,
    }
}

#[cfg(not(unix))]
fn is_open_as_stdout(_: &Path) -> bool {
    false
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use std::os::unix::fs::{FileTypeExt, PermissionsExt, symlink};
    use std::process::Command;
    use tempfile::TempDir;

    /// What a folder holds: contents of regular files by name, and what else there is.
    fn held(folder: &Path) -> BTreeMap<String, Vec<u8>> {
        let entries = fs::read_dir(folder).unwrap().map(|e| e.unwrap());
        let content = |e: &fs::DirEntry| match e.file_type().unwrap() {
            t if t.is_file() => fs::read(e.path()).unwrap(),
            t if t.is_symlink() => format!("-> {}", fs::read_link(e.path()).unwrap().display()).into_bytes(),
            _ => b"other".to_vec(),
        };
        entries.map(|e| (e.file_name().into_string().unwrap(), content(&e))).collect()
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o7777
    }

    #[test]
    fn only_the_named_file_changes() {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("k.atlas");
        // Names that a writer may think its own.
        let id = std::process::id();
        let names = [format!("k.atlas.{id}"), "k.atlas.1".into(), "k.atlas.new".into(), format!(".k.atlas.{id}.0")];
        for name in &names {
            fs::write(folder.path().join(name), "mine").unwrap();
        }
        let others = held(folder.path());
        check(&path).unwrap();
        check_folder(folder.path()).unwrap();
        assert_eq!(held(folder.path()), others, "a check leaves nothing");
        for text in ["new", "newer"] {
            write(&path, text.as_bytes()).unwrap();
            let mut wanted = others.clone();
            wanted.insert("k.atlas".to_owned(), text.into());
            assert_eq!(held(folder.path()), wanted);
        }
    }

    #[test]
    fn a_file_keeps_its_mode_and_a_new_one_has_the_usual() {
        let folder = TempDir::new().unwrap();
        let (path, usual) = (folder.path().join("a"), folder.path().join("usual"));
        fs::write(&usual, "").unwrap();
        write(&path, b"1").unwrap();
        assert_eq!(mode(&path), mode(&usual));
        for bits in [0o640, 0o600, 0o755] {
            fs::set_permissions(&path, fs::Permissions::from_mode(bits)).unwrap();
            write(&path, b"2").unwrap();
            assert_eq!(mode(&path), bits);
        }
    }

    #[test]
    fn links_stay() {
        let folder = TempDir::new().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir(at("inner")).unwrap();
        fs::write(at("inner/real"), "old").unwrap();
        symlink("inner/real", at("one")).unwrap();
        symlink(at("one"), at("two")).unwrap();
        symlink("inner/none", at("dangling")).unwrap();
        check(&at("two")).unwrap();
        write(&at("two"), b"new").unwrap();
        write(&at("dangling"), b"made").unwrap();
        let wanted = [("real", "new"), ("none", "made")].map(|(name, text)| (name.to_owned(), text.into()));
        assert_eq!(held(&at("inner")), BTreeMap::from(wanted));
        assert!([at("one"), at("two"), at("dangling")].iter().all(|p| p.is_symlink()));
        symlink("ring", at("ring")).unwrap();
        assert!(check(&at("ring")).is_err() && write(&at("ring"), b"x").is_err() && at("ring").is_symlink());
        symlink("inner", at("folder")).unwrap();
        assert_eq!(write(&at("folder"), b"x").unwrap_err().kind(), ErrorKind::IsADirectory);
        assert_eq!(check(folder.path()).unwrap_err().kind(), ErrorKind::IsADirectory);
    }

    #[test]
    fn devices_and_pipes_are_written_into() {
        let folder = TempDir::new().unwrap();
        let (pipe, link) = (folder.path().join("pipe"), folder.path().join("link"));
        assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        symlink(&pipe, &link).unwrap();
        for path in [&pipe, &link] {
            let from = pipe.clone();
            let reader = std::thread::spawn(move || fs::read(from).unwrap());
            check(path).unwrap();
            write(path, b"through").unwrap();
            assert_eq!(reader.join().unwrap(), b"through");
            assert!(fs::metadata(&pipe).unwrap().file_type().is_fifo() && link.is_symlink());
        }
        assert!(lock_file(&pipe).is_err() && regular(&link).is_err());
        if cfg!(target_os = "linux") {
            write(Path::new("/dev/null"), b"x").unwrap();
            assert_eq!(write(Path::new("/dev/full"), b"x").unwrap_err().kind(), ErrorKind::StorageFull);
            assert!(fs::metadata("/dev/full").unwrap().file_type().is_char_device());
        }
    }

    /// A file by the number under which it is open, though its name is gone.
    #[test]
    #[cfg(target_os = "linux")]
    fn an_open_file_is_written_into() {
        use std::os::fd::AsRawFd;
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("open");
        let open = File::options().create_new(true).read(true).write(true).open(&path).unwrap();
        fs::remove_file(&path).unwrap();
        write(Path::new(&format!("/dev/fd/{}", open.as_raw_fd())), b"bytes").unwrap();
        assert_eq!(io::read_to_string(&open).unwrap(), "bytes");
        assert!(held(folder.path()).is_empty());
    }

    #[test]
    fn a_failed_write_leaves_what_was_there() {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("none/a");
        assert_eq!(check(&path).unwrap_err().kind(), ErrorKind::NotFound);
        assert_eq!(write(&path, b"x").unwrap_err().kind(), ErrorKind::NotFound);
        // Root may write all the same.
        let path = folder.path().join("kept");
        fs::write(&path, "old").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o444)).unwrap();
        if File::options().write(true).open(&path).is_err() {
            assert!(check(&path).is_err() && write(&path, b"x").is_err());
            assert_eq!(held(folder.path()).len(), 1);
            assert_eq!(fs::read(&path).unwrap(), b"old");
        }
    }

    #[test]
    fn what_is_locked_keeps_its_content() {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join(".lock");
        fs::write(&path, "somebody's").unwrap();
        lock_file(&path).unwrap().lock().unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"somebody's");
    }
}
