//! Checks every source file: its first line, its length, its name.

use super::Finding;
use super::tokens::Kind;
use super::tree::Tree;

/// The most lines of a source file.
const LIMIT: usize = 600;

/// Names that do not describe the content of a module.
const VAGUE: [&str; 8] = ["utils", "util", "common", "base", "helpers", "helper", "misc", "types2"];

/// The first line is `//!` and a sentence that describes the file.
pub(crate) fn headers(tree: &Tree) -> Vec<Finding> {
    let faulty = tree.rust().filter(|(_, text)| {
        let words = text.lines().next().and_then(|l| l.strip_prefix("//! ")).unwrap_or("");
        words.split_whitespace().count() < 3
    });
    faulty.map(|(path, _)| Finding::new(path, 1, "the first line must be `//!` and a sentence")).collect()
}

/// No source file is longer than `LIMIT` lines.
pub(crate) fn sizes(tree: &Tree) -> Vec<Finding> {
    let long = sources(tree).into_iter().filter(|(lines, _)| *lines > LIMIT);
    long.map(|(lines, path)| Finding::new(path, 0, format!("{lines} lines; the limit is {LIMIT}: split it by concept")))
        .collect()
}

/// No module has a vague name, whether a file, a folder or `mod NAME { .. }`.
pub(crate) fn names(tree: &Tree) -> Vec<Finding> {
    let mut out = Vec::new();
    for (path, _) in tree.rust() {
        let stem = path.strip_suffix(".rs").unwrap_or(path);
        out.extend(stem.split('/').filter(|part| VAGUE.contains(part)).map(|part| vague(path, 0, part)));
        for pair in tree.tokens(path).windows(3) {
            let inline = pair[0].text == "mod" && pair[0].kind == Kind::Word && pair[2].text == "{";
            if inline && VAGUE.contains(&pair[1].text.as_str()) {
                out.push(vague(path, pair[1].line, &pair[1].text));
            }
        }
    }
    out
}

fn vague(path: &str, line: usize, name: &str) -> Finding {
    Finding::new(path, line, format!("`{name}` does not say what is inside"))
}

/// The number of lines and the path of every Rust and Python source.
fn sources(tree: &Tree) -> Vec<(usize, &str)> {
    let all = tree.rust().chain(tree.all().filter(|(path, _)| path.ends_with(".py")));
    all.map(|(path, text)| (text.lines().count(), path)).collect()
}

/// The number of files and lines, the median, and the longest files.
pub(crate) fn size_summary(tree: &Tree) -> String {
    let mut all = sources(tree);
    all.sort_unstable_by(|a, b| b.cmp(a));
    let total: usize = all.iter().map(|(lines, _)| lines).sum();
    let median = all.get(all.len() / 2).map_or(0, |(lines, _)| *lines);
    let mut out = format!("{} source files, {total} lines, median {median}; longest:", all.len());
    for (lines, path) in all.iter().take(5) {
        out += &format!("\n{lines:>6}  {path}");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::super::plant::{fails, passes, tree};
    use super::{headers, names, size_summary, sizes};

    #[test]
    fn a_header_says_what_the_file_holds() {
        passes(headers, &[("a.rs", "//! Reads the table.\nfn f() {}"), ("tests/ui/bad.rs", "fn f() {}")]);
        fails(headers, &[("a.rs", "fn f() {}")], "a.rs", "first line");
        fails(headers, &[("a.rs", "//! Placeholder.\n")], "a.rs", "first line");
        fails(headers, &[("a.rs", "\n//! Reads the table.\n")], "a.rs", "first line");
        fails(headers, &[("a.rs", "")], "a.rs", "first line");
    }

    #[test]
    fn long_files_are_found() {
        passes(sizes, &[("a.rs", &"x\n".repeat(600))]);
        fails(sizes, &[("a.rs", &"x\n".repeat(601))], "a.rs", "601 lines");
        fails(sizes, &[("a.py", &"x\n".repeat(601))], "a.py", "601 lines");
    }

    #[test]
    fn vague_names_are_found() {
        passes(names, &[("src/parse.rs", "mod base_address {}\nlet base = 1;")]);
        fails(names, &[("src/utils.rs", "")], "src/utils.rs", "utils");
        fails(names, &[("src/common/mod.rs", "")], "src/common/mod.rs", "common");
        fails(names, &[("src/parse.rs", "mod helpers { }")], "src/parse.rs", "helpers");
    }

    #[test]
    fn the_summary_counts() {
        let text = size_summary(&tree(&[("a.rs", "1\n2\n3\n"), ("b.rs", "1\n"), ("c.rs", "1\n2\n"), ("d.md", "1\n")]));
        assert!(text.starts_with("3 source files, 6 lines, median 2; longest:\n     3  a.rs"), "{text}");
    }
}
