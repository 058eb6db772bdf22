//! NVIDIA's assembler, if it is found: registers and spills of a kernel. It is never needed to run one.

use anyhow::{Context, Result, bail};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// The most bytes of a program's version output and of a kernel's machine code.
const MOST_SAID: u64 = 1 << 20;
const MOST_CODE: u64 = 1 << 30;

/// The resources that ptxas reports for a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resources {
    /// Registers per thread.
    pub registers: u32,
    /// Bytes of local memory per thread.
    pub stack: u32,
    /// Bytes spilled per thread, stores and loads together.
    pub spills: u32,
    /// Static shared memory in bytes.
    pub shared: u32,
}

/// How long to wait for a program's version output.
const PATIENCE: Duration = Duration::from_secs(5);

/// The path in `ATLAS_PTXAS`, if there is one.
fn named() -> Option<PathBuf> {
    std::env::var_os("ATLAS_PTXAS").filter(|path| !path.is_empty()).map(PathBuf::from)
}

/// The file that `ATLAS_PTXAS` names. Without the variable, a ptxas under `.tools` here or in a parent folder, else the
/// one on the PATH.
pub fn find() -> Option<PathBuf> {
    if let Some(path) = named() {
        return Some(path).filter(|path| path.is_file());
    }
    let here = std::env::current_dir().ok()?;
    let tools = here.ancestors().map(|dir| dir.join(".tools")).find(|t| t.is_dir());
    if let Some(found) = tools.and_then(|t| search(&t, 8)) {
        return Some(found);
    }
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|dir| dir.join("ptxas")).find(|p| p.is_file())
}

/// The advice if none is found.
pub(super) fn missing() -> String {
    match named() {
        Some(path) => format!("ATLAS_PTXAS names {}, which is no file", path.display()),
        None => "put it on the PATH, or set ATLAS_PTXAS to it".to_owned(),
    }
}

/// The output of a program, if it succeeds in time.
pub(super) fn printed(command: &mut Command) -> Option<String> {
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().ok()?;
    let stdout = child.stdout.take()?;
    let (sender, said) = std::sync::mpsc::channel();
    // A child process of the program may keep the output open.
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let read = stdout.take(MOST_SAID).read_to_end(&mut bytes);
        // The receiver may have stopped waiting.
        let _ = sender.send(read.map(|_| bytes));
    });
    let end = Instant::now() + PATIENCE;
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break Some(status),
            Ok(None) if Instant::now() < end => std::thread::sleep(Duration::from_millis(5)),
            _ => {
                // It may have ended in the meantime.
                let _ = child.kill();
                let _ = child.wait();
                break None;
            }
        }
    };
    let bytes = said.recv_timeout(end.saturating_duration_since(Instant::now())).ok()?.ok()?;
    status.filter(ExitStatus::success).map(|_| String::from_utf8_lossy(&bytes).into_owned())
}

/// The last `ptxas` under a folder in name order, which is the newest if folders are named by version.
fn search(dir: &Path, depth: u32) -> Option<PathBuf> {
    let mut entries: Vec<PathBuf> = std::fs::read_dir(dir).ok()?.flatten().map(|e| e.path()).collect();
    entries.sort();
    if let Some(found) = entries.iter().find(|p| p.file_name().is_some_and(|n| n == "ptxas") && p.is_file()) {
        return Some(found.clone());
    }
    let mut folders = entries.iter().rev().filter(|p| p.is_dir() && depth > 0);
    folders.find_map(|p| search(p, depth - 1))
}

/// The version that a ptxas reports, such as `13.0.88`.
pub fn version(ptxas: &Path) -> Option<String> {
    let text = printed(Command::new(ptxas).arg("--version"))?;
    text.lines().find_map(|l| l.split(", V").nth(1).map(|v| v.trim().to_owned()))
}

/// Assembles PTX for an arch and returns its resources.
pub fn assemble(ptxas: &Path, ptx: &str, arch: &str) -> Result<Resources> {
    run(ptxas, ptx, arch, Path::new("/dev/null"))
}

/// Assembles PTX for an arch. Returns the machine code and its resources.
pub fn machine_code(ptxas: &Path, ptx: &str, arch: &str) -> Result<(Vec<u8>, Resources)> {
    let folder = tempfile::tempdir().context("cannot make a temporary folder")?;
    let to = folder.path().join("atlas.cubin");
    let resources = run(ptxas, ptx, arch, &to)?;
    let code = atlas_runtime::files::read_regular(&to, MOST_CODE).ok().filter(|code| !code.is_empty());
    let code = code.with_context(|| format!("{} ended well and wrote no machine code", ptxas.display()))?;
    Ok((code, resources))
}

fn run(ptxas: &Path, ptx: &str, arch: &str, to: &Path) -> Result<Resources> {
    // Not through a pipe: a program that does not read it would end this process by SIGPIPE.
    let folder = tempfile::tempdir().context("cannot make a temporary folder")?;
    let from = folder.path().join("atlas.ptx");
    atlas_runtime::files::write(&from, ptx.as_bytes()).with_context(|| format!("cannot write {}", from.display()))?;
    let out = Command::new(ptxas)
        .args(["-v", &format!("-arch={arch}"), "-o"])
        .arg(to)
        .arg(&from)
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot start {}", ptxas.display()))?;
    let text = String::from_utf8_lossy(&out.stderr).into_owned() + &String::from_utf8_lossy(&out.stdout);
    if !out.status.success() {
        bail!("ptxas refuses the kernel: {}", text.trim());
    }
    Ok(parse(&text))
}

fn parse(text: &str) -> Resources {
    let before = |what: &str| {
        text.find(what).and_then(|at| text[..at].rsplit(' ').find(|w| !w.is_empty())?.parse().ok()).unwrap_or(0)
    };
    Resources {
        registers: before(" registers"),
        stack: before(" bytes stack frame"),
        spills: before(" bytes spill stores") + before(" bytes spill loads"),
        shared: before(" bytes smem"),
    }
}

#[cfg(test)]
mod tests {
    use super::{Resources, parse};

    #[test]
    fn reads_registers_spills_and_shared_memory() {
        let text = "ptxas info    : Function properties for k\n    40 bytes stack frame, 8 bytes spill stores, 12 bytes spill loads\n\
                    ptxas info    : Used 168 registers, used 1 barriers, 2048 bytes smem, 400 bytes cmem[0]";
        assert_eq!(parse(text), Resources { registers: 168, stack: 40, spills: 20, shared: 2048 });
    }
}
