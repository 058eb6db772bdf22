//! Runs other programs, and prints their command lines.

use anyhow::{Context, Result, bail};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The repository: the parent of this package's folder.
pub(crate) fn root() -> PathBuf {
    let package =
        std::env::var_os("CARGO_MANIFEST_DIR").map_or_else(|| env!("CARGO_MANIFEST_DIR").into(), PathBuf::from);
    package.parent().map_or_else(|| package.clone(), Path::to_path_buf)
}

/// True if output goes to a log, where progress bars are not wanted.
pub(crate) fn in_ci() -> bool {
    std::env::var_os("CI").is_some_and(|v| v != "false" && v != "0" && !v.is_empty())
}

/// Every package with LLVM and all features, but for the C library, which is tested as it ships. Everything that is built with LLVM
/// selects these packages and these features, because cargo compiles a crate anew for each selection that gives it other features.
///
/// `mutations` are known mistakes that a test can plant. Without a planted mistake the compiler is the same.
pub(crate) const WITH_LLVM: [&str; 5] = [
    "--workspace",
    "--exclude",
    "atlas-gpu-c",
    "--features",
    "atlas-gpu/jit,atlas-gpu/verify,atlas-gpu-cli/jit,atlas-gpu-cli/mutations",
];

/// What users build without LLVM: the C library, and the crates that it has in it.
pub(crate) const WITHOUT_LLVM: [&str; 2] = ["-p", "atlas-gpu-c"];

/// The cargo that runs this program.
pub(crate) fn cargo(root: &Path) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root);
    // `cargo run` sets these for this package. They would confuse builds of other packages.
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
            command.env_remove(&name);
        }
    }
    if in_ci() {
        command.env("CARGO_TERM_PROGRESS_WHEN", "never");
        // A clean checkout has nothing to continue from. What incremental builds keep fills the disk.
        command.env("CARGO_INCREMENTAL", "0");
    }
    command
}

/// The command as it would be typed in a shell.
pub(crate) fn text(command: &Command) -> String {
    let set = command.get_envs().filter_map(|(name, value)| {
        let shown = ["RUSTDOCFLAGS", "DEBIAN_FRONTEND"].iter().any(|n| name == OsStr::new(n));
        value.filter(|_| shown).map(|v| format!("{}={}", name.display(), quoted(v)))
    });
    let program = Path::new(command.get_program());
    let words = std::iter::once(program.file_name().unwrap_or(command.get_program())).chain(command.get_args());
    set.chain(words.map(quoted)).collect::<Vec<_>>().join(" ")
}

fn quoted(word: &OsStr) -> String {
    let word = word.to_string_lossy();
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,@+".contains(c);
    if !word.is_empty() && word.chars().all(plain) { word.into_owned() } else { format!("'{word}'") }
}

/// Runs a command with its output passed through.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let shown = text(command);
    println!("$ {shown}");
    let status = command.status().with_context(|| format!("cannot start `{shown}`"))?;
    if !status.success() {
        bail!("`{shown}` failed ({status})");
    }
    Ok(())
}

/// Runs a command quietly and returns its standard output.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let shown = text(command);
    let out = command.stdin(Stdio::null()).output().with_context(|| format!("cannot start `{shown}`"))?;
    if !out.status.success() {
        bail!("`{shown}` failed ({}): {}", out.status, String::from_utf8_lossy(&out.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&out.stdout).into_owned())
}

/// True if a program starts and succeeds.
pub(crate) fn works(program: &str, args: &[&str]) -> bool {
    succeeds(Command::new(program).args(args))
}

/// True if a command starts and succeeds. What it prints is not shown.
pub(crate) fn succeeds(command: &mut Command) -> bool {
    command.stdin(Stdio::null()).output().is_ok_and(|o| o.status.success())
}

/// Cargo's target folder.
pub(crate) fn target_dir(root: &Path) -> Result<PathBuf> {
    let text = output(cargo(root).args(["metadata", "--format-version=1", "--no-deps", "--offline"]))?;
    let value: serde_json::Value = serde_json::from_str(&text).context("cargo metadata printed no JSON")?;
    let dir = value["target_directory"].as_str().context("cargo metadata names no target_directory")?;
    Ok(dir.into())
}

#[cfg(test)]
mod tests {
    use super::{root, run, text};
    use std::process::Command;

    #[test]
    fn shows_a_command_as_a_shell_would_take_it() {
        let mut command = Command::new("/usr/bin/cargo");
        command.args(["doc", "--no-deps", "a b"]).env("RUSTDOCFLAGS", "-D warnings");
        assert_eq!(text(&command), "RUSTDOCFLAGS='-D warnings' cargo doc --no-deps 'a b'");
    }

    #[test]
    fn a_failing_command_is_an_error() {
        assert!(run(&mut Command::new("false")).is_err());
        assert!(run(&mut Command::new("there-is-no-such-program")).is_err());
        assert!(run(&mut Command::new("true")).is_ok());
    }

    #[test]
    fn the_root_holds_the_workspace() {
        assert!(root().join("xtask").is_dir());
    }
}
