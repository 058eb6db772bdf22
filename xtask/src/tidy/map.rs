//! Compares the documents with the tree: paths, folders, examples, the changelog.

use super::Finding;
use super::tree::Tree;
use std::collections::BTreeSet;

const MAP: &str = "ARCHITECTURE.md";

/// Documents whose paths are checked.
const DOCUMENTS: [&str; 3] = [MAP, "README.md", "CONTRIBUTING.md"];

/// Files that a reader expects in the root folder.
const EXPECTED: [&str; 8] =
    [MAP, "README.md", "CONTRIBUTING.md", "CHANGELOG.md", "LICENSE-MIT", "LICENSE-APACHE", ".ci/run", "clippy.toml"];

/// The endings by which a bare name counts as a file name.
const ENDINGS: [&str; 6] = [".rs", ".md", ".toml", ".py", ".txt", ".tile"];

/// Every path that a document names exists.
pub(crate) fn paths(tree: &Tree) -> Vec<Finding> {
    let mut out = Vec::new();
    for document in DOCUMENTS {
        for (line, span) in code_spans(tree.get(document).unwrap_or("")) {
            if is_path(span) && !exists(tree, span) {
                out.push(Finding::new(document, line, format!("names `{span}`, which does not exist")));
            }
        }
    }
    out
}

/// The `code spans` of a document, outside fenced blocks, with their lines.
pub(crate) fn code_spans(text: &str) -> Vec<(usize, &str)> {
    let mut fenced = false;
    let mut out = Vec::new();
    for (n, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        } else if !fenced {
            out.extend(line.split('`').skip(1).step_by(2).map(|span| (n + 1, span)));
        }
    }
    out
}

fn is_path(span: &str) -> bool {
    let plain = span.chars().all(|c| c.is_ascii_alphanumeric() || "_./*-".contains(c));
    let local = !span.starts_with(['/', '-', '*']) && !span.starts_with("target/") && !span.starts_with(".tools");
    plain && local && (span.contains('/') || ENDINGS.iter().any(|e| span.len() > e.len() && span.ends_with(e)))
}

fn exists(tree: &Tree, span: &str) -> bool {
    // `passes/*.rs` stands for the folder.
    let fixed = span.split('*').next().unwrap_or(span);
    let fixed = if fixed.len() < span.len() { fixed.rsplit_once('/').map_or("", |(folder, _)| folder) } else { fixed };
    let bare = !fixed.contains('/') && tree.all().any(|(path, _)| path.rsplit('/').next() == Some(fixed));
    bare || tree.has(fixed)
}

/// Every top-level folder is in the map.
pub(crate) fn folders(tree: &Tree) -> Vec<Finding> {
    let map = tree.get(MAP).unwrap_or("");
    let all: BTreeSet<&str> =
        tree.all().filter_map(|(path, _)| path.split_once('/')).map(|(folder, _)| folder).collect();
    let missing = all.into_iter().filter(|folder| !map.contains(&format!("`{folder}/")));
    missing.map(|folder| Finding::new(MAP, 0, format!("does not name the folder `{folder}/`"))).collect()
}

/// The expected files exist, and the README names the two commands.
pub(crate) fn root_files(tree: &Tree) -> Vec<Finding> {
    let missing = EXPECTED.iter().filter(|path| tree.get(path).is_none_or(|text| text.trim().is_empty()));
    let mut out: Vec<Finding> = missing.map(|path| Finding::new(path, 0, "is missing or empty")).collect();
    if let Some(readme) = tree.get("README.md") {
        let commands = ["cargo xtask demo", "cargo xtask test"];
        let unnamed = commands.iter().filter(|c| !readme.contains(*c));
        out.extend(unnamed.map(|c| Finding::new("README.md", 0, format!("does not name `{c}`"))));
    }
    out
}

/// The changelog has an entry under Unreleased or a version.
pub(crate) fn changelog(tree: &Tree) -> Vec<Finding> {
    let Some(text) = tree.get("CHANGELOG.md") else { return Vec::new() };
    let mut under = text.lines().skip_while(|l| !l.starts_with("## "));
    let entry = under.any(|l| l.starts_with("- ") && l.len() > 10);
    if entry { Vec::new() } else { vec![Finding::new("CHANGELOG.md", 0, "has no entry")] }
}

/// Every example is in the README.
pub(crate) fn examples(tree: &Tree) -> Vec<Finding> {
    let readme = tree.get("README.md").unwrap_or("");
    let all = tree
        .all()
        .filter_map(|(path, _)| path.strip_prefix("examples/")?.strip_suffix(".rs").filter(|n| !n.contains('/')));
    let missing = all.filter(|name| !readme.contains(*name));
    missing.map(|name| Finding::new("README.md", 0, format!("does not name `examples/{name}.rs`"))).collect()
}

#[cfg(test)]
mod tests {
    use super::super::plant::{check, fails, passes as holds};
    use super::{changelog, examples, folders, paths, root_files};

    #[test]
    fn paths_in_documents_exist() {
        let with = |text: &'static str| [("ARCHITECTURE.md", text), ("dsl/src/op.rs", "")];
        for good in [
            "`dsl/src/op.rs`, `op.rs`, `dsl/`, `dsl/src/*.rs`, `sm_90a`, `a -> b`, `target/debug/atlas`, `x / y`",
            "```\n`no/such/path`\n```",
        ] {
            holds(paths, &with(good));
        }
        fails(paths, &with("\nsee `dsl/src/gone.rs`"), "ARCHITECTURE.md", "dsl/src/gone.rs");
        fails(paths, &with("see `gone.rs`"), "ARCHITECTURE.md", "gone.rs");
        fails(paths, &with("see `dsl/tests/`"), "ARCHITECTURE.md", "dsl/tests/");
        fails(paths, &with("see `dsl/passes/*.rs`"), "ARCHITECTURE.md", "dsl/passes");
    }

    #[test]
    fn every_folder_is_in_the_map() {
        holds(folders, &[("ARCHITECTURE.md", "`dsl/` and `ops/src`"), ("dsl/a", "x"), ("ops/src/b", "x")]);
        fails(folders, &[("ARCHITECTURE.md", "`dsl/`"), ("dsl/a", "x"), ("ops/b", "x")], "ARCHITECTURE.md", "`ops/`");
    }

    #[test]
    fn root_files_are_expected() {
        assert_eq!(check(root_files, &[("x", "y")]).len(), 8);
        let found = check(root_files, &[("README.md", "run `cargo xtask demo`")]);
        assert!(found.iter().any(|f| f.message.contains("cargo xtask test")), "{found:?}");
    }

    #[test]
    fn the_changelog_has_an_entry() {
        holds(changelog, &[("CHANGELOG.md", "# Changelog\n\n## Unreleased\n\n### Added\n- A compiler.\n")]);
        fails(
            changelog,
            &[("CHANGELOG.md", "# Changelog\n- not an entry\n\n## Unreleased\n")],
            "CHANGELOG.md",
            "no entry",
        );
    }

    #[test]
    fn examples_are_in_the_readme() {
        holds(examples, &[("README.md", "`examples/01_saxpy.rs`"), ("examples/01_saxpy.rs", "")]);
        fails(examples, &[("README.md", ""), ("examples/01_saxpy.rs", "")], "README.md", "01_saxpy");
    }
}
