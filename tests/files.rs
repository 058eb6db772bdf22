//! Files that the command line writes: the target of a path is written, and no other file.

use crate::command::{folder, prints, refuses};
use std::fs;
use std::os::unix::fs::{FileTypeExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A command that writes a file, and the expected beginning of the file.
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

/// Runs a shell command and returns its stdout.
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

/// In a container, a process id is predictable, so temporary names must not be derived from it.
#[test]
fn a_file_named_by_the_number_of_the_process_stays() {
    for writer in writers() {
        let folder = folder();
        let file = folder.path().join("k");
        // `exec` keeps the process id of the shell, which is in the names.
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
    // A bundle on stdout has no other output around it. If stdout is a file, it keeps earlier output.
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

/// A log that is open for append keeps its content.
#[test]
fn what_is_open_for_append_grows() {
    for writer in writers() {
        let folder = folder();
        let log = folder.path().join("log");
        for (file, redirection) in [("/dev/stderr", "2>>"), ("/dev/fd/5", "5>>"), ("/proc/self/fd/5", "5>>")] {
            fs::write(&log, "before\n").unwrap();
            shell(&format!("{} {redirection}'{}' >/dev/null", writer.command(file), log.display()));
            let written = fs::read(&log).unwrap();
            let behind = written.strip_prefix(b"before\n");
            assert!(behind.is_some_and(|text| text.windows(writer.begins.len()).any(|w| w == writer.begins)), "{file}");
        }
    }
}

/// The check comes before anything is computed.
#[test]
fn what_cannot_be_written_is_told_at_once() {
    for writer in writers() {
        let folder = folder();
        let at = |name: &str| folder.path().join(name);
        symlink("none/", at("dangling")).unwrap();
        for path in [at("new/"), at("dangling"), at("none/file")] {
            let begun = std::time::Instant::now();
            let text = refuses(&[&writer.args[..], &[&*path.display().to_string()]].concat());
            assert!(text.contains("cannot write"), "{text}");
            assert!(text.contains("--"), "the option is named: {text}");
            assert!(begun.elapsed().as_secs() < 20);
        }
        assert_eq!(names(folder.path()), ["dangling"]);
    }
}

/// By its name, by a link and by a second name.
#[test]
fn what_is_read_is_not_written_over() {
    let folder = folder();
    let at = |name: &str| folder.path().join(name).display().to_string();
    let sizes = "[[launch]]\nkernel = \"softmax\"\ndtype = \"f32\"\ndims = \"N=8 D=64\"\n";
    fs::write(at("in.toml"), sizes).unwrap();
    symlink("in.toml", at("link")).unwrap();
    fs::hard_link(at("in.toml"), at("hard")).unwrap();
    let input = at("in.toml");
    for out in ["in.toml", "link", "hard"] {
        let bundle = ["bundle", "--sizes", &input, "--arch", "sm_80", "--out", &at(out)].map(str::to_owned);
        let pack = ["tune", "--sizes", &input, "--pack", &at(out)].map(str::to_owned);
        for args in [&bundle[..], &pack[..usize::from(cfg!(feature = "llvm")) * pack.len()]] {
            if args.is_empty() {
                continue;
            }
            let text = refuses(&args.iter().map(String::as_str).collect::<Vec<_>>());
            assert!(text.contains("is the file of --sizes, and would be overwritten"), "{text}");
        }
    }
    fs::create_dir(at("records")).unwrap();
    fs::create_dir(at("records/gpu")).unwrap();
    fs::write(at("records/gpu/k.toml"), "a record").unwrap();
    let out = at("records/gpu/k.toml");
    let records = at("records");
    let bundle = ["bundle", "--sizes", &input, "--arch", "sm_80:a", "--records", &records, "--out", &out];
    assert!(refuses(&bundle).contains("is the file of a tuning record"));
    assert_eq!(fs::read_to_string(at("in.toml")).unwrap(), sizes);
    assert_eq!(fs::read_to_string(out).unwrap(), "a record");
    // The printed kernel goes to another file, unless a link leads back.
    let tile = at("k.tile");
    fs::write(&tile, prints(&["compile", "poly1", "--emit", "tile"])).unwrap();
    let into = at("out");
    let args = ["compile", &tile, "--emit", "tile", "--out-dir", &into];
    let made = prints(&args).trim().to_owned();
    fs::remove_file(&made).unwrap();
    symlink(&tile, &made).unwrap();
    assert!(refuses(&args).contains("is the file of the kernel"));
}

/// Endless files of sizes and kernels are refused.
#[test]
fn what_is_read_has_an_end() {
    let folder = folder();
    let tile = folder.path().join("z.tile");
    symlink("/dev/zero", &tile).unwrap();
    let text = refuses(&["compile", &tile.display().to_string(), "--emit", "tile"]);
    assert!(text.contains("it has more than 67108864 bytes"), "{text}");
    let text = refuses(&["bundle", "--sizes", "/dev/zero", "--out", &folder.path().join("k").display().to_string()]);
    assert!(text.contains("--sizes: cannot read /dev/zero: it has more than"), "{text}");
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
