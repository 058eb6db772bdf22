//! Import cycles between sibling modules. Only those that the map lists are allowed, and that list may only shrink.
//!
//! A folder of modules counts as one module for its siblings. Imports between a parent and its children are not
//! checked, because they form a unit.

use super::Finding;
use super::shrinking::{Excess, compare};
use super::tokens::{Kind, Token, after_group, spells};
use super::tree::Tree;
use std::collections::{BTreeMap, BTreeSet};

/// A module's path, as names from the crate's root.
type ModulePath = Vec<String>;

/// The modules of one crate.
struct Crate<'t> {
    /// `runtime/src`.
    root: &'t str,
    /// Each module's tokens.
    modules: BTreeMap<ModulePath, Vec<Token>>,
    /// The re-exports of a module under names of its own, and where the items are defined.
    passed_on: BTreeMap<(ModulePath, String), ModulePath>,
}

/// Every folder whose modules import each other in a cycle is listed with the number of those modules.
pub(crate) fn none(tree: &Tree) -> Vec<Finding> {
    let circles = tree.crates().into_iter().flat_map(|root| Crate::read(tree, root).circles());
    let excess =
        circles.map(|(folder, circle)| Excess { folder, count: circle.len(), names: circle.into_iter().collect() });
    compare(tree, "circles", "modules import each other in a circle", excess.collect())
}

impl<'t> Crate<'t> {
    fn read(tree: &Tree, root: &'t str) -> Crate<'t> {
        let mut modules = BTreeMap::new();
        for (path, _) in tree.rust() {
            let Some(name) = path.strip_prefix(root).and_then(|p| p.strip_prefix('/')?.strip_suffix(".rs")) else {
                continue;
            };
            let mut names: ModulePath = name.split('/').map(str::to_owned).collect();
            if names.last().is_some_and(|n| n == "mod") || names == ["lib"] || names == ["main"] {
                names.pop();
            }
            modules.insert(names, tree.tokens(path).iter().filter(|t| !t.in_test).cloned().collect());
        }
        let mut all = Crate { root, modules, passed_on: BTreeMap::new() };
        for (at, tokens) in &all.modules {
            for i in (0..tokens.len()).filter(|&i| spells(tokens, i, &["use"])) {
                for path in use_paths(tokens, i + 1) {
                    let [child, .., name] = &path[..] else { continue };
                    let child: ModulePath = at.iter().chain([child]).cloned().collect();
                    if all.modules.contains_key(&child) {
                        all.passed_on.insert((at.clone(), name.clone()), child);
                    }
                }
            }
        }
        all
    }

    /// The module to which a path that starts at `from` leads.
    fn resolve(&self, from: ModulePath, path: &[String]) -> ModulePath {
        let mut at = from;
        for name in path {
            let child: ModulePath = at.iter().chain([name]).cloned().collect();
            if self.modules.contains_key(&child) {
                at = child;
            } else {
                return self.passed_on.get(&(at.clone(), name.clone())).cloned().unwrap_or(at);
            }
        }
        at
    }

    /// The modules that a module names.
    fn named_by(&self, at: &ModulePath, tokens: &[Token]) -> BTreeSet<ModulePath> {
        let mut out = BTreeSet::new();
        let mut i = 0;
        while i < tokens.len() {
            let start = i;
            let mut from = at.clone();
            if spells(tokens, i, &["crate", ":", ":"]) {
                from.clear();
                i += 3;
            }
            while spells(tokens, i, &["super", ":", ":"]) {
                from.pop();
                i += 3;
            }
            if i == start {
                i += 1;
                continue;
            }
            out.extend(use_paths(tokens, i).iter().map(|path| self.resolve(from.clone(), path)));
        }
        out
    }

    /// Folders with an import cycle, and the modules in it.
    fn circles(&self) -> Vec<(String, BTreeSet<String>)> {
        let mut beside: BTreeMap<ModulePath, BTreeMap<&str, BTreeSet<String>>> = BTreeMap::new();
        for (at, tokens) in &self.modules {
            for to in self.named_by(at, tokens) {
                let common = at.iter().zip(&to).take_while(|(a, b)| a == b).count();
                if let (Some(a), Some(b)) = (at.get(common), to.get(common)) {
                    let group = beside.entry(at[..common].to_vec()).or_default();
                    group.entry(a.as_str()).or_default().insert(b.clone());
                }
            }
        }
        let mut out = Vec::new();
        for (folder, imports) in &beside {
            let circle: BTreeSet<String> =
                imports.keys().filter(|name| reaches(imports, name)).map(|name| (*name).to_owned()).collect();
            if !circle.is_empty() {
                let folder: Vec<&str> = [self.root].into_iter().chain(folder.iter().map(String::as_str)).collect();
                out.push((folder.join("/"), circle));
            }
        }
        out
    }
}

/// True if a module's imports lead back to it.
fn reaches(imports: &BTreeMap<&str, BTreeSet<String>>, name: &str) -> bool {
    let mut seen: BTreeSet<&str> = BTreeSet::new();
    let mut next: Vec<&str> = imports.get(name).into_iter().flatten().map(String::as_str).collect();
    while let Some(at) = next.pop() {
        if at == name {
            return true;
        }
        if seen.insert(at) {
            next.extend(imports.get(at).into_iter().flatten().map(String::as_str));
        }
    }
    false
}

/// The paths of a `use` tree, or of a single path in code, that begins at `at`.
fn use_paths(tokens: &[Token], at: usize) -> Vec<Vec<String>> {
    let mut path = Vec::new();
    let mut i = at;
    loop {
        match tokens.get(i) {
            Some(t) if t.kind == Kind::Word => path.push(t.text.clone()),
            Some(t) if t.kind == Kind::Open && t.text == "{" => {
                let end = after_group(tokens, i) - 1;
                let mut out = Vec::new();
                let mut part = i + 1;
                while part < end {
                    out.extend(use_paths(&tokens[..end], part).into_iter().map(|p| [path.clone(), p].concat()));
                    part = after_comma(&tokens[..end], part);
                }
                return out;
            }
            _ => return vec![path],
        }
        if !spells(tokens, i + 1, &[":", ":"]) {
            return vec![path];
        }
        i += 3;
    }
}

/// The index after the next comma outside any group.
fn after_comma(tokens: &[Token], mut at: usize) -> usize {
    while at < tokens.len() {
        match tokens[at].kind {
            Kind::Open => at = after_group(tokens, at),
            _ if tokens[at].text == "," => return at + 1,
            _ => at += 1,
        }
    }
    at
}

#[cfg(test)]
mod tests {
    use super::super::plant::{fails, passes};
    use super::none;

