//! Rust source as a flat list of tokens with their lines, so that checks ignore comments and strings.

use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// The kind of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Word,
    Punct,
    Literal,
    /// The text of a doc comment.
    Doc,
    Open,
    Close,
}

/// One token.
#[derive(Clone, Debug)]
pub(crate) struct Token {
    pub(crate) kind: Kind,
    pub(crate) text: String,
    pub(crate) line: usize,
    /// True inside an item under `#[cfg(test)]`.
    pub(crate) in_test: bool,
}

/// The tokens of a source file; empty if it is not Rust.
pub(crate) fn tokens(text: &str) -> Vec<Token> {
    let mut out = Vec::new();
    if let Ok(stream) = text.parse::<TokenStream>() {
        flatten(stream, &mut out);
        mark_tests(&mut out);
    }
    out
}

fn flatten(stream: TokenStream, out: &mut Vec<Token>) {
    for tree in stream {
        let line = tree.span().start().line;
        let mut push = |kind, text: String, line| out.push(Token { kind, text, line, in_test: false });
        match tree {
            TokenTree::Ident(t) => push(Kind::Word, t.to_string(), line),
            TokenTree::Punct(t) => push(Kind::Punct, t.as_char().to_string(), line),
            TokenTree::Literal(t) => {
                let text = t.to_string();
                let doc = matches!(&out[..], [.., name, eq] if name.text == "doc" && eq.text == "=");
                out.push(Token { kind: if doc { Kind::Doc } else { Kind::Literal }, text, line, in_test: false });
            }
            TokenTree::Group(group) => {
                let (open, close) = match group.delimiter() {
                    Delimiter::Parenthesis => ("(", ")"),
                    Delimiter::Brace => ("{", "}"),
                    Delimiter::Bracket => ("[", "]"),
                    Delimiter::None => ("", ""),
                };
                push(Kind::Open, open.to_owned(), group.span_open().start().line);
                flatten(group.stream(), out);
                let line = group.span_close().start().line;
                out.push(Token { kind: Kind::Close, text: close.to_owned(), line, in_test: false });
            }
        }
    }
}

/// The index after the group that opens at `open`.
pub(crate) fn after_group(tokens: &[Token], open: usize) -> usize {
    let mut depth = 0;
    for (i, token) in tokens.iter().enumerate().skip(open) {
        match token.kind {
            Kind::Open => depth += 1,
            Kind::Close => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return i + 1;
        }
    }
    tokens.len()
}

/// True if the tokens from `at` on are `words`.
pub(crate) fn spells(tokens: &[Token], at: usize, words: &[&str]) -> bool {
    tokens.len() >= at + words.len()
        && words.iter().zip(&tokens[at..]).all(|(w, t)| t.text == *w && t.kind != Kind::Literal)
}

fn mark_tests(tokens: &mut [Token]) {
    let mut i = 0;
    while i < tokens.len() {
        if !spells(tokens, i, &["#", "[", "cfg", "("]) {
            i += 1;
            continue;
        }
        let end = after_group(tokens, i + 1);
        let names: Vec<&str> = tokens[i..end].iter().map(|t| t.text.as_str()).collect();
        if !names.contains(&"test") || names.contains(&"not") {
            i = end;
            continue;
        }
        // The item ends with its first braces, or with a semicolon outside any group.
        let mut at = end;
        while at < tokens.len() {
            if tokens[at].kind == Kind::Open {
                let braces = tokens[at].text == "{";
                at = after_group(tokens, at);
                if braces {
                    break;
                }
            } else {
                at += 1;
                if tokens[at - 1].text == ";" {
                    break;
                }
            }
        }
        tokens[i..at].iter_mut().for_each(|t| t.in_test = true);
        i = at;
    }
}

#[cfg(test)]
mod tests {
    use super::{Kind, tokens};

    #[test]
    fn comments_and_strings_are_no_words() {
        let found = tokens("//! unsafe\n/// unsafe\nfn f() { /* unsafe */ g(\"unsafe\") }");
        assert!(found.iter().all(|t| t.kind != Kind::Word || t.text != "unsafe"));
        assert_eq!(found.iter().filter(|t| t.kind == Kind::Doc).count(), 2);
        assert_eq!(found.iter().find(|t| t.text == "g").map(|t| t.line), Some(3));
    }

    #[test]
    fn items_under_cfg_test_are_marked() {
        let found = tokens(
            "#[cfg(test)]\n#[allow(x)]\nmod t { fn a() {} }\nfn b() {}\n#[cfg(not(test))]\nfn c() {}\n#[cfg(test)]\nuse d;\nfn e() {}",
        );
        let in_test = |name: &str| found.iter().find(|t| t.text == name).map(|t| t.in_test);
        assert_eq!(in_test("a"), Some(true));
        assert_eq!(in_test("b"), Some(false));
        assert_eq!(in_test("c"), Some(false));
        assert_eq!(in_test("d"), Some(true));
        assert_eq!(in_test("e"), Some(false));
    }
}
