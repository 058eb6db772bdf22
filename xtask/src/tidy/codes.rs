//! Checks that a test covers every diagnostic code that the sources can give.

use super::Finding;
use super::tokens::{Kind, Token, after_group};
use super::tree::Tree;
use std::collections::{BTreeMap, BTreeSet};

/// Calls whose first or second argument is a code.
const GIVERS: [&str; 10] =
    ["Code", "Diagnostic", "err", "error", "fail", "mistake", "push", "refuse", "reject", "report"];

/// Compares the codes of the sources with those of the tests.
pub(crate) fn tested(tree: &Tree) -> Vec<Finding> {
    let mut seen: BTreeSet<u16> = BTreeSet::new();
    for (path, text) in tree.all() {
        if is_test(path) {
            seen.extend(text.lines().flat_map(mentioned));
            if path.ends_with(".rs") {
                seen.extend(case_rows(tree.tokens(path)).into_iter().map(|(code, _)| code));
            }
        } else if is_source(path) {
            let in_test: BTreeSet<usize> = tree.tokens(path).iter().filter(|t| t.in_test).map(|t| t.line).collect();
            let lines = text.lines().enumerate().filter(|(n, _)| in_test.contains(&(n + 1)));
            seen.extend(lines.flat_map(|(_, line)| mentioned(line)));
        }
    }
    let missing = given(tree).into_iter().filter(|(code, _)| !seen.contains(code));
    missing.map(|(code, (path, line))| Finding::new(&path, line, format!("no test has ATL{code:03}"))).collect()
}

/// Every code that the sources can give, with the first location that gives it.
pub(crate) fn given(tree: &Tree) -> BTreeMap<u16, (String, usize)> {
    let mut given = BTreeMap::new();
    for (path, _) in tree.all().filter(|(path, _)| is_source(path) && !is_test(path)) {
        for (code, line) in codes(tree.tokens(path)) {
            given.entry(code).or_insert_with(|| (path.to_owned(), line));
        }
    }
    given
}

fn is_source(path: &str) -> bool {
    path.ends_with(".rs") && !path.starts_with("xtask/")
}

/// The message texts for the codes of a source, outside tests. `whole` is false for the text of an argument, which may
/// be part of a message.
pub(crate) fn messages(all: &[Token], mut found: impl FnMut(u16, String, bool)) {
    for i in (0..all.len()).filter(|&i| !all[i].in_test) {
        if let [equals, value, comma, says, ..] = &all[i..]
            && (equals.text.as_str(), comma.text.as_str()) == ("=", ",")
            && let Some((code, says)) = number(std::slice::from_ref(value)).zip(unquoted(says))
        {
            found(code, says, true);
        }
        if all[i].text == "(" && i > 0 && is_giver(all, i) {
            let inside = &all[i + 1..after_group(all, i) - 1];
            let code = arguments(inside).iter().take(2).find_map(|arg| number(arg));
            if let Some((code, says)) = code.zip(inside.iter().find_map(unquoted)) {
                found(code, says, false);
            }
        }
    }
}

/// The texts of a Rust source, its tests included.
pub(crate) fn literals(all: &[Token]) -> Vec<String> {
    all.iter().filter_map(unquoted).collect()
}

/// The value of a string literal.
fn unquoted(token: &Token) -> Option<String> {
    let inside = is_text(token).then(|| token.text.strip_prefix('"')?.strip_suffix('"'))??;
    let mut out = String::new();
    let mut chars = inside.chars().peekable();
    while let Some(c) = chars.next() {
        match (c, chars.peek()) {
            // A line that continues in the next one.
            ('\\', Some('\n')) => while chars.next_if(|c| c.is_whitespace()).is_some() {},
            ('\\', Some(_)) => match chars.next() {
                Some('n') => out.push('\n'),
                Some(c) => out.push(c),
                None => {}
            },
            (c, _) => out.push(c),
        }
    }
    Some(out)
}

/// Test sources, recorded messages and case files.
fn is_test(path: &str) -> bool {
    let endings = [".stderr", ".tile", ".gpu", ".snap", "/tests.rs", "_tests.rs"];
    path.starts_with("tests/")
        || path.starts_with("snapshots/")
        || path.contains("/tests/")
        || endings.iter().any(|e| path.ends_with(e))
}

/// The codes that the tokens of a source can give, outside tests, with their lines.
fn codes(all: &[Token]) -> Vec<(u16, usize)> {
    let mut out = Vec::new();
    for (i, token) in all.iter().enumerate().filter(|(_, t)| !t.in_test) {
        if is_text(token) {
            out.extend(written(&token.text).into_iter().map(|code| (code, token.line)));
        }
        // A row of an error table: `Variant { .. } = 620, "the message"`.
        if let [equals, value, comma, says, ..] = &all[i..]
            && (equals.text.as_str(), comma.text.as_str()) == ("=", ",")
            && is_text(says)
        {
            out.extend(number(std::slice::from_ref(value)).map(|code| (code, value.line)));
        }
        if token.kind != Kind::Open || token.text != "(" || i == 0 {
            continue;
        }
        if !is_giver(all, i) {
            continue;
        }
        let name = giver(all, i);
        let inside = &all[i + 1..after_group(all, i) - 1];
        // The argument of `Code` may be a choice between several codes.
        if name == "Code" {
            out.extend(inside.iter().filter_map(|t| Some((number(std::slice::from_ref(t))?, t.line))));
            continue;
        }
        let args = arguments(inside);
        // The `push` of a list has one argument, and the `push` of diagnostics has at least three.
        if name == "push" && args.len() < 3 {
            continue;
        }
        let first_two = args.iter().take(2).filter_map(|arg| number(arg));
        out.extend(first_two.map(|code| (code, token.line)).take(1));
    }
    out
}

