//! Files that the command line writes: what a path leads to is written, and no other file is.

use crate::command::{folder, prints, refuses};
use std::fs;
use std::os::unix::fs::{FileTypeExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A command that writes a file, and how the file begins.
struct Writer {
    args: Vec<&'static str>,
    begins: &'static [u8],
}

/// The commands whose last argument is the file.
fn writers() -> Vec<Writer> {
    let sweep = ["explain", "softmax", "--dims", "N=64,D=512", "--sweep", "N=1..100", "--plot"];
    let mut all = vec![Writer { args: sweep.to_vec(), begins: b"<svg" }];
    if cfg!(feature = "llvm") {
        let bundle = ["bundle", "softmax", "--dims", "N=8,D=64", "--arch", "sm_80", "--variants", "1", "--only-these"];
        let bundle = [&bundle[..], &["--no-evidence", "--out"]].concat();
        all.push(Writer { args: bundle, begins: b"ATLASBND" });
        let pack = ["tune", "softmax", "--dims", "N=8,D=64", "--share", "0.1", "--pack"];
        all.push(Writer { args: pack.to_vec(), begins: b"ATLASBND" });
    }
    all
}

impl Writer {
    #[track_caller]
    fn write(&self, file: &Path) {
        prints(&[&self.args[..], &[&*file.display().to_string()]].concat());
    }

    fn wrote(&self, bytes: &[u8]) -> bool {
        bytes.starts_with(self.begins)
    }

    /// A shell command that writes the file.
    fn command(&self, file: &str) -> String {
        let words = self.args.iter().map(|word| format!("'{word}'")).collect::<Vec<_>>().join(" ");
        format!("'{}' {words} {file}", env!("CARGO_BIN_EXE_atlas"))
    }
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(folder).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// Runs a shell command; its standard output.
fn shell(command: &str) -> Vec<u8> {
    let out = Command::new("sh").args(["-c", command]).env("ATLAS_CACHE_DIR", "").output().unwrap();
    assert!(out.status.success(), "{command}\n{}", String::from_utf8_lossy(&out.stderr));
    out.stdout
}

#[test]
fn a_link_stays_and_its_file_keeps_its_mode() {
    for writer in writers() {
        let folder = folder();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("real"), "old").unwrap();
        fs::set_permissions(at("real"), fs::Permissions::from_mode(0o640)).unwrap();
        symlink("real", at("link")).unwrap();
        writer.write(&at("link"));
        assert!(at("link").is_symlink() && writer.wrote(&fs::read(at("real")).unwrap()));
        assert_eq!(fs::metadata(at("real")).unwrap().permissions().mode() & 0o777, 0o640);
        assert_eq!(names(folder.path()), ["link", "real"]);
    }
}

/// In a container a program's number is known: its own temporary names must not be.
#[test]
fn a_file_named_by_the_number_of_the_process_stays() {
    for writer in writers() {
        let folder = folder();
        let file = folder.path().join("k");
        // `exec` keeps the number of the shell, which is in the names.
        let made = format!(
            "cd '{}' && for name in k.$$ .k.$$ k.new .probe-$$ .probe.$$; do echo mine > $name; done; exec {}",
            folder.path().display(),
            writer.command("k")
        );
        shell(&made);
        let mut others = names(folder.path());
        others.retain(|name| name != "k");
        assert_eq!(others.len(), 5, "{others:?}");
        assert!(others.iter().all(|name| fs::read(folder.path().join(name)).unwrap() == b"mine\n"));
        assert!(writer.wrote(&fs::read(file).unwrap()));
    }
}

#[test]
fn a_pipe_and_stdout_are_written_into() {
    for writer in writers() {
        let folder = folder();
        let pipe = folder.path().join("pipe");
        assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let from: PathBuf = pipe.clone();
        let reader = std::thread::spawn(move || fs::read(from).unwrap());
        writer.write(&pipe);
        assert!(writer.wrote(&reader.join().unwrap()));
        assert!(fs::metadata(&pipe).unwrap().file_type().is_fifo());
        assert_eq!(names(folder.path()), ["pipe"]);
    }
    // Of a bundle nothing else stands in the output; a file as the output keeps what was printed.
    #[cfg(feature = "llvm")]
    {
        let bundle = &writers()[1];
        let folder = folder();
        let file = folder.path().join("k");
        bundle.write(&file);
        let alone = fs::read(&file).unwrap();
        assert!(shell(&bundle.command("/dev/stdout")) == alone);
        let redirected = folder.path().join("out");
        shell(&format!(
            "{{ echo before; {}; echo after; }} > '{}'",
            bundle.command("/dev/stdout"),
            redirected.display()
        ));
        assert!(fs::read(redirected).unwrap() == [b"before\n", &alone[..], b"after\n"].concat());
    }
}

#[test]
fn a_device_stays_one() {
    for writer in writers() {
        let text = refuses(&[&writer.args[..], &["/dev/full"]].concat());
        assert!(text.contains("cannot write /dev/full"), "{text}");
        writer.write(Path::new("/dev/null"));
        for device in ["/dev/full", "/dev/null"] {
            assert!(fs::metadata(device).unwrap().file_type().is_char_device(), "{device}");
        }
    }
}

#[test]
fn files_of_a_folder_are_written_through_links() {
    let folder = folder();
    let at = |name: &str| folder.path().join(name);
    let args = ["compile", "softmax", "--emit", "tile", "--config", "BN=2 warps=8", "--out-dir"];
    let out = folder.path().display().to_string();
    let file = PathBuf::from(prints(&[&args[..], &[&out]].concat()).trim());
    fs::rename(&file, at("real")).unwrap();
    symlink("real", &file).unwrap();
    fs::write(at("real"), "").unwrap();
    prints(&[&args[..], &[&out]].concat());
    assert!(file.is_symlink() && fs::read_to_string(at("real")).unwrap().contains("softmax"));
    assert_eq!(names(folder.path()).len(), 2);
}
