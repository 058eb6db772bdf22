//! `cargo xtask diagnostics`: writes the pages about diagnostic codes and the data of `atlas explain-error`.
//!
//! Titles and advice are written by hand in `docs/diagnostics.toml`. Examples come from the tests (`examples`), so they
//! never differ from the messages that Atlas prints. `tidy` compares the committed files with the generated ones.

mod examples;

use super::Finding;
use super::codes::given;
use super::tree::Tree;
use anyhow::{Context, Result};
use examples::{Example, Examples};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

/// The file that is written by hand.
const ENTRIES: &str = "docs/diagnostics.toml";

/// The data that the command line embeds.
const DATA: &str = "cli/diagnostics.json";

/// What advice says where it lists the keys of a schedule, and the table that has them.
const KEYS: (&str, &str) = ("{schedule keys}", "dsl/vocabulary/src/schedule.rs");

/// The pages: file, title, and the first digits of their codes.
const PAGES: [(&str, &str, &[u16]); 6] = [
    ("docs/src/diagnostics/syntax.md", "ATL0xx: syntax and names", &[0]),
    ("docs/src/diagnostics/types.md", "ATL1xx: types, extents and numbers", &[1]),
    ("docs/src/diagnostics/kernels.md", "ATL2xx: rules of kernels and fusions", &[2]),
    ("docs/src/diagnostics/configs.md", "ATL3xx: configs", &[3]),
    ("docs/src/diagnostics/compiler.md", "ATL4xx and ATL5xx: GPU IR and the back end", &[4, 5]),
    ("docs/src/diagnostics/launches.md", "ATL6xx: devices, tensors and launches", &[6]),
];

/// The entry for a code in `docs/diagnostics.toml`.
struct Entry {
    title: String,
    mend: String,
    /// The test case to show, by its file name.
    example: Option<String>,
    /// A message, for a code whose message appears in no test and no source in one piece.
    message: Option<String>,
}

/// Writes the pages and the data.
pub(crate) fn run(root: &Path) -> Result<()> {
    let (_, files) = generate(&Tree::read(root)?);
    for (path, text) in files {
        let at = root.join(&path);
        if std::fs::read_to_string(&at).is_ok_and(|old| old == text) {
            continue;
        }
        if let Some(folder) = at.parent() {
            std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
        }
        std::fs::write(&at, text).with_context(|| format!("cannot write {path}"))?;
        println!("wrote {path}");
    }
    Ok(())
}

/// Checks that every code has an entry with an example, that every entry has a code, and that the committed files are
/// up to date.
pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let (mut findings, files) = generate(tree);
    let stale = files.iter().filter(|(path, text)| tree.get(path) != Some(text.as_str()));
    findings.extend(stale.map(|(path, _)| Finding::new(path, 0, "is out of date: run `cargo xtask diagnostics`")));
    findings
}

/// The mistakes in the entries, and the generated files with their texts.
fn generate(tree: &Tree) -> (Vec<Finding>, BTreeMap<String, String>) {
    let mut findings = Vec::new();
    let mut entries = entries(tree.get(ENTRIES).unwrap_or(""), &mut findings);
    let keys = schedule_keys(tree);
    for (code, entry) in entries.iter_mut().filter(|(_, entry)| entry.mend.contains(KEYS.0)) {
        if keys.is_empty() {
            findings.push(Finding::new(ENTRIES, 0, format!("ATL{code:03} lists keys, and {} has none", KEYS.1)));
        }
        entry.mend = entry.mend.replace(KEYS.0, &keys);
    }
    let given = given(tree);
    for (code, (path, line)) in given.iter().filter(|(code, _)| !entries.contains_key(code)) {
        findings.push(Finding::new(path, *line, format!("ATL{code:03} has no entry in {ENTRIES}")));
    }
    for code in entries.keys().filter(|code| !given.contains_key(code)) {
        findings.push(Finding::new(ENTRIES, 0, format!("no source gives ATL{code:03}")));
    }
    let examples = Examples::read(tree);
    let mut shown: BTreeMap<u16, Example> = BTreeMap::new();
    for (&code, entry) in &entries {
        match entry.message.clone().map(Example::message).or_else(|| examples.of(code, entry.example.as_deref())) {
            Some(example) => _ = shown.insert(code, example),
            None => findings.push(Finding::new(ENTRIES, 0, format!("ATL{code:03} has no example in a test"))),
        }
    }
    let mut files: BTreeMap<String, String> = BTreeMap::new();
    if !entries.is_empty() {
        for (path, title, digits) in PAGES {
            files.insert(path.to_owned(), page(title, digits, &entries, &shown));
        }
        files.insert(DATA.to_owned(), data(&entries, &shown));
    }
    (findings, files)
}

/// The keys of a schedule, in the order of their table.
fn schedule_keys(tree: &Tree) -> String {
    let rows = tree.get(KEYS.1).unwrap_or("").split("ScheduleKey { name: \"").skip(1);
    let names = rows.filter_map(|row| Some(format!("`{}`", row.split_once('"')?.0)));
    names.collect::<Vec<_>>().join(", ")
}

