//! Compiles kernels into a bundle while a crate is built, from its build script.
//!
//! ```no_run
//! // build.rs; the kernels' crate and `atlas-gpu-build` with the feature `jit` are among its [build-dependencies].
//! // use my_kernels as _;
//! atlas_build::bundle().arch("sm_80").arch("sm_90a:NVIDIA H200").sizes("sizes.toml").records("records").write();
//! ```
//!
//! The program embeds the bundle by `atlas::bundle!();`, and needs no LLVM. `examples/shipping` shows all of it.
#![warn(clippy::too_many_lines)]
#![forbid(unsafe_code)]

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

/// The name of the file, in cargo's `OUT_DIR`.
const FILE: &str = "kernels.atlas";

/// A bundle to build. Paths are relative to the folder of the crate's `Cargo.toml`, where build scripts run.
#[derive(Clone, Debug, Default)]
#[must_use = "nothing is made before `write`"]
pub struct Bundle {
    kernels: Vec<String>,
    archs: Vec<String>,
    sizes: Vec<PathBuf>,
    records: Vec<PathBuf>,
    options: Vec<String>,
}

/// A bundle of the kernels that are linked into the build script.
pub fn bundle() -> Bundle {
    Bundle::default()
}

impl Bundle {
    /// Adds a kernel by its name. Without any, the kernels of [`Bundle::sizes`] are compiled.
    pub fn kernel(mut self, name: &str) -> Bundle {
        self.kernels.push(name.to_owned());
        self
    }

    /// The sizes to compile for: a TOML file of launches, as a program run with `ATLAS_RECORD_SIZES=FILE` writes it.
    pub fn sizes(mut self, file: impl AsRef<Path>) -> Bundle {
        self.sizes = vec![file.as_ref().to_owned()];
        self
    }

    /// Adds an arch to compile for, such as `sm_90`, or `sm_90:NVIDIA H200` to choose configs by the records of that
    /// GPU. May be called several times. Without it, the bundle is for sm_80, sm_89 and sm_90.
    pub fn arch(mut self, arch: &str) -> Bundle {
        self.archs.push(arch.to_owned());
        self
    }

    /// The folder of tuning records.
    pub fn records(mut self, folder: impl AsRef<Path>) -> Bundle {
        self.records = vec![folder.as_ref().to_owned()];
        self
    }

    /// Adds any other option of `atlas bundle`, such as `--no-evidence` or `--variants=4`.
    pub fn option(mut self, option: &str) -> Bundle {
        self.options.push(option.to_owned());
        self
    }

    /// The arguments of `atlas bundle`.
    fn arguments(&self, out: &Path) -> Vec<OsString> {
        // A path need not be UTF-8.
        let path = |option: &str, path: &Path| {
            let mut arg = OsString::from(option);
            arg.push(path);
            arg
        };
        let mut args = vec!["atlas".into(), "bundle".into()];
        args.extend(self.kernels.iter().map(OsString::from));
        args.extend(self.sizes.iter().map(|p| path("--sizes=", p)));
        args.extend(self.archs.iter().map(|a| format!("--arch={a}").into()));
        args.extend(self.records.iter().map(|p| path("--records=", p)));
        args.push(path("--out=", out));
        args.extend(self.options.iter().map(OsString::from));
        args
    }

    /// The lines that tell cargo what to watch, including the folders of records that `ATLAS_RECORDS` names, and the
    /// assembler, whose report decides which spilling kernels are left out.
    fn watched(&self, records: Option<&OsStr>, assembler: Option<PathBuf>) -> Vec<String> {
        let more = records.into_iter().flat_map(std::env::split_paths).filter(|p| !p.as_os_str().is_empty());
        let files = self.sizes.iter().chain(&self.records).cloned().chain(more).chain(assembler);
        let mut lines: Vec<String> = files.map(|p| format!("cargo::rerun-if-changed={}", p.display())).collect();
        let mut variables = vec!["ATLAS_RECORDS", "ATLAS_PTXAS"];
        // Without an assembler, a later build may find one on another PATH. That matters if machine code was requested.
        if self.options.iter().any(|option| option == "--cubin") {
            variables.push("PATH");
        }
        lines.extend(variables.into_iter().map(|name| format!("cargo::rerun-if-env-changed={name}")));
        lines
    }

