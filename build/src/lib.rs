//! Makes a bundle of compiled kernels as a crate is built: for its build script.
//!
//! ```no_run
//! // build.rs; the kernels' crate and `atlas-build` with the feature `jit` are among its [build-dependencies].
//! // use my_kernels as _;
//! atlas_build::bundle().arch("sm_80").arch("sm_90:NVIDIA H200").sizes("sizes.toml").records("records").write();
//! ```
//!
//! The program has the bundle by `atlas::bundle!();`, and needs no LLVM. `examples/shipping` does all of it.
#![warn(clippy::too_many_lines)]
#![forbid(unsafe_code)]

use std::path::{Path, PathBuf};

/// The file's name, in the folder that cargo gives the build script.
const FILE: &str = "kernels.atlas";

/// A bundle that is to be made. Paths are as the build script sees them: from the folder of its `Cargo.toml`.
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
    /// One kernel by its name; those of [`Bundle::sizes`] unless any is named.
    pub fn kernel(mut self, name: &str) -> Bundle {
        self.kernels.push(name.to_owned());
        self
    }

    /// The sizes to compile for: a TOML file of launches, as a program writes it that runs with `ATLAS_RECORD_SIZES=FILE`.
    pub fn sizes(mut self, file: impl AsRef<Path>) -> Bundle {
        self.sizes = vec![file.as_ref().to_owned()];
        self
    }

    /// What to compile for, such as `sm_90`, or `sm_90:NVIDIA H200` to choose by the records of that GPU. May be called several
    /// times; sm_80, sm_89 and sm_90 unless it is.
    pub fn arch(mut self, arch: &str) -> Bundle {
        self.archs.push(arch.to_owned());
        self
    }

    /// The folder of tuning records.
    pub fn records(mut self, folder: impl AsRef<Path>) -> Bundle {
        self.records = vec![folder.as_ref().to_owned()];
        self
    }

    /// Any other option of `atlas bundle`, such as `--no-evidence` or `--variants=4`.
    pub fn option(mut self, option: &str) -> Bundle {
        self.options.push(option.to_owned());
        self
    }

    /// What `atlas bundle` would be given.
    fn arguments(&self, out: &Path) -> Vec<String> {
        let path = |p: &PathBuf| p.display().to_string();
        let mut args = vec!["atlas".to_owned(), "bundle".to_owned()];
        args.extend(self.kernels.iter().cloned());
        args.extend(self.sizes.iter().map(|p| format!("--sizes={}", path(p))));
        args.extend(self.archs.iter().map(|a| format!("--arch={a}")));
        args.extend(self.records.iter().map(|p| format!("--records={}", path(p))));
        args.push(format!("--out={}", out.display()));
        args.extend(self.options.iter().cloned());
        args
    }

    /// What cargo is told to look at.
    fn watched(&self) -> Vec<String> {
        let files = self.sizes.iter().chain(&self.records);
        let mut lines: Vec<String> = files.map(|p| format!("cargo::rerun-if-changed={}", p.display())).collect();
        // Folders with more records.
        lines.push("cargo::rerun-if-env-changed=ATLAS_RECORDS".to_owned());
        lines
    }

    /// Makes it, for `atlas::bundle!();` to find; where it cannot be made the build fails with the reason. It is made again
    /// when a file that it is made from changes, or the build script itself.
    pub fn write(&self) {
        self.watched().iter().for_each(|line| println!("{line}"));
        let made = match std::env::var_os("OUT_DIR") {
            Some(folder) => atlas::cli::run_with(self.arguments(&Path::new(&folder).join(FILE)), warn),
            None => Err("there is no OUT_DIR: `atlas_build::bundle()` is for build scripts".to_owned()),
        };
        let failed = match made {
            Ok(true) => return,
            Ok(false) => "the bundle could not be made".to_owned(),
            Err(why) => why,
        };
        // Cargo fails the build for each.
        for line in failed.lines().filter(|line| !line.is_empty()) {
            println!("cargo::error={line}");
        }
    }
}

fn warn(what: &str) {
    println!("{}", warning(what));
}

/// A line for each of a text's. Cargo shows nothing else of a build script that succeeds.
fn warning(what: &str) -> String {
    let lines = what.lines().filter(|line| !line.is_empty());
    lines.map(|line| format!("cargo::warning={line}")).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cargo_is_told_what_to_look_at_and_what_to_show() {
        let watched = bundle().sizes("s.toml").records("r").watched();
        let files = ["cargo::rerun-if-changed=s.toml", "cargo::rerun-if-changed=r"];
        assert_eq!(watched, [&files[..], &["cargo::rerun-if-env-changed=ATLAS_RECORDS"]].concat());
        assert_eq!(warning("one\n\ntwo"), "cargo::warning=one\ncargo::warning=two");
    }

    #[test]
    fn what_is_asked_for_is_what_the_command_line_gets() {
        let b = bundle().kernel("a").sizes("s.toml").arch("sm_80").arch("sm_90:NVIDIA H200").option("--cubin");
        let want = "atlas bundle a --sizes=s.toml --arch=sm_80 --arch=sm_90:NVIDIA H200 --out=o/kernels.atlas --cubin";
        assert_eq!(b.arguments(Path::new("o/kernels.atlas")).join(" "), want);
    }
}
