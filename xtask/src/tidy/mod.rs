//! `cargo xtask tidy`: checks the rules of ARCHITECTURE.md. One file per concern.
//!
//! | file | checks |
//! |---|---|
//! | `files` | headers, sizes, names |
//! | `map` | the documents against the tree |
//! | `facade` | the façade lists its items one by one |
//! | `arrows` | which package may depend on which |
//! | `circles` | import cycles |
//! | `tables` | ops and targets are named wherever a row of them asks for it |
//! | `crates` | entries of a source folder, and names of types |
//! | `links` | links and paths of the documents, and the summary of the book |
//! | `passes` | the list of passes |
//! | `invariants` | unsafe code, I/O, launches, order |
//! | `codes` | every diagnostic code is tested |
//! | `diagnostics` | every diagnostic code is explained |
//! | `glossary` | replaced names |
//! | `matches` | matches over GPU IR operations list all of them |
//! | `prose` | marks of unfinished work, and paths into home folders |

mod arrows;
mod circles;
mod codes;
mod crates;
pub(crate) mod diagnostics;
mod facade;
mod files;
mod glossary;
mod invariants;
mod links;
mod map;
mod matches;
mod passes;
mod prose;
mod shrinking;
mod tables;
mod tokens;
mod tree;

use anyhow::{Result, bail};
use std::fmt;
use std::path::Path;
use tree::Tree;

/// A violation of a rule.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Finding {
    path: String,
    line: usize,
    message: String,
}

impl Finding {
    fn new(path: &str, line: usize, message: impl Into<String>) -> Finding {
        Finding { path: path.to_owned(), line, message: message.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.path, self.message),
            line => write!(f, "{}:{line}: {}", self.path, self.message),
        }
    }
}

type Check = fn(&Tree) -> Vec<Finding>;

/// The checks that only need the files.
const CHECKS: [Check; 32] = [
    files::headers,
    files::sizes,
    files::names,
    map::paths,
    map::folders,
    map::root_files,
    map::changelog,
    map::examples,
    links::targets,
    links::within_book,
    links::spans,
    links::summary,
    passes::listed,
    diagnostics::check,
    facade::items,
    tables::ops,
    tables::targets,
    circles::none,
    crates::entries,
    crates::type_names,
    invariants::placement_of_unsafe,
    invariants::reasons_for_unsafe,
    invariants::purity,
    invariants::launches,
    invariants::machines_in_tile_ir,
    invariants::intrinsics,
    invariants::ordered_output,
    matches::wildcards,
    codes::tested,
    glossary::given_up_names,
    prose::marks,
    prose::homes,
];

/// Runs every check and prints a summary of file sizes.
pub(crate) fn run(root: &Path) -> Result<()> {
    let tree = Tree::read(root)?;
    println!("{}", files::size_summary(&tree));
    let mut findings: Vec<Finding> = CHECKS.iter().flat_map(|check| check(&tree)).collect();
    findings.extend(arrows::run(root, &tree)?);
    findings.sort();
    findings.dedup();
    for finding in &findings {
        eprintln!("{finding}");
    }
    if !findings.is_empty() {
        bail!("tidy: {} findings", findings.len());
    }
    println!("tidy: nothing to mend");
    Ok(())
}

#[cfg(test)]
mod plant {
    //! Writes files to a temporary folder and runs one check over them.

    use super::{Check, Finding, Tree};

    pub(super) fn tree(files: &[(&str, &str)]) -> Tree {
        let dir = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = dir.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        Tree::read(dir.path()).unwrap()
    }

    pub(super) fn check(check: Check, files: &[(&str, &str)]) -> Vec<Finding> {
        check(&tree(files))
    }

    /// Asserts that the check finds exactly one violation, in `path`, with `part` in its message.
    pub(super) fn fails(run: Check, files: &[(&str, &str)], path: &str, part: &str) {
        let found = check(run, files);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].path == path && found[0].message.contains(part), "{found:?}");
    }

    pub(super) fn passes(run: Check, files: &[(&str, &str)]) {
        let found = check(run, files);
        assert!(found.is_empty(), "{found:?}");
    }
}
