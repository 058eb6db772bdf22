//! Output that cannot be written: every verb reports it and fails, and none panics.

use crate::command::{folder, write};
use std::fs::File;
use std::process::{Command, Output, Stdio};

/// A full device, which accepts no bytes.
fn full() -> Stdio {
    File::options().write(true).open("/dev/full").unwrap().into()
}

fn atlas(args: &[&str], stdout: Stdio, stderr: Stdio) -> Output {
    let mut atlas = Command::new(env!("CARGO_BIN_EXE_atlas"));
    atlas.args(args).env("ATLAS_CACHE_DIR", "").stdin(Stdio::null()).stdout(stdout).stderr(stderr);
    atlas.spawn().unwrap().wait_with_output().unwrap()
}

/// A run of each verb that prints something, and its exit status. `{}` is a folder of its own.
fn verbs() -> Vec<(Vec<&'static str>, i32)> {
    let mut verbs = vec![
        (vec!["--help"], 0),
        (vec!["--version"], 0),
        (vec!["tune", "--help"], 0),
        (vec!["list"], 0),
        (vec!["list", "--json"], 0),
        (vec!["compile", "softmax", "--emit", "tile"], 0),
        (vec!["compile", "softmax", "--emit", "tile", "--json"], 0),
        (vec!["compile", "softmax", "--emit", "tile", "--out-dir", "{}"], 0),
        (vec!["explain", "softmax"], 0),
        (vec!["explain", "softmax", "--json"], 0),
        (vec!["verify", "--device", "cpu", "--only", "poly1"], 0),
        (vec!["demo", "--device", "cpu", "--only", "newton_schulz_small"], 0),
        (vec!["doctor"], 0),
        (vec!["tune", "--replay", "{}/nvidia-h200"], 0),
    ];
    if cfg!(feature = "llvm") {
        verbs.extend([
            (vec!["compile", "softmax"], 0),
            (vec!["explain", "softmax", "--dims", "N=7,D=40", "--simulate"], 0),
            (vec!["fuzz", "--seed", "7", "--count", "3", "--list"], 0),
            (vec!["fuzz", "--seed", "7", "--count", "2"], 0),
            (vec!["verify", "--device", "sim:sm_80", "--only", "poly1"], 0),
            (
                vec![
                    "bundle",
                    "softmax",
                    "--dims",
                    "N=8,D=64",
                    "--arch",
                    "sm_80",
                    "--variants",
                    "1",
                    "--only-these",
                    "--out",
                    "{}/k.atlas",
                ],
                0,
            ),
            (vec!["bundle", "--show", "{}/known.atlas"], 0),
            (vec!["verify", "--bundle", "{}/known.atlas"], 0),
            (
                vec![
                    "tune",
                    "softmax",
                    "--device",
                    "sim:sm_90",
                    "--dims",
                    "N=8,D=512",
                    "--share",
                    "0.1",
                    "--jobs",
                    "1",
                    "--records",
                    "{}/records",
                ],
                0,
            ),
            (vec!["tune", "softmax", "--dims", "N=8,D=64", "--share", "0.1", "--pack", "{}/p.atlas"], 0),
        ]);
    }
    // Runs that fail by themselves, with a message.
    verbs.extend([(vec!["bench", "--device", "cpu"], 1), (vec!["explain", "nothing"], 1), (vec!["listt"], 2)]);
    verbs
}

/// The tuning record of one kernel: all of them take minutes to replay.
const RECORD: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../ops/records/nvidia-h200/softmax.toml");

/// Runs each verb with a folder of its own, which contains a record and a bundle.
fn each(mut run: impl FnMut(&[&str], i32)) {
    let known = folder();
    let bundle = known.path().join("known.atlas").display().to_string();
    if cfg!(feature = "llvm") {
        let args = ["bundle", "softmax", "--dims", "N=8,D=64", "--arch", "sm_80", "--variants", "1", "--only-these"];
        let made = atlas(&[&args[..], &["--out", &bundle]].concat(), Stdio::null(), Stdio::null());
        assert!(made.status.success());
    }
    for (args, status) in verbs() {
        let own = folder();
        std::fs::create_dir(own.path().join("nvidia-h200")).unwrap();
        std::fs::copy(RECORD, own.path().join("nvidia-h200/softmax.toml")).unwrap();
        if cfg!(feature = "llvm") {
            std::fs::copy(&bundle, own.path().join("known.atlas")).unwrap();
        }
        let args: Vec<String> = args.iter().map(|a| a.replace("{}", &own.path().display().to_string())).collect();
        run(&args.iter().map(String::as_str).collect::<Vec<_>>(), status);
    }
}

