//! The files of a Python package: the library, what calls it, and stubs for editors and type checkers.

use super::library::Library;
use super::python_names::{STANDARD, is_keyword};
use super::signature;
use anyhow::{Result, bail};
use atlas_dsl::registry;
use std::borrow::Cow;
use std::fmt::Write;
use std::path::Path;

/// What calls the library. These files are the same in each package.
const SOURCES: [(&str, &str); 3] = [
    ("library.py", include_str!("python/library.py")),
    ("functions.py", include_str!("python/functions.py")),
    ("torch_ops.py", include_str!("python/torch_ops.py")),
];

/// The library in the package.
const LIBRARY: &str = "libkernels.so";

/// A package.
#[derive(Debug)]
pub(super) struct Package<'p> {
    /// The name that programs import.
    pub(super) name: &'p str,
    pub(super) version: &'p str,
    /// What it is, in one line.
    pub(super) summary: &'p str,
    pub(super) library: &'p Library,
    /// The library's file.
    pub(super) bytes: &'p [u8],
    /// The file of a bundle.
    pub(super) bundle: Option<&'p [u8]>,
}

/// The name of a package for a library `lib{NAME}.so`.
pub(super) fn name_of(library: &Path) -> Option<String> {
    let stem = library.file_stem()?.to_str()?;
    let name = stem.strip_prefix("lib").unwrap_or(stem).to_lowercase();
    is_name(&name).then_some(name)
}

/// Small letters and digits, and single underscores between them: other names are refused by Python or by pip.
fn is_name(name: &str) -> bool {
    let is_part = |part: &str| !part.is_empty() && part.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
    name.starts_with(|c: char| c.is_ascii_lowercase()) && name.split('_').all(is_part) && !is_keyword(name)
}

/// Whether pip takes a version such as `1.2.0` or `0.1.0rc1`, which is a part of what its specification allows.
fn is_version(version: &str) -> bool {
    // A local version, such as `+cu12`.
    let (version, local) = version.split_once('+').unwrap_or((version, "local"));
    let is_local = local
        .split('.')
        .all(|part| !part.is_empty() && part.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit()));
    let end = version.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(version.len());
    let (numbers, pre) = version.split_at(end);
    let is_number = |text: &str| !text.is_empty() && text.chars().all(|c| c.is_ascii_digit());
    let stage = ["a", "b", "rc", ".dev", ".post"].iter().find_map(|s| pre.strip_prefix(s));
    // `1.0.dev1` is split behind its last point.
    let (numbers, pre_is_one) = match numbers.strip_suffix('.') {
        Some(rest) if !pre.is_empty() => {
            (rest, ["dev", "post"].iter().any(|s| pre.strip_prefix(s).is_some_and(is_number)))
        }
        _ => (numbers, pre.is_empty() || stage.is_some_and(is_number)),
    };
    numbers.split('.').all(is_number) && pre_is_one && is_local
}

