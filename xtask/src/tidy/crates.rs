//! The sources of each crate: few entries per folder, and no two types of the same name. The map lists the exceptions.

use super::Finding;
use super::shrinking::{Excess, compare};
use super::tokens::{Kind, tokens};
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

/// Each struct, enum, trait and union of a crate has a unique name, even private ones. Tests are exempt.
pub(crate) fn type_names(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    for root in tree.crates() {
        let mut places: BTreeMap<String, usize> = BTreeMap::new();
        for (_, text) in tree.rust().filter(|(path, _)| is_in(path, root)) {
            for pair in tokens(text).windows(2).filter(|pair| !pair[0].in_test) {
                let declares = ["struct", "enum", "trait", "union"].contains(&pair[0].text.as_str());
                if declares && pair[0].kind == Kind::Word && pair[1].kind == Kind::Word {
                    *places.entry(pair[1].text.clone()).or_default() += 1;
                }
            }
        }
        let names: Vec<String> = places.into_iter().filter(|(_, n)| *n > 1).map(|(name, _)| name).collect();
        if !names.is_empty() {
            found.push(Excess { folder: root.to_owned(), count: names.len(), names });
        }
    }
    compare(tree, "type-names", "names that several types have", found)
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
        passes(type_names, &[lib, ("a/src/b.rs", "enum Rows { Row }\n#[cfg(test)]\nmod tests { struct Row; }")]);
        // Another crate may have a type with that name.
        passes(type_names, &[lib, ("c/src/lib.rs", "pub struct Row;")]);
        fails(type_names, &[lib, ("a/src/b.rs", "pub(crate) enum Row {}")], "a/src", "1 names that several types have");
        fails(type_names, &[lib, ("a/src/b.rs", "fn f() { trait Row {} }")], "a/src", ": Row");
        let listed = ("ARCHITECTURE.md", "```type-names\na/src 1\n```\n");
        passes(type_names, &[lib, ("a/src/b.rs", "struct Row;"), listed]);
        fails(type_names, &[lib, ("a/src/b.rs", ""), listed], "ARCHITECTURE.md", "has none");
    }
}
