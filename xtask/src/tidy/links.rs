//! Checks the references in documents: relative links, anchors, paths in backticks, and the summary of the book.

use super::Finding;
use super::map::code_spans;
use super::tree::Tree;
use std::collections::{BTreeMap, BTreeSet};

const SUMMARY: &str = "docs/src/SUMMARY.md";

/// Documents outside `docs/`.
const DOCUMENTS: [&str; 4] = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md"];

/// The folder with the pages of the book.
const PAGES: &str = "docs/src/";

fn documents(tree: &Tree) -> impl Iterator<Item = (&str, &str)> {
    tree.all().filter(|(path, _)| DOCUMENTS.contains(path) || path.starts_with("docs/") && path.ends_with(".md"))
}

/// Every relative link leads to a file, and its anchor to a heading.
pub(crate) fn targets(tree: &Tree) -> Vec<Finding> {
    let mut out = Vec::new();
    for (document, text) in documents(tree) {
        for (line, target) in links(text) {
            let (path, anchor) = target.split_once('#').map_or((target, None), |(path, anchor)| (path, Some(anchor)));
            let path = if path.is_empty() { document.to_owned() } else { resolved(document, path) };
            if !tree.has(&path) {
                out.push(Finding::new(document, line, format!("links to `{target}`, which does not exist")));
            } else if let Some(anchor) = anchor
                && !anchors(tree, &path).contains(anchor)
            {
                out.push(Finding::new(document, line, format!("links to `#{anchor}`, which `{path}` does not have")));
            }
        }
    }
    out
}

/// Links of the book lead to files of the book. The rendered book has no other files.
pub(crate) fn within_book(tree: &Tree) -> Vec<Finding> {
    let mut out = Vec::new();
    for (page, text) in documents(tree).filter(|(path, _)| path.starts_with(PAGES)) {
        let local = links(text).into_iter().filter(|(_, target)| !target.starts_with('#'));
        let leaving = local.filter(|(_, target)| !resolved(page, target).starts_with(PAGES));
        out.extend(leaving.map(|(line, target)| {
            let message = format!("links to `{target}`, which the rendered book lacks: name its path in backticks");
            Finding::new(page, line, message)
        }));
    }
    out
}

/// Every path from the root in backticks exists.
pub(crate) fn spans(tree: &Tree) -> Vec<Finding> {
    let folders: BTreeSet<&str> = tree.all().filter_map(|(path, _)| Some(path.split_once('/')?.0)).collect();
    let mut out = Vec::new();
    for (document, text) in documents(tree) {
        for (line, span) in code_spans(text) {
            let plain = span.chars().all(|c| c.is_ascii_alphanumeric() || "_./-".contains(c));
            let from_root = span.split_once('/').is_some_and(|(folder, _)| folders.contains(folder));
            if plain && from_root && !tree.has(span) {
                out.push(Finding::new(document, line, format!("names `{span}`, which does not exist")));
            }
        }
    }
    out
}

/// Every page of the book is in the summary.
pub(crate) fn summary(tree: &Tree) -> Vec<Finding> {
    let listed: BTreeSet<String> =
        links(tree.get(SUMMARY).unwrap_or("")).into_iter().map(|(_, target)| resolved(SUMMARY, target)).collect();
    let pages = documents(tree).map(|(path, _)| path).filter(|path| path.starts_with(PAGES) && *path != SUMMARY);
    let missing = pages.filter(|path| !listed.contains(*path));
    missing.map(|path| Finding::new(path, 0, format!("is not in {SUMMARY}"))).collect()
}

/// The targets of `[text](target)` outside code, with their lines, without links to other sites.
fn links(text: &str) -> Vec<(usize, &str)> {
    let mut fenced = false;
    let mut out = Vec::new();
    for (n, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        }
        let targets = line.split("](").skip(1).filter(|_| !fenced);
        let targets = targets.filter_map(|rest| rest.split([')', ' ']).next());
        let local = |target: &&str| !target.is_empty() && !target.contains("://") && !target.starts_with("mailto:");
        out.extend(targets.filter(local).map(|target| (n + 1, target)));
    }
    // A link inside a code span is only an example.
    let spans: BTreeSet<(usize, &str)> = code_spans(text).into_iter().filter(|(_, span)| span.contains("](")).collect();
    out.retain(|(n, target)| !spans.iter().any(|(line, span)| line == n && span.contains(&format!("]({target}"))));
    out
}

