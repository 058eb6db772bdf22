//! Writes files whole: a concurrent reader sees the old content or the new one, never a part of either.
//!
//! # Promise
//! [`write()`] changes the file that its path names, and no other. A regular file is replaced and keeps its mode, and
//! its owner if the user may change owners. A link stays, and its target is replaced. A device, a pipe or a file that
//! is already open, such as `/dev/stdout`, is written in place and loses nothing. [`check`] says in advance whether a
//! file can be written, and changes none. Reads are bounded, and [`read_regular`] never blocks.
//!
//! # Argument
//! The new content goes to a file in the same folder, under a random name that is created only if it is unused
//! (`tempfile`), and takes over the final name by a rename. The existing file is examined first: links are followed one
//! by one to the name that the rename has to replace. The links of `/proc/self/fd` lead to open files and not to names,
//! so their descriptors are duplicated. The duplicate has the position and the mode of the original, so a log that is
//! open for append grows. A read-only file is left as it is, although its folder would allow the rename.
//!
//! # Breaks it
//! - Links, pipes, devices, modes, open files, and files with predictable names: the tests below.
//! - The command line: tests/files.rs.
//!
//! # Room
//! Depends on no other room. `standard_streams` says which standard streams were closed when the process began, and
//! `toml_text` prints strings and numbers in TOML's syntax.

mod read;
pub mod standard_streams;
pub mod toml_text;

pub use self::read::{MOST_TEXT, read, read_regular, read_regular_text, read_text};

use self::read::{not_regular, open_regular};
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use tempfile::NamedTempFile;

/// The most links that are followed before a path counts as circular.
const MOST_LINKS: u32 = 40;
/// The most bytes of a file's name that its temporary name repeats: a name may have 255 bytes.
const MOST_OF_NAME: usize = 80;

/// The target of a path.
#[derive(Debug, PartialEq, Eq)]
enum WriteTarget {
    /// A regular file, or one that does not exist yet.
    File(PathBuf),
    /// A device, a pipe, or a file that this process has open.
    Open(PathBuf),
}

/// Writes a file whole.
///
/// # Errors
/// If it cannot be written. A regular file is then unchanged.
pub fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    match target(path)? {
        WriteTarget::File(path) => replace(&path, bytes),
        WriteTarget::Open(path) => {
            // Earlier output goes before it, and later output after it.
            let mut stdout = io::stdout().lock();
            // Output that cannot be printed stays in the buffer, and the next print reports the error.
            let _ = stdout.flush();
            match own_open(&path) {
                Some(open) => open?.write_all(bytes),
                None if is_open_as_stdout(&path) => stdout.write_all(bytes).and_then(|()| stdout.flush()),
                // A file that another process has open is not truncated either.
                None => File::options().append(true).open(path)?.write_all(bytes),
            }
        }
    }
}

/// Checks that a file can be written, before spending time on its content.
///
/// # Errors
/// If it cannot be written.
pub fn check(path: &Path) -> io::Result<()> {
    match target(path)? {
        WriteTarget::File(path) => {
            replaced(&path)?;
            has_room(&mut beside(&path)?)
        }
        WriteTarget::Open(path) => match own_open(&path) {
            // Nothing is written, but a file that is open only for reading refuses even this.
            Some(open) => open?.write(&[]).map(drop),
            None => may_be_opened(&path),
        },
    }
}

/// Whether two paths lead to the same regular file.
pub fn is_same(a: &Path, b: &Path) -> bool {
    let (Ok(at), Ok(bt)) = (fs::metadata(a), fs::metadata(b)) else { return false };
    at.is_file() && bt.is_file() && is_one_file(a, &at, b, &bt)
}

#[cfg(unix)]
fn is_one_file(_: &Path, a: &Metadata, _: &Path, b: &Metadata) -> bool {
    use std::os::unix::fs::MetadataExt;
    (a.dev(), a.ino()) == (b.dev(), b.ino())
}

#[cfg(not(unix))]
fn is_one_file(a: &Path, _: &Metadata, b: &Path, _: &Metadata) -> bool {
    matches!((fs::canonicalize(a), fs::canonicalize(b)), (Ok(a), Ok(b)) if a == b)
}

