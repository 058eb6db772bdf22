//! Examples for diagnostic codes: recorded messages of the macro, case files, messages in tests, and the sources' own
//! texts.

use super::super::codes::{literals, messages, wanted};
use super::super::tokens::Token;
use super::super::tree::Tree;
use std::collections::BTreeMap;

/// The folder with recorded messages of the macro.
const MACRO_CASES: &str = "dsl/macros/tests/ui/";

/// The folder with cases in text form.
const TEXT_CASES: &str = "tests/cases/";

/// A mistake and its message.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Example {
    /// The text as a terminal shows it.
    pub(super) text: String,
    /// The file with the mistake.
    pub(super) from: Option<String>,
}

impl Example {
    /// A message without a file that makes the mistake.
    pub(super) fn message(text: String) -> Example {
        Example { text, from: None }
    }

    /// Short recorded messages rank first. Among parts of messages, the longest ranks first.
    fn rank(&self, kind: usize) -> (usize, &Example) {
        (if kind == 0 { self.text.len() } else { usize::MAX - self.text.len() }, self)
    }
}

/// Examples by code, with the best kind first.
pub(super) struct Examples([BTreeMap<u16, Vec<Example>>; 5]);

impl Examples {
    /// Collects the examples in tests and sources.
    pub(super) fn read(tree: &Tree) -> Examples {
        let mut all = Examples(Default::default());
        for (path, text) in tree.all() {
            if path.starts_with(MACRO_CASES) && path.ends_with(".stderr") {
                all.add_recorded(path, text);
            } else if path.starts_with(TEXT_CASES) {
                all.add_marked(path, text);
            } else if path.ends_with(".rs") && !path.starts_with("xtask/") {
                let tokens = tree.tokens(path);
                let is_test = path.starts_with("tests/") || path.contains("/tests/");
                if !is_test {
                    messages(tokens, |code, message, whole| {
                        let said = Example::message(format!("error[ATL{code:03}]: {}", filled(&message)));
                        // A row of an error table has the whole message. An argument may have only a part.
                        all.0[if whole { 2 } else { 4 }].entry(code).or_default().push(said);
                    });
                }
                all.add_spelled(tokens, if is_test { 3 } else { 4 });
                for (code, parts) in wanted(tokens).into_iter().filter(|_| is_test) {
                    let said = Example::message(format!("error[ATL{code:03}]: .. {} ..", parts.join(" .. ")));
                    all.0[3].entry(code).or_default().push(said);
                }
            }
        }
        all
    }

    /// An example for a code: from the named case, or else the best one of the best kind.
    pub(super) fn of(&self, code: u16, case: Option<&str>) -> Option<Example> {
        let stem = |e: &&Example| {
            let file = e.from.as_deref().and_then(|f| f.rsplit('/').next());
            file.and_then(|f| f.split('.').next()) == case
        };
        let of_kind = |kind: usize| self.0[kind].get(&code).into_iter().flatten();
        let best_of = |kind: usize| of_kind(kind).filter(|e| case.is_none() || stem(e)).min_by_key(|e| e.rank(kind));
        let kind = (0..self.0.len()).find(|&kind| best_of(kind).is_some())?;
        if kind == 2 {
            // Every variant of a runtime error.
            let texts: Vec<&str> = of_kind(kind).map(|e| e.text.as_str()).collect();
            return Some(Example::message(texts.join("\n")));
        }
        best_of(kind).cloned()
    }

    /// Blocks `error: ATL226: ..` with their source lines, up to an empty line.
    fn add_recorded(&mut self, path: &str, text: &str) {
        for block in text.split("\n\n") {
            let Some(code) = block.strip_prefix("error: ATL").and_then(leading_code) else { continue };
            let from = Some(path.replace(".stderr", ".rs"));
            self.0[0].entry(code).or_default().push(Example { text: block.trim_end().to_owned(), from });
        }
    }

    /// Lines with `// error[ATL226]: part of the message` after the mistake.
    fn add_marked(&mut self, path: &str, text: &str) {
        for line in text.lines() {
            let mut parts = line.split("// error[ATL");
            let wrong = parts.next().unwrap_or("").trim();
            for part in parts.filter(|_| !wrong.is_empty()) {
                let Some((code, message)) = leading_code(part).zip(part.split_once("]: ")) else { continue };
                let text = format!("{wrong}\nerror[ATL{code:03}]: .. {} ..", message.1.trim());
                self.0[1].entry(code).or_default().push(Example { text, from: Some(path.to_owned()) });
            }
        }
    }

    /// Messages in string literals of Rust code, as `error[ATL226]: ..`.
    fn add_spelled(&mut self, tokens: &[Token], kind: usize) {
        for literal in literals(tokens) {
            let Some((_, rest)) = literal.split_once("error[ATL") else { continue };
            let Some(code) = leading_code(rest) else { continue };
            if rest.len() > "302]: ".len() {
                let said = Example::message(format!("error[ATL{}", filled(rest)));
                self.0[kind].entry(code).or_default().push(said);
            }
        }
    }
}

/// The three digits at the beginning.
fn leading_code(text: &str) -> Option<u16> {
    text.get(..3)?.parse().ok()
}

/// The text of a `format!` without its unnamed placeholders.
fn filled(text: &str) -> String {
    text.replace("{:?}", "..").replace("{}", "..").replace(":?}", "}")
}

#[cfg(test)]
mod tests {
    use super::super::super::plant::tree;
    use super::{Example, Examples};

    #[test]
    fn the_best_kind_comes_first() {
        let recorded = "error: ATL226: long message\n --> a.rs:1:2\n  |\n\nerror: ATL226: short\n";
        let all = Examples::read(&tree(&[
            ("dsl/macros/tests/ui/a.stderr", recorded),
            ("tests/cases/gpu/b.gpu", "%x = y // error[ATL226]: a // error[ATL401]: b\n// error[ATL402]: c"),
            (
                "runtime/tests/c.rs",
                "fn f() { g(\"the error[ATL640]: `k`: no\", \"error[ATL641]\"); has(x, \"ATL302\", &[\"a\", \"b\"]) }",
            ),
            (
                "runtime/src/d.rs",
                "errors! { E { A {} = 601, \"one {a}\"; B {} = 601, \"two {:?}\"; } } fn f() { err(301, loc, \"{x:?} is 0\") }",
            ),
        ]));
        let of = |code| all.of(code, None);
        let text = |code| of(code).map(|e| e.text);
        assert_eq!(text(226).as_deref(), Some("error: ATL226: short"));
        assert_eq!(all.of(226, Some("b")).map(|e| e.text).as_deref(), Some("%x = y\nerror[ATL226]: .. a .."));
        assert_eq!(all.of(226, Some("c")), None);
        let from = Some("tests/cases/gpu/b.gpu".to_owned());
        assert_eq!(of(401), Some(Example { text: "%x = y\nerror[ATL401]: .. b ..".to_owned(), from }));
        assert_eq!(of(402), None);
        assert_eq!(text(640).as_deref(), Some("error[ATL640]: `k`: no"));
        assert_eq!(of(641), None);
        assert_eq!(text(302).as_deref(), Some("error[ATL302]: .. a .. b .."));
        assert_eq!(text(601).as_deref(), Some("error[ATL601]: one {a}\nerror[ATL601]: two .."));
        assert_eq!(text(301).as_deref(), Some("error[ATL301]: {x} is 0"));
    }
}
