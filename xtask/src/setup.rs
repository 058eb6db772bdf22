//! Installs what is missing: LLVM 22 from the distribution, NVIDIA's assembler from the Python package index.
//!
//! Does nothing if everything is present. LLVM is needed to compile kernels; ptxas is only needed to check them.

use crate::command;
use crate::ptxas::{self, Tool};
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The arguments of the task.
#[derive(clap::Args, Default)]
pub(crate) struct SetupArgs {
    /// Also fetch cuobjdump, to look at machine code, and nvdisasm, which `validate` fetches too.
    #[arg(long)]
    sass: bool,
}

/// A Debian package, and the file that shows that it is installed.
struct Package {
    name: &'static str,
    marker: fn(&Path) -> bool,
}

/// The packages that a build against LLVM 22 needs.
const PACKAGES: [Package; 5] = [
    Package { name: "llvm-22-dev", marker: |llvm| llvm_version(llvm).is_some() },
    Package { name: "libpolly-22-dev", marker: |llvm| llvm.join("lib/libPolly.a").exists() },
    Package { name: "zlib1g-dev", marker: |_| Path::new("/usr/include/zlib.h").exists() },
    Package { name: "libzstd-dev", marker: |_| Path::new("/usr/include/zstd.h").exists() },
    Package { name: "g++", marker: |_| has_libstdcxx() },
];

/// Installs both. Fails if either is still missing.
pub(crate) fn run(root: &Path, args: &SetupArgs) -> Result<()> {
    let llvm = llvm();
    let assembler = ptxas(root);
    if args.sass {
        for tool in [Tool::CUOBJDUMP, Tool::NVDISASM] {
            if let Err(e) = fetch(root, &tool) {
                println!("setup: {} is not available: {e:#}", tool.program);
            }
        }
    }
    let missing: Vec<String> = [llvm.err(), assembler.err()].into_iter().flatten().map(|e| format!("{e:#}")).collect();
    if !missing.is_empty() {
        bail!("{}", missing.join("\n"));
    }
    Ok(())
}

/// Makes LLVM 22 available to builds.
pub(crate) fn llvm() -> Result<()> {
    let prefix = prefix();
    let own = prefix != Path::new(DEFAULT_PREFIX);
    if own && llvm_version(&prefix).is_some() {
        println!("setup: LLVM {} at {}", llvm_version(&prefix).unwrap_or_default(), prefix.display());
        return Ok(());
    }
    let missing: Vec<&str> = PACKAGES.iter().filter(|p| !(p.marker)(&prefix)).map(|p| p.name).collect();
    if missing.is_empty() {
        println!("setup: LLVM {} at {}", llvm_version(&prefix).unwrap_or_default(), prefix.display());
        return Ok(());
    }
    let mend = format!(
        "install LLVM 22.1 with its headers and set LLVM_SYS_221_PREFIX to its folder, or run: \
         apt-get update && apt-get install {}",
        missing.join(" ")
    );
    if own {
        bail!("LLVM_SYS_221_PREFIX names {}, where there is no LLVM 22.1; unset it, or {mend}", prefix.display());
    }
    println!("setup: missing {}; installing", missing.join(", "));
    apt_get(&missing).with_context(|| mend.clone())?;
    match PACKAGES.iter().find(|p| !(p.marker)(&prefix)) {
        Some(p) => bail!("{} is still missing after it was installed; {mend}", p.name),
        None => Ok(()),
    }
}

/// Makes NVIDIA's assembler available to checks, and returns its path.
pub(crate) fn ptxas(root: &Path) -> Result<PathBuf> {
    if let Some(path) = ptxas::find(root)? {
        println!("setup: ptxas {} at {}", Tool::PTXAS.version, path.display());
        return Ok(path);
    }
    fetch(root, &Tool::PTXAS)
        .with_context(|| format!("no ptxas {}: kernels cannot be checked; put it at ATLAS_PTXAS", Tool::PTXAS.version))
}

const DEFAULT_PREFIX: &str = "/usr/lib/llvm-22";

fn prefix() -> PathBuf {
    std::env::var_os("LLVM_SYS_221_PREFIX").map_or_else(|| DEFAULT_PREFIX.into(), PathBuf::from)
}

/// The version that the LLVM at `prefix` reports, if it is 22.1.
fn llvm_version(prefix: &Path) -> Option<String> {
    let text = command::output(Command::new(prefix.join("bin/llvm-config")).arg("--version")).ok()?;
    Some(text.trim().to_owned()).filter(|v| v.starts_with("22.1"))
}

fn has_libstdcxx() -> bool {
    // The compiler prints a bare file name for a library that it does not find.
    command::output(Command::new("cc").arg("-print-file-name=libstdc++.so")).is_ok_and(|p| p.contains('/'))
}

fn apt_get(packages: &[&str]) -> Result<()> {
    if !command::works("apt-get", &["--version"]) {
        bail!("there is no apt-get here");
    }
    let root = command::output(Command::new("id").arg("-u")).is_ok_and(|id| id.trim() == "0");
    if !root && !command::works("sudo", &["--version"]) {
        bail!("installing packages needs root, and there is no sudo");
    }
    let apt = |args: &[&str]| {
        let mut command = if root { Command::new("env") } else { Command::new("sudo") };
        command.args(["DEBIAN_FRONTEND=noninteractive", "apt-get", "-q"]).args(args);
        command::run(&mut command)
    };
    // Another program may hold apt's lock briefly.
    let wait = "DPkg::Lock::Timeout=300";
    apt(&["-o", wait, "update"])?;
    let mut install = vec!["-o", wait, "install", "-y", "--no-install-recommends"];
    install.extend(packages);
    apt(&install)
}

/// Downloads a wheel from the Python package index and unpacks it under `.tools`.
pub(crate) fn fetch(root: &Path, tool: &Tool) -> Result<PathBuf> {
    if let Some(path) = tool.find(root) {
        return Ok(path);
    }
    pip()?;
    let wheels = root.join(".tools/wheels");
    std::fs::create_dir_all(&wheels).with_context(|| format!("cannot make {}", wheels.display()))?;
    let pinned = format!("{}=={}", tool.package, tool.version);
    let mut download = Command::new("python3");
    download.args(["-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]);
    if command::in_ci() {
        download.args(["--progress-bar", "off"]);
    }
    command::run(download.arg("--dest").arg(&wheels).arg(&pinned))?;
    let wheel = newest_wheel(&wheels).with_context(|| format!("pip left no wheel of {pinned}"))?;
    let path = tool.unpack(root, &wheel)?;
    std::fs::remove_dir_all(&wheels).with_context(|| format!("cannot remove {}", wheels.display()))?;
    println!("setup: {} {} at {}", tool.program, tool.version, path.display());
    Ok(path)
}

fn pip() -> Result<()> {
    if command::works("python3", &["-m", "pip", "--version"]) {
        return Ok(());
    }
    println!("setup: missing python3-pip; installing");
    apt_get(&["python3-pip"]).context("Python 3 with pip is needed to fetch ptxas")
}

fn newest_wheel(dir: &Path) -> Option<PathBuf> {
    let entries = std::fs::read_dir(dir).ok()?.flatten().map(|e| e.path());
    entries.filter(|p| p.extension().is_some_and(|e| e == "whl")).max()
}