/// Checks that files can be created in a folder, which must exist.
///
/// # Errors
/// If they cannot.
pub fn check_folder(folder: &Path) -> io::Result<()> {
    has_room(&mut beside(&folder.join("check"))?)
}

/// The path of the regular file that a path leads to, with all links resolved. The file need not exist.
///
/// # Errors
/// If the path leads to something other than a regular file.
pub fn regular(path: &Path) -> io::Result<PathBuf> {
    match target(path)? {
        WriteTarget::File(path) => Ok(path),
        WriteTarget::Open(_) => Err(not_regular()),
    }
}

/// Whether writing to a path writes to this process's standard output.
pub fn is_stdout(path: &Path) -> bool {
    matches!(target(path), Ok(WriteTarget::Open(path)) if is_open_as_stdout(&path))
}

/// Opens a file in order to lock it, and creates it if it does not exist. Its content stays.
///
/// # Errors
/// If it cannot be opened, or is not a regular file.
pub fn lock_file(path: &Path) -> io::Result<File> {
    open_regular(File::options().create(true).truncate(false).write(true), &regular(path)?)
}

/// The same in a folder that other users may write to: no link is followed, and a read-only file is accepted.
///
/// # Errors
/// If it cannot be opened, or is not a regular file.
pub fn shared_lock_file(path: &Path) -> io::Result<File> {
    if fs::symlink_metadata(path).is_ok_and(|m| !m.is_file()) {
        return Err(not_regular());
    }
    let open = |options: &mut OpenOptions| {
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::custom_flags(options, libc::O_NONBLOCK | libc::O_NOFOLLOW);
        let file = options.open(path)?;
        if file.metadata()?.is_file() { Ok(file) } else { Err(not_regular()) }
    };
    open(File::options().create(true).append(true)).or_else(|e| match e.kind() {
        ErrorKind::PermissionDenied => open(File::options().read(true)).map_err(|_| e),
        // A link that was created in the meantime.
        #[cfg(unix)]
        _ if e.raw_os_error() == Some(libc::ELOOP) => Err(not_regular()),
        _ => Err(e),
    })
}

fn target(path: &Path) -> io::Result<WriteTarget> {
    let mut at = path.to_owned();
    for _ in 0..MOST_LINKS {
        let found = match fs::symlink_metadata(&at) {
            Ok(found) => found,
            Err(e) if e.kind() == ErrorKind::NotFound && names_a_file(&at) => return Ok(WriteTarget::File(at)),
            Err(e) if e.kind() == ErrorKind::NotFound && !at.as_os_str().is_empty() => {
                return Err(io::Error::new(ErrorKind::IsADirectory, "it is the name of a folder, and there is none"));
            }
            Err(e) => return Err(e),
        };
        if found.is_dir() {
            return Err(ErrorKind::IsADirectory.into());
        }
        if !found.is_symlink() {
            return Ok(if found.is_file() { WriteTarget::File(at) } else { WriteTarget::Open(at) });
        }
        let (folder, next) = (folder_of(&at).to_owned(), fs::read_link(&at)?);
        if holds_open_files(&folder) {
            return if fs::metadata(&at)?.is_dir() {
                Err(ErrorKind::IsADirectory.into())
            } else {
                Ok(WriteTarget::Open(at))
            };
        }
        at = folder.join(next);
    }
    Err(io::Error::other("its links lead in a circle"))
}

/// False if the system takes the path for a folder. The standard library drops a trailing `/` and `/.`.
fn names_a_file(path: &Path) -> bool {
    let name = path.as_os_str().as_encoded_bytes();
    path.file_name().is_some() && !name.ends_with(b"/") && !name.ends_with(b"/.")
}

/// The open file whose descriptor a path of `/proc/self/fd` names, at its current position; `None` for other paths.
#[cfg(unix)]
fn own_open(path: &Path) -> Option<io::Result<File>> {
    use std::os::fd::BorrowedFd;
    let number: u16 = path.file_name()?.to_str()?.parse().ok()?;
    let own = fs::canonicalize("/proc/self/fd").ok()?;
    if fs::canonicalize(folder_of(path)).ok()? != own {
        return None;
    }
    if u8::try_from(number).is_ok_and(standard_streams::was_closed) {
        return Some(Err(io::Error::from_raw_os_error(libc::EBADF)));
    }
    // SAFETY: the number is used in one system call, which fails if it is not an open descriptor.
    Some(unsafe { BorrowedFd::borrow_raw(number.into()) }.try_clone_to_owned().map(File::from))
}

