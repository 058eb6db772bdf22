//! Words about how a text came to be, and paths of one person's machine: neither means anything to a reader.

use super::Finding;
use super::tree::Tree;

/// This file must spell what it forbids.
const SELF: &str = "xtask/src/tidy/prose.rs";

/// Words of process, in lower case. A change belongs in CHANGELOG.md, a plan in an issue.
const WORDS: [&str; 9] = [
    "session",
    "sessions",
    "subagent",
    "as requested",
    "as instructed",
    "per the brief",
    "as per the issue",
    "will be implemented later",
    "not yet implemented",
];

/// Marks of unfinished work, spelled just so.
const MARKS: [&str; 4] = ["TODO", "FIXME", "XXX", "HACK"];

/// Documents that readers of this repository do not have.
const ABSENT: [&str; 6] = ["ops-spec", "style-study", "ir-sketches", "lowering.md", "design.md", "design §"];

/// Folders of one machine.
const MACHINE: [&str; 5] = ["/work/", "/tmp/t-", "/tmp/setup", "/root/", "/home/"];

fn read_by_people(path: &str) -> bool {
    path != SELF && path != "Cargo.lock" && !path.starts_with("LICENSE-")
}

/// Words of process, unfinished work, and documents that are not here.
pub(crate) fn words(tree: &Tree) -> Vec<Finding> {
    let mut out = Vec::new();
    for (path, text) in tree.all().filter(|(path, _)| read_by_people(path)) {
        for (n, line) in text.lines().enumerate() {
            let lower = line.to_lowercase();
            let found = WORDS.iter().filter(|w| has_word(&lower, w)).chain(MARKS.iter().filter(|w| has_word(line, w)));
            out.extend(
                found.map(|w| Finding::new(path, n + 1, format!("`{w}` means nothing to a reader of this text"))),
            );
            let absent = ABSENT.iter().filter(|w| lower.contains(*w));
            out.extend(
                absent.map(|w| Finding::new(path, n + 1, format!("refers to `{w}`, which is not in this repository"))),
            );
        }
    }
    out
}

/// Absolute paths of a machine.
pub(crate) fn machine_paths(tree: &Tree) -> Vec<Finding> {
    let mut out = Vec::new();
    for (path, text) in tree.all().filter(|(path, _)| read_by_people(path)) {
        for (n, line) in text.lines().enumerate() {
            let starts = |at: usize| !line[..at].ends_with(|c: char| c.is_alphanumeric() || ".-_~/}".contains(c));
            let found = MACHINE.iter().filter(|p| line.match_indices(*p).any(|(at, _)| starts(at)));
            out.extend(found.map(|p| Finding::new(path, n + 1, format!("`{p}` is a path of one machine"))));
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
    use super::{machine_paths, words};

    #[test]
    fn words_of_process_are_found() {
        passes(words, &[("a.md", "an obsession with todo lists"), ("Cargo.lock", "session"), ("b.rs", "fn hack() {}")]);
        fails(words, &[("a.md", "\nfrom this Session")], "a.md", "session");
        fails(words, &[("a.rs", "// TODO(me): more")], "a.rs", "TODO");
        fails(words, &[("a.rs", "// see ops-spec 4.1")], "a.rs", "ops-spec");
    }

    #[test]
    fn machine_paths_are_found() {
        passes(machine_paths, &[("a.md", "see src/work/x, https://host/home/y and $HOME/root/z, /usr/lib/llvm-22")]);
        fails(machine_paths, &[("a.md", "in /work/main")], "a.md", "/work/");
        fails(machine_paths, &[("a.rs", "\"/home/me\"")], "a.rs", "/home/");
    }
}
