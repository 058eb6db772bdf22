//! The repository's text files, without those that .gitignore excludes.

use super::tokens::{Token, tokens};
use anyhow::{Context, Result};
use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Text files by their path from the root, with `/` between folders.
pub(crate) struct Tree {
    files: BTreeMap<String, File>,
}

/// A file, and its tokens once a check has asked for them. Most checks do.
struct File {
    text: String,
    tokens: OnceCell<Vec<Token>>,
}

impl Tree {
    /// Reads every text file below `root`.
    pub(crate) fn read(root: &Path) -> Result<Tree> {
        let patterns = std::fs::read_to_string(root.join(".gitignore")).unwrap_or_default();
        let ignored: Vec<&str> =
            patterns.lines().map(str::trim).filter(|l| !l.is_empty() && !l.starts_with('#')).collect();
        let mut files = BTreeMap::new();
        walk(root, "", &ignored, &mut files)?;
        Ok(Tree { files })
    }

    /// Every file.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&str, &str)> {
        self.files.iter().map(|(path, file)| (path.as_str(), file.text.as_str()))
    }

    /// Rust sources, without the invalid ones that test the macro's messages.
    pub(crate) fn rust(&self) -> impl Iterator<Item = (&str, &str)> {
        self.all()
            .filter(|(path, _)| path.ends_with(".rs") && !path.contains("tests/ui/") && !path.contains("tests/expand/"))
    }

    /// The folders with the sources of a crate.
    pub(crate) fn crates(&self) -> BTreeSet<&str> {
        self.crates_and_tests().into_iter().filter(|root| *root == "src" || root.ends_with("/src")).collect()
    }

    /// These, and the folders with the sources of a test of several files.
    pub(crate) fn crates_and_tests(&self) -> BTreeSet<&str> {
        let root = |path: &'_ str| path.strip_suffix("/lib.rs").or(path.strip_suffix("/main.rs")).map(str::len);
        self.rust().filter_map(|(path, _)| Some(&path[..root(path)?])).collect()
    }

    /// One file.
    pub(crate) fn get(&self, path: &str) -> Option<&str> {
        self.files.get(path).map(|file| file.text.as_str())
    }

    /// The tokens of a file; none if it is not there, or not Rust.
    pub(crate) fn tokens(&self, path: &str) -> &[Token] {
        self.files.get(path).map_or(&[], |file| file.tokens.get_or_init(|| tokens(&file.text)))
    }

    /// True if a file or a folder has this path.
    pub(crate) fn has(&self, path: &str) -> bool {
        let path = path.trim_end_matches('/');
        let folder = format!("{path}/");
        self.files.contains_key(path)
            || self.files.range(folder.clone()..).next().is_some_and(|(p, _)| p.starts_with(&folder))
    }
}

fn walk(dir: &Path, prefix: &str, ignored: &[&str], files: &mut BTreeMap<String, File>) -> Result<()> {
    let entries = std::fs::read_dir(dir).with_context(|| format!("cannot read {}", dir.display()))?;
    for entry in entries {
        let entry = entry.with_context(|| format!("cannot read {}", dir.display()))?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = format!("{prefix}{name}");
        let kind = entry.file_type().with_context(|| format!("cannot read {path}"))?;
        if name == ".git" || ignored.iter().any(|pattern| matches(pattern, &path, &name, kind.is_dir())) {
            continue;
        }
        if kind.is_dir() {
            walk(&entry.path(), &format!("{path}/"), ignored, files)?;
        } else if kind.is_file()
            && let Ok(text) = std::fs::read_to_string(entry.path())
        {
            files.insert(path, File { text, tokens: OnceCell::new() });
        }
    }
    Ok(())
}

/// The forms of .gitignore that this repository uses: `/path`, `/path/`, `name/`, `**/name` and `*.ending`.
fn matches(pattern: &str, path: &str, name: &str, is_dir: bool) -> bool {
    let (pattern, wants_dir) = match pattern.strip_suffix('/') {
        Some(p) => (p, true),
        None => (pattern, false),
    };
    if wants_dir && !is_dir {
        return false;
    }
    if let Some(rooted) = pattern.strip_prefix('/') {
        return rooted == path;
    }
    let pattern = pattern.strip_prefix("**/").unwrap_or(pattern);
    match pattern.strip_prefix('*') {
        Some(ending) => name.ends_with(ending),
        None => pattern == name,
    }
}

#[cfg(test)]
mod tests {
    use super::super::plant;

    #[test]
    fn what_git_ignores_is_not_read() {
        let tree = plant::tree(&[
            (".gitignore", "/target/\n*.snap.new\n**/seeds\n"),
            ("target/x.rs", ""),
            ("a/target/y.rs", ""),
            ("a/b.snap.new", ""),
            ("a/seeds/z", ""),
            (".git/config", ""),
        ]);
        let paths: Vec<&str> = tree.all().map(|(path, _)| path).collect();
        assert_eq!(paths, [".gitignore", "a/target/y.rs"]);
        assert!(tree.has("a/target") && tree.has("a/target/") && tree.has("a/target/y.rs"));
        assert!(!tree.has("a/targ") && !tree.has("target"));
    }
}