#[cfg(not(unix))]
fn own_open(_: &Path) -> Option<io::Result<File>> {
    None
}

/// Whether a device or a pipe may be opened for writing.
#[cfg(unix)]
fn may_be_opened(path: &Path) -> io::Result<()> {
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
    if !fs::metadata(path)?.file_type().is_fifo() {
        return File::options().append(true).custom_flags(libc::O_NONBLOCK).open(path).map(drop);
    }
    // Opening a pipe would wait for its reader, and closing it would end the reader's input.
    let path = std::ffi::CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: the path ends with a zero byte and lives as long as the call.
    match unsafe { libc::faccessat(libc::AT_FDCWD, path.as_ptr(), libc::W_OK, libc::AT_EACCESS) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(not(unix))]
fn may_be_opened(_: &Path) -> io::Result<()> {
    Ok(())
}

/// `/proc/PID/fd`.
fn holds_open_files(folder: &Path) -> bool {
    fs::canonicalize(folder).is_ok_and(|folder| folder.starts_with("/proc") && folder.ends_with("fd"))
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// The metadata of the file that a write would replace, if there is one and it may be replaced.
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

/// A new file in the folder of another, with the default mode. It is removed when it is dropped.
fn beside(path: &Path) -> io::Result<NamedTempFile> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let end = (0..=MOST_OF_NAME.min(name.len())).rfind(|&end| name.is_char_boundary(end)).unwrap_or_default();
    let prefix = format!(".{}.", &name[..end]);
    let mut builder = tempfile::Builder::new();
    builder.prefix(&prefix);
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    builder.tempfile_in(folder_of(path))
}

/// On a full disk a file can be created but not written.
fn has_room(file: &mut NamedTempFile) -> io::Result<()> {
    file.write_all(&[b' '; 4096]).and_then(|()| file.flush())
}

#[cfg(unix)]
fn keep_owner(file: &File, before: &Metadata) {
    use std::os::unix::fs::{MetadataExt, fchown};
    let own = file.metadata().map(|now| (now.uid(), now.gid()));
    if own.is_ok_and(|own| own != (before.uid(), before.gid())) {
        // A user who may not change owners becomes the owner of the file.
        let _ = fchown(file, Some(before.uid()), Some(before.gid()));
    }
}

#[cfg(not(unix))]
fn keep_owner(_: &File, _: &Metadata) {}

/// Whether a path leads to the standard output of this process.
#[cfg(unix)]
fn is_open_as_stdout(path: &Path) -> bool {
    use std::os::fd::AsFd;
    use std::os::unix::fs::MetadataExt;
    if standard_streams::was_closed(1) {
        return false;
    }
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
    use std::io::{Seek, SeekFrom};
    use std::os::unix::fs::{FileTypeExt, PermissionsExt, symlink};
    use std::process::Command;
    use tempfile::TempDir;

    /// The content of a folder: regular files by name with their bytes, and the names of everything else.
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
        // Names that a writer may take for its own.
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

    /// A file by the number under which it is open, after its name has been removed.
    #[test]
    #[cfg(target_os = "linux")]
    fn an_open_file_is_written_into() {
        use std::os::fd::AsRawFd;
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("open");
        let open = File::options().create_new(true).read(true).write(true).open(&path).unwrap();
        fs::remove_file(&path).unwrap();
        let name = format!("/dev/fd/{}", open.as_raw_fd());
        check(Path::new(&name)).unwrap();
        write(Path::new(&name), b"bytes").unwrap();
        (&open).seek(SeekFrom::Start(0)).unwrap();
        assert_eq!(io::read_to_string(&open).unwrap(), "bytes");
        assert!(held(folder.path()).is_empty());
    }

    /// A log that is open for append grows, and a file that another process has open is written in place.
    #[test]
    #[cfg(target_os = "linux")]
    fn what_is_open_keeps_its_content() {
        use std::os::fd::AsRawFd;
        let folder = TempDir::new().unwrap();
        let (log, file) = (folder.path().join("log"), folder.path().join("file"));
        fs::write(&log, "one\n").unwrap();
        fs::write(&file, "one two").unwrap();
        let append = File::options().append(true).open(&log).unwrap();
        let mut inside = File::options().write(true).open(&file).unwrap();
        inside.seek(SeekFrom::Start(4)).unwrap();
        for open in [&append, &inside] {
            for folder in ["/dev/fd", "/proc/self/fd", &format!("/proc/{}/fd", std::process::id())] {
                check(Path::new(&format!("{folder}/{}", open.as_raw_fd()))).unwrap();
            }
        }
        write(Path::new(&format!("/dev/fd/{}", append.as_raw_fd())), b"two\n").unwrap();
        write(Path::new(&format!("/proc/self/fd/{}", inside.as_raw_fd())), b"TWO").unwrap();
        assert_eq!(fs::read_to_string(&log).unwrap(), "one\ntwo\n");
        assert_eq!(fs::read_to_string(&file).unwrap(), "one TWO");
        let read_only = File::open(&file).unwrap();
        let name = format!("/dev/fd/{}", read_only.as_raw_fd());
        assert!(check(Path::new(&name)).is_err() && write(Path::new(&name), b"x").is_err());
        assert_eq!(fs::read_to_string(&file).unwrap(), "one TWO");
    }

    /// A check accepts nothing that a write cannot do.
    #[test]
    fn what_names_no_file_is_refused_before_anything_is_made() {
        let folder = TempDir::new().unwrap();
        let at = |name: &str| folder.path().join(name);
        symlink("new/", at("dangling")).unwrap();
        let _listener = std::os::unix::net::UnixListener::bind(at("socket")).unwrap();
        let before = held(folder.path());
        for path in [at("new/"), at("new/."), at("new/.."), at("dangling"), at("socket"), PathBuf::new()] {
            assert!(check(&path).is_err(), "{}", path.display());
            assert!(write(&path, b"x").is_err(), "{}", path.display());
        }
        assert_eq!(held(folder.path()), before);
    }

    #[test]
    fn a_name_of_255_bytes_is_one() {
        let folder = TempDir::new().unwrap();
        for name in ["\u{1d11e}".repeat(62), "a".repeat(255), "\u{e4}".repeat(127)] {
            let path = folder.path().join(&name);
            check(&path).unwrap();
            write(&path, b"x").unwrap();
            assert_eq!(fs::read(&path).unwrap(), b"x");
        }
    }

    #[test]
    fn a_shared_lock_follows_no_link() {
        let folder = TempDir::new().unwrap();
        let pipe = folder.path().join("pipe");
        assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        assert!(shared_lock_file(&pipe).is_err() && lock_file(&pipe).is_err());
        let (file, link) = (folder.path().join("file"), folder.path().join("link"));
        symlink("made", &link).unwrap();
        assert!(shared_lock_file(&link).is_err() && !folder.path().join("made").exists());
        shared_lock_file(&file).unwrap().lock().unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o444)).unwrap();
        shared_lock_file(&file).unwrap();
    }

    #[test]
    fn one_file_by_two_names_is_the_same() {
        let folder = TempDir::new().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("a"), "").unwrap();
        fs::write(at("b"), "").unwrap();
        fs::hard_link(at("a"), at("hard")).unwrap();
        symlink("a", at("soft")).unwrap();
        assert!(is_same(&at("a"), &at("hard")) && is_same(&at("soft"), &at("hard")));
        assert!(!is_same(&at("a"), &at("b")) && !is_same(&at("a"), &at("none")));
        assert!(!is_same(Path::new("/dev/null"), Path::new("/dev/null")));
    }

    #[test]
    fn a_failed_write_leaves_what_was_there() {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("none/a");
        assert_eq!(check(&path).unwrap_err().kind(), ErrorKind::NotFound);
        assert_eq!(write(&path, b"x").unwrap_err().kind(), ErrorKind::NotFound);
        // Root may write anyway.
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