    /// Builds the bundle for `atlas::bundle!();` to find. If that fails, the build fails with the reason. The bundle is
    /// built again when one of its input files or the build script changes.
    pub fn write(&self) {
        let records = std::env::var_os("ATLAS_RECORDS");
        let watched = self.watched(records.as_deref(), atlas_cli::ptxas::find());
        watched.iter().for_each(|line| println!("{line}"));
        let made = match std::env::var_os("OUT_DIR") {
            Some(folder) => atlas_cli::run_with(self.arguments(&Path::new(&folder).join(FILE)), warn),
            None => Err("there is no OUT_DIR: `atlas_build::bundle()` is for build scripts".to_owned()),
        };
        let failed = match made {
            Ok(true) => return,
            Ok(false) => "the bundle could not be made".to_owned(),
            Err(why) => why,
        };
        // Cargo fails the build for each of these lines.
        for line in failed.lines().filter(|line| !line.is_empty()) {
            println!("cargo::error={line}");
        }
    }
}

fn warn(what: &str) {
    println!("{}", warning(what));
}

/// A warning for each line of a text. Cargo shows no other output of a build script that succeeds.
fn warning(what: &str) -> String {
    let lines = what.lines().filter(|line| !line.is_empty());
    lines.map(|line| format!("cargo::warning={line}")).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cargo_is_told_what_to_look_at_and_what_to_show() {
        let watched = bundle().sizes("s.toml").records("r").watched(None, None);
        let files = ["cargo::rerun-if-changed=s.toml", "cargo::rerun-if-changed=r"];
        let variables = ["cargo::rerun-if-env-changed=ATLAS_RECORDS", "cargo::rerun-if-env-changed=ATLAS_PTXAS"];
        assert_eq!(watched, [&files[..], &variables].concat());
        let named = std::env::join_paths(["one", "", "two"]).unwrap();
        let watched = bundle().option("--cubin").watched(Some(&named), Some("/bin/ptxas".into()));
        let files = ["one", "two", "/bin/ptxas"].map(|file| format!("cargo::rerun-if-changed={file}"));
        assert_eq!(watched[..3], files);
        assert_eq!(watched[3..], [&variables[..], &["cargo::rerun-if-env-changed=PATH"]].concat());
        assert_eq!(warning("one\n\ntwo"), "cargo::warning=one\ncargo::warning=two");
    }

    #[test]
    fn what_is_asked_for_is_what_the_command_line_gets() {
        let b = bundle().kernel("a").sizes("s.toml").arch("sm_80").arch("sm_90:NVIDIA H200").option("--cubin");
        let want = "atlas bundle a --sizes=s.toml --arch=sm_80 --arch=sm_90:NVIDIA H200 --out=o/kernels.atlas --cubin";
        let given = b.arguments(Path::new("o/kernels.atlas"));
        assert_eq!(given.join(OsStr::new(" ")), *want);
    }

    /// The path of a user's folder need not be UTF-8.
    #[test]
    #[cfg(unix)]
    fn paths_are_given_as_they_are() {
        use std::os::unix::ffi::{OsStrExt, OsStringExt};
        let path = |name: &[u8]| PathBuf::from(OsString::from_vec(name.to_vec()));
        let given = bundle().sizes(path(b"s\xff.toml")).records(path(b"r\xfe")).arguments(&path(b"o\xfd"));
        let given: Vec<&[u8]> = given[2..].iter().map(|arg| arg.as_bytes()).collect();
        assert_eq!(given, [&b"--sizes=s\xff.toml"[..], b"--records=r\xfe", b"--out=o\xfd"]);
    }
}
