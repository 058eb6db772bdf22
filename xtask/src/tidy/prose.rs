//! Marks of unfinished work, and paths into a home folder. Neither is useful to a reader.

use super::Finding;
use super::tree::Tree;

/// This file has to contain what it forbids.
const SELF: &str = "xtask/src/tidy/prose.rs";

/// Marks of unfinished work, case-sensitive.
const MARKS: [&str; 4] = ["TODO", "FIXME", "XXX", "HACK"];

/// The parents of home folders.
const HOMES: [&str; 3] = ["/root/", "/home/", "/Users/"];

fn read_by_people(path: &str) -> bool {
    path != SELF && path != "Cargo.lock" && !path.starts_with("LICENSE-")
}

/// Marks of unfinished work.
pub(crate) fn marks(tree: &Tree) -> Vec<Finding> {
    let mut out = Vec::new();
    for (path, text) in tree.all().filter(|(path, _)| read_by_people(path)) {
        for (n, line) in text.lines().enumerate() {
            let found = MARKS.iter().filter(|w| has_word(line, w));
            out.extend(found.map(|w| Finding::new(path, n + 1, format!("`{w}`: finish it, or open an issue"))));
        }
    }
    out
}

/// Absolute paths into a home folder.
pub(crate) fn homes(tree: &Tree) -> Vec<Finding> {
    let mut out = Vec::new();
    for (path, text) in tree.all().filter(|(path, _)| read_by_people(path)) {
        for (n, line) in text.lines().enumerate() {
            let starts = |at: usize| !line[..at].ends_with(|c: char| c.is_alphanumeric() || ".-_~/}".contains(c));
            let found = HOMES.iter().filter(|p| line.match_indices(*p).any(|(at, _)| starts(at)));
            out.extend(found.map(|p| Finding::new(path, n + 1, format!("`{p}` is a folder of one person"))));
        }
    }
    out
}

fn has_word(line: &str, word: &str) -> bool {
    let inner = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word).any(|(at, _)| !line[..at].ends_with(inner) && !line[at + word.len()..].starts_with(inner))
}

#[cfg(test)]
mod tests {
    use super::super::plant::{fails, passes};
    use super::{homes, marks};

    #[test]
    fn marks_of_unfinished_work_are_found() {
        passes(marks, &[("a.md", "todo lists"), ("Cargo.lock", "TODO"), ("b.rs", "fn hack() {}")]);
        fails(marks, &[("a.rs", "// TODO(me): more")], "a.rs", "TODO");
    }

    #[test]
    fn homes_are_found() {
        passes(homes, &[("a.md", "see src/home/x, https://host/home/y and $HOME/root/z, /usr/lib/llvm-22")]);
        fails(homes, &[("a.md", "in /root/main")], "a.md", "/root/");
        fails(homes, &[("a.rs", "\"/home/me\"")], "a.rs", "/home/");
    }
}