#[test]
fn a_full_stdout_is_told_and_fails() {
    each(|args, status| {
        let out = atlas(args, full(), Stdio::piped());
        let said = String::from_utf8_lossy(&out.stderr);
        assert!(!said.contains("panicked"), "{args:?}\n{said}");
        if status == 0 {
            assert!(said.contains("error: cannot write to stdout: "), "{args:?}\n{said}");
            assert_eq!(out.status.code(), Some(1), "{args:?}\n{said}");
        } else {
            assert_eq!(out.status.code(), Some(status), "{args:?}\n{said}");
        }
    });
}

/// Rust opens /dev/null in place of a closed stdout. A /dev/null that the caller opened is accepted.
#[test]
fn a_closed_stdout_is_told_and_fails() {
    let run = |args: &str, streams: &str| {
        let command = format!("exec '{}' {args} {streams}", env!("CARGO_BIN_EXE_atlas"));
        Command::new("sh").args(["-c", &command]).env("ATLAS_CACHE_DIR", "").output().unwrap()
    };
    for args in ["list", "--help", "compile softmax --emit tile", "doctor --json"] {
        let out = run(args, ">&-");
        let said = String::from_utf8_lossy(&out.stderr);
        assert_eq!((out.status.code(), &*said), (Some(1), "error: cannot write to stdout: it is closed\n"), "{args}");
        assert_eq!(run(args, ">&- 2>&-").status.code(), Some(1), "{args}");
    }
    assert_eq!(run("listt", ">&-").status.code(), Some(2));
    for streams in [">/dev/null", "1<>/dev/null", "<&-", "2>&-"] {
        assert_eq!(run("list", streams).status.code(), Some(0), "{streams}");
    }
    let plot = "explain softmax --dims N=64,D=512 --sweep N=1..8 --plot";
    assert_eq!(run(&format!("{plot} /dev/stderr"), "2>&-").status.code(), Some(1));
}

#[test]
fn a_full_stderr_changes_no_status() {
    each(|args, status| {
        let out = atlas(args, Stdio::piped(), full());
        assert_eq!(out.status.code(), Some(status), "{args:?}\n{}", String::from_utf8_lossy(&out.stdout));
        assert_eq!(out.stdout.is_empty(), status != 0, "{args:?}");
    });
}

/// Without a reader, the program ends quietly, by the signal or by itself.
#[test]
fn a_closed_pipe_is_quiet() {
    for args in [&["--help"][..], &["list"], &["compile", "softmax", "--emit", "tile"], &["tune", "--help"]] {
        let mut atlas = Command::new(env!("CARGO_BIN_EXE_atlas"));
        atlas.args(args).env("ATLAS_CACHE_DIR", "").stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = atlas.spawn().unwrap();
        drop(child.stdout.take());
        let out = child.wait_with_output().unwrap();
        assert_eq!(String::from_utf8_lossy(&out.stderr), "", "{args:?}");
    }
}

/// A launch continues even if its warning cannot be printed.
#[test]
fn a_warning_about_recorded_sizes_ends_nothing() {
    let folder = folder();
    let file = folder.path().join("mine.toml");
    write(&file, "[package]\n");
    let mut atlas = Command::new(env!("CARGO_BIN_EXE_atlas"));
    atlas.args(["verify", "--device", "cpu", "--only", "poly1"]).env("ATLAS_CACHE_DIR", "");
    atlas.env("ATLAS_RECORD_SIZES", &file).stdout(Stdio::null()).stderr(full());
    assert_eq!(atlas.status().unwrap().code(), Some(0));
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "[package]\n");
}
