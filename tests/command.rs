//! Runs the command line, with assertions on the result.

use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// Variables of the environment, set for one run.
pub(crate) type Variables<'a> = &'a [(&'a str, &'a str)];

fn atlas(args: &[&str], variables: Variables<'_>) -> Output {
    let mut atlas = Command::new(env!("CARGO_BIN_EXE_atlas"));
    let out = atlas.args(args).env("ATLAS_CACHE_DIR", "").envs(variables.iter().copied()).output();
    out.unwrap_or_else(|e| panic!("cannot start atlas: {e}"))
}

/// The stderr of a run whose stdout has no reader.
#[track_caller]
pub(crate) fn unread(args: &[&str]) -> String {
    let mut atlas = Command::new(env!("CARGO_BIN_EXE_atlas"));
    atlas.args(args).env("ATLAS_CACHE_DIR", "").stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = atlas.spawn().unwrap_or_else(|e| panic!("cannot start atlas: {e}"));
    drop(child.stdout.take());
    let out = child.wait_with_output().unwrap_or_else(|e| panic!("{e}"));
    String::from_utf8_lossy(&out.stderr).into_owned()
}

/// A run without assertions.
#[cfg(feature = "llvm")]
pub(crate) fn start(args: &[String]) -> std::process::Child {
    let mut atlas = Command::new(env!("CARGO_BIN_EXE_atlas"));
    atlas.args(args).env("ATLAS_CACHE_DIR", "").stdout(Stdio::null()).stderr(Stdio::null());
    atlas.spawn().unwrap_or_else(|e| panic!("cannot start atlas: {e}"))
}

/// The stdout of a run that must succeed.
#[track_caller]
pub(crate) fn prints(args: &[&str]) -> String {
    prints_with(args, &[])
}

#[track_caller]
pub(crate) fn prints_with(args: &[&str], variables: Variables<'_>) -> String {
    let out = atlas(args, variables);
    assert!(out.status.success(), "atlas {args:?} failed:\n{}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8_lossy(&out.stdout).into_owned()
}

/// The stderr of a run that must succeed.
#[track_caller]
pub(crate) fn says_with(args: &[&str], variables: Variables<'_>) -> String {
    let out = atlas(args, variables);
    assert!(out.status.success(), "atlas {args:?} failed:\n{}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8_lossy(&out.stderr).into_owned()
}

/// The message of a run that must fail.
#[track_caller]
pub(crate) fn refuses(args: &[&str]) -> String {
    refuses_with(args, &[])
}

#[track_caller]
pub(crate) fn refuses_with(args: &[&str], variables: Variables<'_>) -> String {
    let out = atlas(args, variables);
    assert!(!out.status.success(), "atlas {args:?} succeeded:\n{}", String::from_utf8_lossy(&out.stdout));
    let text = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(!text.contains("panicked"), "{text}");
    text
}

#[track_caller]
pub(crate) fn json(args: &[&str]) -> Value {
    json_with(args, &[])
}

#[track_caller]
pub(crate) fn json_with(args: &[&str], variables: Variables<'_>) -> Value {
    let text = prints_with(args, variables);
    serde_json::from_str(&text).unwrap_or_else(|e| panic!("atlas {args:?} does not print JSON: {e}\n{text}"))
}

#[track_caller]
pub(crate) fn has(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "no `{part}` in:\n{text}");
    }
}

/// The JSON that a run prints, and whether it succeeds.
#[cfg(feature = "llvm")]
#[track_caller]
pub(crate) fn json_of(args: &[&str]) -> (bool, Value) {
    json_of_with(args, &[])
}

#[cfg(feature = "llvm")]
#[track_caller]
pub(crate) fn json_of_with(args: &[&str], variables: Variables<'_>) -> (bool, Value) {
    let out = atlas(args, variables);
    let text = String::from_utf8_lossy(&out.stdout);
    let value = serde_json::from_str(&text).unwrap_or_else(|e| {
        panic!("atlas {args:?} does not print JSON: {e}\n{text}\n{}", String::from_utf8_lossy(&out.stderr))
    });
    (out.status.success(), value)
}

pub(crate) fn folder() -> tempfile::TempDir {
    tempfile::tempdir().unwrap_or_else(|e| panic!("no temporary folder: {e}"))
}

pub(crate) fn write(path: &Path, text: &str) {
    std::fs::write(path, text).unwrap_or_else(|e| panic!("cannot write {}: {e}", path.display()));
}
