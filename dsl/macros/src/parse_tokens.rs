//! Prepares tokens for `syn`: names, indices, and the groups that a user's macros leave around statements.

use crate::error::Errors;
use proc_macro2::{Delimiter, Group, Ident, Span, TokenStream, TokenTree};

/// Writes `r#x` as `x`, which is the same name, except for words such as `r#type` that are keywords otherwise.
pub(crate) fn plain_names(tokens: TokenStream) -> TokenStream {
    if !has_raw_names(&tokens) {
        return tokens;
    }
    tokens
        .into_iter()
        .map(|tree| match tree {
            TokenTree::Ident(name) => TokenTree::Ident(plain_name(&name).unwrap_or(name)),
            TokenTree::Group(group) if has_raw_names(&group.stream()) => {
                let inner = plain_names(group.stream());
                rebuilt(&group, inner)
            }
            other => other,
        })
        .collect()
}

fn has_raw_names(tokens: &TokenStream) -> bool {
    tokens.clone().into_iter().any(|tree| match tree {
        TokenTree::Ident(name) => plain_name(&name).is_some(),
        TokenTree::Group(group) => has_raw_names(&group.stream()),
        _ => false,
    })
}

/// `x` of `r#x`, if `x` is a name too. `gen` is a keyword since Rust 2024, which `syn` does not know.
fn plain_name(name: &Ident) -> Option<Ident> {
    let text = name.to_string();
    let plain = text.strip_prefix("r#").filter(|plain| *plain != "gen")?;
    syn::parse_str::<Ident>(plain).is_ok().then(|| Ident::new(plain, name.span()))
}

/// A group with other tokens in it.
fn rebuilt(group: &Group, inner: TokenStream) -> TokenTree {
    let mut rebuilt = Group::new(group.delimiter(), inner);
    rebuilt.set_span(group.span());
    TokenTree::Group(rebuilt)
}

/// A body as `syn` can read it.
///
/// `x[g, n, ..]`, which is no Rust expression, becomes `x[(g, n, ..)]`. A `$s:stmt` of a user's macro comes in a group without
/// delimiters, in which `syn` only accepts expressions. So a `let` and a lone `;` are taken out of the group.
pub(crate) fn readable(tokens: TokenStream) -> TokenStream {
    let mut out: Vec<TokenTree> = Vec::new();
    for tree in tokens {
        let TokenTree::Group(group) = tree else {
            out.push(tree);
            continue;
        };
        let after_operand = match out.last() {
            Some(TokenTree::Ident(i)) => {
                !matches!(i.to_string().as_str(), "in" | "return" | "else" | "match" | "if" | "mut")
            }
            Some(TokenTree::Group(g)) => g.delimiter() != Delimiter::Brace,
            _ => false,
        };
        let mut inner = readable(group.stream());
        if group.delimiter() == Delimiter::None && is_statement(&inner) {
            out.extend(inner);
            continue;
        }
        let comma = |t: &TokenTree| matches!(t, TokenTree::Punct(p) if p.as_char() == ',');
        if group.delimiter() == Delimiter::Bracket && after_operand && inner.clone().into_iter().any(|t| comma(&t)) {
            let mut tuple = Group::new(Delimiter::Parenthesis, inner);
            tuple.set_span(group.span());
            inner = TokenTree::Group(tuple).into();
        }
        out.push(rebuilt(&group, inner));
    }
    out.into_iter().collect()
}

/// True for tokens that are certainly a statement and not an expression.
fn is_statement(tokens: &TokenStream) -> bool {
    match tokens.clone().into_iter().next() {
        Some(TokenTree::Ident(first)) => first == "let",
        Some(TokenTree::Punct(first)) => first.as_char() == ';',
        _ => false,
    }
}

/// Reports every attribute. A kernel's statements are checked as a whole: a statement that a `cfg` leaves out would still be
/// checked and counted.
pub(crate) fn refuse_attributes(tokens: &TokenStream, errors: &mut Errors) {
    let mut hash: Option<Span> = None;
    for tree in tokens.clone() {
        match tree {
            TokenTree::Punct(p) if p.as_char() == '#' => hash = Some(p.span()),
            TokenTree::Punct(p) if p.as_char() == '!' && hash.is_some() => {}
            TokenTree::Group(group) => {
                if let Some(start) = hash.take()
                    && group.delimiter() == Delimiter::Bracket
                {
                    refuse_attribute(start, &group, errors);
                }
                refuse_attributes(&group.stream(), errors);
            }
            _ => hash = None,
        }
    }
}

fn refuse_attribute(start: Span, group: &Group, errors: &mut Errors) {
    let name = first_word(group.stream());
    let message = match name.as_str() {
        "doc" => {
            "what a statement does is said behind `//`; documentation stands before a kernel or a tile fn".to_owned()
        }
        "cfg" | "cfg_attr" => format!(
            "`{name}` has no meaning on part of a kernel: write two kernels or tile fns, each with its `#[cfg(..)]`, or choose by a const, as in `select(FLAG == 1, a, b)` with `const FLAG: u32 = cfg!(..) as u32;`"
        ),
        _ => format!("`{name}` has no meaning on part of a kernel; write it before the kernel or the tile fn"),
    };
    errors.push(20, crate::error::SourceRange { start, end: group.span_close() }, message);
}

/// The word with which tokens begin, even if they are a `$m:meta` of a user's macro.
fn first_word(tokens: TokenStream) -> String {
    match tokens.into_iter().next() {
        Some(TokenTree::Group(group)) => first_word(group.stream()),
        Some(word) => word.to_string(),
        None => String::new(),
    }
}
