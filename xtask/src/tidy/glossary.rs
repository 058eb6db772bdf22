//! Checks that names which the glossary of CONTRIBUTING.md has replaced do not come back.

use super::Finding;
use super::tree::Tree;

/// The document, and the heading of its table, whose rows have old names in backticks and then the new one.
const DOCUMENT: &str = "CONTRIBUTING.md";
const HEADING: &str = "## Names given up";

/// Whether old names may occur in a file: the table, the history, and generated files.
fn may_name(path: &str) -> bool {
    path == DOCUMENT
        || path == "CHANGELOG.md"
        || path.ends_with(".lock")
        || ["benches/results/", "ops/records/", "xtask/src/tidy/glossary.rs"].iter().any(|p| path.starts_with(p))
}

/// Old names in the order of the table, each with its replacement.
fn given_up(document: &str) -> Vec<(&str, &str)> {
    let table = document.split_once(HEADING).map_or("", |(_, rest)| rest);
    let table = table.split("\n## ").next().unwrap_or_default();
    let rows = table.lines().filter_map(|line| line.strip_prefix("| ")?.strip_suffix(" |")?.split_once(" | "));
    // The names are between backticks, so every second piece is one.
    rows.flat_map(|(old, new)| old.split('`').skip(1).step_by(2).map(move |name| (name, new))).collect()
}

/// Uses of a replaced name.
pub(crate) fn given_up_names(tree: &Tree) -> Vec<Finding> {
    let Some(document) = tree.get(DOCUMENT) else { return Vec::new() };
    let names = given_up(document);
    let mut out = Vec::new();
    for (path, text) in tree.all().filter(|(path, _)| !may_name(path)) {
        // Few files have any of them.
        let names: Vec<_> = names.iter().filter(|(old, _)| text.contains(old)).collect();
        if names.is_empty() {
            continue;
        }
        for (n, line) in text.lines().enumerate() {
            let found = names.iter().filter(|(old, _)| has_name(line, old));
            out.extend(found.map(|(old, new)| Finding::new(path, n + 1, format!("`{old}` was given up for {new}"))));
        }
    }
    out
}

/// True if a line contains these words, not as part of longer words.
fn has_name(line: &str, name: &str) -> bool {
    let inner = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(name).any(|(at, _)| !line[..at].ends_with(inner) && !line[at + name.len()..].starts_with(inner))
}

#[cfg(test)]
mod tests {
    use super::super::plant::{fails, passes};
    use super::given_up_names;

    const TABLE: &str =
        "## Names given up\n\n| old | new |\n|---|---|\n| `Op::Again`, `an iterate` | a better name |\n";

    #[test]
    fn names_given_up_are_found() {
        let table = ("CONTRIBUTING.md", TABLE);
        passes(given_up_names, &[table, ("a.rs", "Op::Against, an iterated map"), ("CHANGELOG.md", "Op::Again")]);
        fails(given_up_names, &[table, ("a.rs", "match op { Op::Again(x) => x }")], "a.rs", "a better name");
        fails(given_up_names, &[table, ("a.md", "once in an iterate.")], "a.md", "an iterate");
        // The table ends where the next heading begins.
        let ended = format!("{TABLE}\n## Terms\n| `Op::Fine` | it stays |\n");
        passes(given_up_names, &[("CONTRIBUTING.md", &ended), ("a.rs", "Op::Fine")]);
    }
}
