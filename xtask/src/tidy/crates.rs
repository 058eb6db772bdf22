//! The sources of each crate: few entries per folder, with the exceptions that the map lists, and no two types of one name.

use super::Finding;
use super::shrinking::{Excess, compare};
use super::tokens::{Kind, Token};
use super::tree::Tree;
use std::collections::{BTreeMap, BTreeSet};

/// The most files and folders in a crate's source folder: as many as a reader can survey.
const MOST_ENTRIES: usize = 12;

/// A source folder has at most `MOST_ENTRIES` files and folders. Folders of ops, which have `cases.rs`, do not count: adding one
/// is always allowed.
pub(crate) fn entries(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    for root in tree.crates() {
        let inside = tree.all().filter_map(|(path, _)| path.strip_prefix(root)?.strip_prefix('/'));
        let names: BTreeSet<&str> = inside.filter_map(|path| path.split('/').next()).collect();
        let is_op = |name: &str| tree.has(&format!("{root}/{name}/cases.rs"));
        let names: BTreeSet<&str> = names.into_iter().filter(|name| !is_op(name)).collect();
        if names.len() > MOST_ENTRIES {
            let (count, names) = (names.len(), names.into_iter().map(str::to_owned).collect());
            found.push(Excess { folder: root.to_owned(), count, names });
        }
    }
    let fault = format!("files and folders, of which {MOST_ENTRIES} may be");
    compare(tree, "entries", &fault, found)
}

/// No two types of a crate have one name: structs, enums, traits, unions and aliases, also private ones and those of tests.
pub(crate) fn type_names(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    for root in tree.crates_and_tests() {
        let mut first: BTreeMap<String, String> = BTreeMap::new();
        for (path, _) in tree.rust().filter(|(path, _)| is_in(path, root)) {
            for name in declared(tree.tokens(path)) {
                let place = format!("{path}:{}", name.line);
                if let Some(other) = first.get(&name.text) {
                    let message = format!("declares a type `{}`, as {other} does", name.text);
                    found.push(Finding::new(path, name.line, message));
                } else {
                    first.insert(name.text.clone(), place);
                }
            }
        }
    }
    found
}

/// The names of the types that a file declares. A `type` of an `impl` or a `trait` belongs to that.
fn declared(all: &[Token]) -> Vec<&Token> {
    let mut out = Vec::new();
    // For each open group, whether it is the body of an `impl` or a `trait`, and the same for the next braces.
    let (mut groups, mut next) = (Vec::new(), false);
    for (i, token) in all.iter().enumerate() {
        let text = token.text.as_str();
        match token.kind {
            Kind::Open => groups.push(text == "{" && std::mem::take(&mut next)),
            Kind::Close => drop(groups.pop()),
            Kind::Word => {
                next |= text == "trait" || text == "impl" && begins_item(&all[..i]);
                let is_own = text == "type" && groups.last() != Some(&true);
                if is_own || ["struct", "enum", "trait", "union"].contains(&text) {
                    out.extend(all.get(i + 1).filter(|name| name.kind == Kind::Word));
                }
            }
            _ => {}
        }
    }
    out
}

/// True if an item may begin after these tokens. An `impl` anywhere else is a type.
fn begins_item(before: &[Token]) -> bool {
    let after = |last: &Token| last.kind == Kind::Open || ["}", "]", ";", "unsafe"].contains(&last.text.as_str());
    before.last().is_none_or(after)
}

fn is_in(path: &str, root: &str) -> bool {
    path.strip_prefix(root).is_some_and(|rest| rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::super::plant::{fails, passes};
    use super::{entries, type_names};

    /// A crate whose source folder has `files` files and one folder with two.
    fn with_entries(files: usize) -> Vec<(String, String)> {
        let mut all: Vec<(String, String)> = (1..files).map(|i| (format!("a/src/f{i}.rs"), String::new())).collect();
        all.extend(["lib.rs", "room/mod.rs", "room/more.rs"].map(|name| (format!("a/src/{name}"), String::new())));
        all
    }

    fn texts<'t>(files: &'t [(String, String)], map: &'t str) -> Vec<(&'t str, &'t str)> {
        let map = [("ARCHITECTURE.md", map)];
        files.iter().map(|(path, text)| (path.as_str(), text.as_str())).chain(map).collect()
    }

    #[test]
    fn a_folder_of_sources_has_few_entries() {
        passes(entries, &texts(&with_entries(11), ""));
        fails(entries, &texts(&with_entries(12), ""), "a/src", "13 files and folders");
    }

    #[test]
    fn a_listed_folder_may_only_shrink() {
        let listed = "```entries\na/src 13\n```\n";
        passes(entries, &texts(&with_entries(12), listed));
        fails(entries, &texts(&with_entries(13), listed), "a/src", "where the map lists 13");
        fails(entries, &texts(&with_entries(11), listed), "ARCHITECTURE.md", "has none");
    }

    #[test]
    fn two_types_of_one_name_are_found() {
        let lib = ("a/src/lib.rs", "mod b; struct Row; type Slot = Row;");
        let beside = |text| [lib, ("a/src/b.rs", text)];
        passes(type_names, &beside("enum Rows { Row }"));
        // Another crate may have a type with that name.
        passes(type_names, &[lib, ("c/src/lib.rs", "pub struct Row;"), ("a/tests/suite/main.rs", "struct Row;")]);
        fails(
            type_names,
            &[("tests/main.rs", "struct Row;"), ("tests/a/b.rs", "enum Row {}")],
            "tests/main.rs",
            "`Row`",
        );
        fails(type_names, &beside("\npub(crate) enum Row {}"), "a/src/lib.rs", "`Row`, as a/src/b.rs:2 does");
        fails(type_names, &beside("fn f() { trait Row {} }"), "a/src/lib.rs", "`Row`");
        fails(type_names, &beside("#[cfg(test)]\nmod tests { struct Row; }"), "a/src/lib.rs", "`Row`");
        fails(type_names, &beside("type Row = u32;"), "a/src/lib.rs", "`Row`");
        fails(type_names, &beside("impl A { fn f(x: impl Fn()) { type Row = u32; } }"), "a/src/lib.rs", "`Row`");
    }

    #[test]
    fn an_associated_type_may_have_the_name_of_a_type() {
        let lib = ("a/src/lib.rs", "mod b; type Row = u32; impl Table for A { type Row = u32; }");
        let table = "pub trait Table { type Row; }\n/// Rows.\nunsafe impl<T> Table for B<T> { type Row = T; }";
        passes(type_names, &[lib, ("a/src/b.rs", table)]);
    }
}