impl Package<'_> {
    /// Refuses what Python or pip would not take.
    pub(super) fn check(&self) -> Result<()> {
        if !is_name(self.name) {
            bail!(
                "--name {}: a package is named by small letters, digits and single underscores between them, begins with a letter, and is no word of Python",
                self.name
            );
        }
        let others = ["atlas_gpu", "torch", "numpy", "tvm_ffi"];
        if others.contains(&self.name) || STANDARD.contains(&self.name) {
            bail!("--name {}: this is the name of another package, and one would hide the other", self.name);
        }
        if !is_version(self.version) {
            bail!("--version {}: a version is numbers with points between them, such as 0.1.0 or 1.0rc1", self.version);
        }
        if self.summary.contains(['\n', '\r']) || self.summary.trim().is_empty() {
            bail!("--summary is one line");
        }
        let modules = SOURCES.map(|(file, _)| file.trim_end_matches(".py"));
        if let Some(taken) = self.library.functions.iter().find(|f| modules.contains(&f.as_str())) {
            bail!("the package has a module `{taken}` for its own use, so a kernel cannot have this name");
        }
        Ok(())
    }

    /// Its files with their paths, without those that say what the wheel is.
    pub(super) fn files(&self) -> Vec<(String, Cow<'_, [u8]>)> {
        let path = |file: &str| format!("{}/{file}", self.name);
        let mut files = vec![
            (path("__init__.py"), Cow::from(self.init().into_bytes())),
            (path("__init__.pyi"), Cow::from(self.stubs().into_bytes())),
            (path("py.typed"), Cow::from(&[][..])),
            (path(LIBRARY), Cow::from(self.bytes)),
        ];
        files.extend(SOURCES.map(|(file, text)| (path(file), Cow::from(text.as_bytes()))));
        files.extend(self.bundle.map(|bundle| (path("kernels.atlas"), Cow::from(bundle))));
        files
    }

    fn init(&self) -> String {
        let mut text = format!("\"\"\"{}\"\"\"\n\n", self.summary.replace('\\', "\\\\").replace('"', "\\\""));
        text += "from .functions import function as _function\n\n";
        for name in &self.library.functions {
            if is_keyword(name) {
                // Python reaches it by `getattr`.
                _ = writeln!(text, "globals()[\"{name}\"] = _function(\"{name}\")");
            } else {
                _ = writeln!(text, "{name} = _function(\"{name}\")");
            }
        }
        _ = writeln!(text, "\n__all__ = {:?}", self.library.functions);
        text
    }

    /// What editors show. Of kernels that are part of this program, parameters are known.
    fn stubs(&self) -> String {
        let (mut text, known) = ("from typing import Any\n".to_owned(), registry());
        for name in self.library.functions.iter().filter(|n| !is_keyword(n)) {
            // A parameter that is a keyword is given by place.
            let kernel = known.iter().find(|k| k.name == *name && !k.params.iter().any(|p| is_keyword(p.name())));
            match kernel {
                Some(kernel) => {
                    let params = signature::params(kernel);
                    _ = write!(text, "\ndef {name}({params}) -> None:\n    \"\"\"`{}`\"\"\"\n", kernel.signature());
                }
                None => _ = write!(text, "\ndef {name}(*args: Any, **named: Any) -> Any: ...\n"),
            }
        }
        text
    }

    /// The file `METADATA` of the wheel.
    pub(super) fn metadata(&self) -> String {
        format!(
            "Metadata-Version: 2.1\nName: {}\nVersion: {}\nSummary: {}\nRequires-Python: >=3.10\n\
             Requires-Dist: apache-tvm-ffi>=0.1.15,<0.2\n",
            self.name.replace('_', "-"),
            self.version,
            self.summary
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_that_python_imports() {
        assert_eq!(name_of(Path::new("target/release/libmine.so")).as_deref(), Some("mine"));
        assert_eq!(name_of(Path::new("libMy_Kernels.so")).as_deref(), Some("my_kernels"));
        for wrong in ["lib3d.so", "libmy-kernels.so", "lib.so", "libclass.so", "liba__b.so", "liba_.so"] {
            assert_eq!(name_of(Path::new(wrong)), None, "{wrong}");
        }
    }

    #[test]
    fn versions_are_those_that_pip_takes() {
        for version in ["1", "0.1.0", "1.2rc1", "1.2a3", "1.0.dev1", "1.0.post2", "1.0+cu12"] {
            assert!(is_version(version), "{version}");
        }
        for version in ["", ".", "1.", "v1", "1.0-beta", "1.0rc", "1..2", "1.0 ", "1.0+", "1.0+Cu"] {
            assert!(!is_version(version), "{version}");
        }
    }

    #[test]
    fn packages_that_python_would_not_take_are_refused() {
        let library = |name: &str| Library {
            functions: vec![name.to_owned()],
            tag: "manylinux_2_28_x86_64".to_owned(),
            foreign: vec![],
        };
        let found = |name: &str, version: &str, summary: &str, kernel: &str| {
            let library = library(kernel);
            let package = Package { name, version, summary, library: &library, bytes: &[], bundle: None };
            package.check().map_err(|e| e.to_string())
        };
        assert_eq!(found("mine", "1.0", "Mine.", "scaled"), Ok(()));
        assert!(found("my-kernels", "1.0", "Mine.", "scaled").is_err());
        assert!(found("torch", "1.0", "Mine.", "scaled").unwrap_err().contains("another package"));
        assert!(found("json", "1.0", "Mine.", "scaled").unwrap_err().contains("another package"));
        assert!(found("mine", "one", "Mine.", "scaled").is_err());
        assert!(found("mine", "1.0", "a\nName: b", "scaled").is_err());
        assert!(found("mine", "1.0", "Mine.", "library").unwrap_err().contains("module `library`"));
    }

    #[test]
    fn quotes_in_a_summary_and_words_of_python_do_no_harm() {
        let library =
            Library { functions: vec!["lambda".to_owned(), "scaled".to_owned()], tag: String::new(), foreign: vec![] };
        let package =
            Package { name: "m", version: "1", summary: "a \"\"\" b\\", library: &library, bytes: &[], bundle: None };
        let text = package.init();
        assert!(text.starts_with("\"\"\"a \\\"\\\"\\\" b\\\\\"\"\"\n"), "{text}");
        assert!(text.contains("globals()[\"lambda\"] = _function(\"lambda\")"), "{text}");
        assert!(!package.stubs().contains("def lambda"), "{}", package.stubs());
    }
}