    const LIB: (&str, &str) = ("a/src/lib.rs", "mod b; mod c; mod d; pub use b::X;");

    #[test]
    fn imports_downwards_pass() {
        let b = ("a/src/b.rs", "use crate::c::Y;");
        let c = ("a/src/c.rs", "#[cfg(test)]\nmod tests { use crate::b::X; }");
        passes(none, &[LIB, b, c]);
    }

    #[test]
    fn a_circle_is_found_through_groups_paths_in_code_and_names_passed_on() {
        let b = ("a/src/b.rs", "use std::{fmt, crate_like::z};\nuse crate::{d::Z, c::{self, Y}};");
        fails(none, &[LIB, b, ("a/src/c.rs", "fn f() { crate::X::new() }")], "a/src", "2 modules");
        fails(none, &[LIB, b, ("a/src/c.rs", "use super::b;")], "a/src", ": b, c");
    }

    #[test]
    fn a_folder_is_one_module_and_has_circles_of_its_own() {
        let mod_rs = ("a/src/b/mod.rs", "mod p; mod q; pub struct S;");
        let child = ("a/src/b/p.rs", "use super::S; use super::q::T; use crate::c::Y;");
        passes(none, &[LIB, mod_rs, child, ("a/src/b/q.rs", ""), ("a/src/c.rs", "")]);
        fails(none, &[LIB, mod_rs, child, ("a/src/b/q.rs", "use crate::b::p::U;")], "a/src/b", "p, q");
        fails(none, &[LIB, mod_rs, child, ("a/src/c.rs", "use crate::b::S;")], "a/src", "b, c");
    }

    #[test]
    fn a_listed_circle_may_only_shrink() {
        let circle = [LIB, ("a/src/b.rs", "use crate::c::Y;"), ("a/src/c.rs", "use crate::b::X;")];
        let with = |n: usize| format!("```circles\na/src {n}\n```\n");
        let (two, three) = (with(2), with(3));
        passes(none, &[&circle[..], &[("ARCHITECTURE.md", &two)]].concat());
        fails(none, &[&circle[..], &[("ARCHITECTURE.md", &three)]].concat(), "a/src", "lists 3");
        fails(none, &[LIB, ("ARCHITECTURE.md", &two)], "ARCHITECTURE.md", "has none");
    }
}