/// The path from the root for a link target in a document.
fn resolved(document: &str, target: &str) -> String {
    let mut parts: Vec<&str> = document.split('/').collect();
    parts.pop();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => _ = parts.pop(),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// The anchors of a document's headings.
fn anchors(tree: &Tree, path: &str) -> BTreeSet<String> {
    let text = tree.get(path).unwrap_or("");
    let (mut fenced, mut seen, mut out) = (false, BTreeMap::new(), BTreeSet::new());
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        }
        if let Some((_, heading)) =
            line.split_once("# ").filter(|(marks, _)| !fenced && marks.chars().all(|c| c == '#'))
        {
            let anchor = anchor(heading);
            let count: &mut usize = seen.entry(anchor.clone()).or_default();
            out.insert(if *count == 0 { anchor } else { format!("{anchor}-{count}") });
            *count += 1;
        }
    }
    out
}

/// The anchor of a heading, as GitHub and mdbook generate it.
fn anchor(heading: &str) -> String {
    let kept = heading.trim().chars().filter(|&c| c.is_alphanumeric() || "-_ ".contains(c));
    kept.map(|c| if c == ' ' { '-' } else { c.to_ascii_lowercase() }).collect()
}

#[cfg(test)]
mod tests {
    use super::super::plant::{fails, passes};
    use super::{SUMMARY, spans, summary, targets, within_book};

    #[test]
    fn links_lead_to_files_and_headings() {
        let book =
            ("docs/src/a.md", "# A page\n\n## `load` and *store*\n\n## Twice\n## Twice\n```sh\n# no heading\n```\n");
        let picture = ("docs/src/p.svg", "<svg/>");
        let with = |text: &'static str| [("README.md", text), book, picture];
        passes(targets, &with("[a](docs/src/a.md#load-and-store), ![p](docs/src/p.svg)"));
        passes(
            targets,
            &with("[a](docs/src/a.md#twice-1) [x](https://host/x#y) `[a](gone.md)`\n```\n[a](gone.md)\n```"),
        );
        passes(targets, &with("# Here it is\n[up](#here-it-is) [folder](docs/)"));
        fails(targets, &with("\n[a](docs/gone.md)"), "README.md", "`docs/gone.md`, which does not exist");
        fails(targets, &with("[a](docs/src/a.md#gone)"), "README.md", "`#gone`");
        fails(targets, &with("[a](docs/src/a.md#no-heading)"), "README.md", "`#no-heading`");
        fails(targets, &[("docs/src/c.md", "[up](../gone.md)")], "docs/src/c.md", "../gone.md");
        passes(targets, &[("docs/src/c.md", "[up](../../README.md)"), ("README.md", "x")]);
    }

    #[test]
    fn links_of_the_book_stay_in_the_book() {
        let with = |text: &'static str| {
            [("docs/src/more/a.md", text), ("docs/src/b.md", "x"), ("README.md", "[b](docs/src/b.md)")]
        };
        passes(within_book, &with("[b](../b.md#x) [here](#x) [x](https://host/x) `../../README.md`"));
        fails(within_book, &with("\n[up](../../../README.md)"), "docs/src/more/a.md", "name its path in backticks");
    }

    #[test]
    fn paths_in_pages_exist() {
        let with = |text: &'static str| [("docs/src/a.md", text), ("dsl/src/op.rs", "")];
        passes(spans, &with("`dsl/src/op.rs`, `dsl/`, `my/own.rs`, `N/2`, `target/debug`, `dsl/src/{a,b}`"));
        fails(spans, &[("CHANGELOG.md", "`dsl/gone.rs`"), ("dsl/a.rs", "")], "CHANGELOG.md", "dsl/gone.rs");
        fails(spans, &with("`dsl/src/gone.rs`"), "docs/src/a.md", "dsl/src/gone.rs");
    }

    #[test]
    fn every_page_is_in_the_summary() {
        let pages = [("docs/src/a.md", "x"), ("docs/src/more/b.md", "x"), ("docs/decisions/c.md", "x")];
        passes(summary, &[&[(SUMMARY, "- [A](a.md)\n  - [B](more/b.md)")], &pages[..]].concat());
        fails(summary, &[&[(SUMMARY, "- [A](a.md)")], &pages[..]].concat(), "docs/src/more/b.md", "SUMMARY");
    }
}