/// The entries by code.
fn entries(text: &str, findings: &mut Vec<Finding>) -> BTreeMap<u16, Entry> {
    let table = text.parse::<toml::Table>().unwrap_or_else(|e| {
        findings.push(Finding::new(ENTRIES, 0, format!("is no TOML: {}", e.message())));
        toml::Table::new()
    });
    let mut out = BTreeMap::new();
    for (name, entry) in &table {
        let word = |key: &str| entry.get(key).and_then(toml::Value::as_str).map(str::to_owned);
        let code = name.strip_prefix("ATL").filter(|digits| digits.len() == 3).and_then(|digits| digits.parse().ok());
        match (code, word("title"), word("mend")) {
            (Some(code), Some(title), Some(mend)) => {
                let (example, message) = (word("example"), word("message"));
                out.insert(code, Entry { title, mend, example, message });
            }
            _ => findings.push(Finding::new(ENTRIES, 0, format!("[{name}] is no code with a title and a mend"))),
        }
    }
    out
}

/// One page of the book.
fn page(title: &str, digits: &[u16], entries: &BTreeMap<u16, Entry>, shown: &BTreeMap<u16, Example>) -> String {
    let mut out =
        format!("# {title}\n\n<!-- Written by `cargo xtask diagnostics`. Change {ENTRIES} or the tests. -->\n");
    for (code, entry) in entries.iter().filter(|(code, _)| digits.contains(&(*code / 100))) {
        _ = write!(out, "\n## ATL{code:03}\n\n**{}.**\n", entry.title);
        if let Some(example) = shown.get(code) {
            _ = write!(out, "\n```text\n{}\n```\n", example.text);
            if let Some(from) = &example.from {
                _ = write!(out, "\nFrom `{from}`.\n");
            }
        }
        _ = write!(out, "\nWhat to do: {}\n", entry.mend);
    }
    out
}

/// The same as JSON.
fn data(entries: &BTreeMap<u16, Entry>, shown: &BTreeMap<u16, Example>) -> String {
    let mut all = Map::new();
    for (code, entry) in entries {
        let text = shown.get(code).map_or("", |example| example.text.as_str());
        let value = json!({ "title": entry.title, "example": text, "mend": entry.mend });
        all.insert(format!("ATL{code:03}"), value);
    }
    format!("{:#}\n", Value::Object(all))
}

#[cfg(test)]
mod tests {
    use super::super::plant::{fails, tree};
    use super::{DATA, ENTRIES, KEYS, check, generate};

    const SOURCE: (&str, &str) = ("dsl/src/a.rs", "fn f() { err(101, \"axis {axis} of {t}\") }");
    const ENTRY: &str = "[ATL101]\ntitle = \"No such axis\"\nmend = \"Name another one.\"\n";

    #[test]
    fn a_code_without_an_entry_and_an_entry_without_a_code_are_found() {
        let planted = tree(&[SOURCE]);
        assert_eq!(check(&planted)[0].to_string(), format!("dsl/src/a.rs:1: ATL101 has no entry in {ENTRIES}"));
        let found = generate(&tree(&[(ENTRIES, ENTRY)])).0;
        let found: Vec<String> = found.iter().map(ToString::to_string).collect();
        assert_eq!(found[0], format!("{ENTRIES}: no source gives ATL101"));
        assert!(found[1].contains("has no example"), "{found:?}");
        assert!(generate(&tree(&[SOURCE, (ENTRIES, "[ATL101]\ntitle = \"No\"")])).0[0].to_string().contains("mend"));
    }

    #[test]
    fn the_committed_files_are_what_is_generated() {
        let entries = (ENTRIES, ENTRY);
        let files = generate(&tree(&[SOURCE, entries])).1;
        let mut all: Vec<(&str, &str)> = files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
        all.extend([SOURCE, entries]);
        assert_eq!(check(&tree(&all)), []);
        let page = &files["docs/src/diagnostics/types.md"];
        assert!(
            page.contains("## ATL101\n\n**No such axis.**\n\n```text\nerror[ATL101]: axis {axis} of {t}\n```"),
            "{page}"
        );
        let listed = (ENTRIES, "[ATL101]\ntitle = \"No such axis\"\nmend = \"One of {schedule keys}.\"\n");
        let table = (KEYS.1, "[ScheduleKey { name: \"stages\", values }, ScheduleKey { name: \"warps\", values }]");
        let page = &generate(&tree(&[SOURCE, listed, table])).1["docs/src/diagnostics/types.md"];
        assert!(page.contains("One of `stages`, `warps`.\n"), "{page}");
        assert!(generate(&tree(&[SOURCE, listed])).0[0].to_string().contains("has none"));
        let stale: Vec<_> = all.iter().map(|&(path, text)| (path, if path == DATA { "{}" } else { text })).collect();
        fails(check, &stale, DATA, "out of date");
    }
}