/// The name of the function whose argument group opens at `i`; for `Diagnostic::new`, the type.
fn giver(all: &[Token], i: usize) -> &str {
    match &all[..i] {
        [.., owner, a, b, new] if a.text == ":" && b.text == ":" && new.text == "new" => &owner.text,
        [.., name] => &name.text,
        [] => "",
    }
}

fn is_giver(all: &[Token], i: usize) -> bool {
    GIVERS.contains(&giver(all, i))
}

/// The codes of a table of cases, with rows `(204, "part of the message", ..)`, and the parts of messages.
fn case_rows(all: &[Token]) -> Vec<(u16, String)> {
    let row = |w: &[Token]| match w {
        [open, value, comma, says] if open.text == "(" && comma.text == "," => {
            number(std::slice::from_ref(value)).zip(unquoted(says))
        }
        _ => None,
    };
    all.windows(4).filter_map(row).collect()
}

/// The parts of messages that a test expects: rows of tables of cases, and lists of words after a code, as in
/// `"ATL204", &["not defined"]`.
pub(crate) fn wanted(all: &[Token]) -> Vec<(u16, Vec<String>)> {
    let mut out: Vec<(u16, Vec<String>)> = case_rows(all).into_iter().map(|(code, part)| (code, vec![part])).collect();
    for (i, token) in all.iter().enumerate() {
        let code = unquoted(token).and_then(|t| t.strip_prefix("ATL")?.parse().ok().filter(|_| t.len() == 6));
        let Some(code) = code else { continue };
        let rest = all[i + 1..].iter().skip_while(|t| [",", "&", "["].contains(&t.text.as_str()));
        let parts: Vec<String> = rest.take_while(|t| t.text == "," || is_text(t)).filter_map(unquoted).collect();
        if !parts.is_empty() {
            out.push((code, parts));
        }
    }
    out
}

fn is_text(token: &Token) -> bool {
    token.kind == Kind::Literal && token.text.starts_with('"')
}

/// The arguments, split at the commas outside any group.
fn arguments(tokens: &[Token]) -> Vec<&[Token]> {
    let mut depth = 0;
    tokens
        .split(|t| {
            match t.kind {
                Kind::Open => depth += 1,
                Kind::Close => depth -= 1,
                _ => {}
            }
            depth == 0 && t.text == "," && t.kind == Kind::Punct
        })
        .collect()
}

/// The value of an argument that is a single whole number.
fn number(arg: &[Token]) -> Option<u16> {
    match arg {
        [t] if t.kind == Kind::Literal => t.text.trim_end_matches("u16").parse().ok().filter(|n| (1..1000).contains(n)),
        _ => None,
    }
}

/// The codes in a text, in the form `ATL123`.
fn written(text: &str) -> Vec<u16> {
    let parts = text.split("ATL").skip(1);
    parts.filter_map(|rest| rest.get(..3)?.parse().ok()).collect()
}

/// The codes that a line of a test mentions: `ATL123`, or a three-digit number next to the word `code`.
fn mentioned(line: &str) -> Vec<u16> {
    let mut out = written(line);
    if line.to_ascii_lowercase().contains("code") {
        let numbers = line.split(|c: char| !c.is_ascii_alphanumeric()).filter(|w| w.len() <= 3);
        out.extend(numbers.filter_map(|w| w.parse::<u16>().ok()));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::super::plant::{fails, passes};
    use super::super::tokens::tokens;
    use super::{case_rows, codes, tested};

    #[test]
    fn codes_are_found_however_they_are_given() {
        let text = "fn f() { err(101, x); Diagnostic::new(\n102, loc, m); self.error(103, l, m); Code(104); \
                    errors.push(105, at, m); fail(span, 106, m); g(\"ATL107: no\"); list.push(108); other(109, a, b); \
                    error(f(110, 1), x); Code(if a { 113 } else { 114 }); x = 115; y = (116, z) }\n\
                    errors! { E { V {} = 117, \"{a} is wrong\"; } }\n\
                    /// ATL111\n#[cfg(test)]\nmod t { fn g() { err(112, x); } }";
        let found: Vec<u16> = codes(&tokens(text)).into_iter().map(|(code, _)| code).collect();
        assert_eq!(found, [101, 102, 103, 104, 105, 106, 107, 113, 114, 117]);
    }

    #[test]
    fn an_untested_code_is_found() {
        let source = ("dsl/src/a.rs", "fn f() { err(101, x) }");
        fails(tested, &[source], "dsl/src/a.rs", "ATL101");
        fails(tested, &[source, ("dsl/tests/ui/a.stderr", "error: ATL102: no")], "dsl/src/a.rs", "ATL101");
        passes(tested, &[source, ("dsl/tests/ui/a.stderr", "error: ATL101: no")]);
        passes(tested, &[source, ("tests/cases/a.tile", "; error[ATL101]: no")]);
        let rows = "const CASES: &[Case] = &[\n(101, \"no\", f),\n(\n102,\n\"no\"), g(103, \"no\".len(), 104)];";
        assert_eq!(case_rows(&tokens(rows)), [101, 102, 103].map(|code| (code, "no".to_owned())));
        passes(tested, &[source, ("dsl/tests/a.rs", rows)]);
        fails(tested, &[source, ("dsl/tests/a.rs", "const A: (u16, u16) = (101, 0);")], "dsl/src/a.rs", "ATL101");
        let inline = "fn f() { err(101, x) }\n#[cfg(test)]\nmod t {\n fn g() { assert_eq!(d.code, Code(101)); }\n}";
        passes(tested, &[("dsl/src/a.rs", inline)]);
    }
}
