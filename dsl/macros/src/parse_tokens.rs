//! Prepares tokens for `syn`: names, indices, operators of other languages, and the groups that a user's macros leave around
//! statements, expressions and types.

use crate::error::{Errors, SourceRange};
use crate::names::SHIFT;
use proc_macro2::{Delimiter, Group, Ident, Literal, Punct, Spacing, Span, TokenStream, TokenTree};

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
    errors.push(20, SourceRange { start, end: group.span_close() }, message);
}

/// The word with which tokens begin, even if they are a `$m:meta` of a user's macro.
fn first_word(tokens: TokenStream) -> String {
    match tokens.into_iter().next() {
        Some(TokenTree::Group(group)) => first_word(group.stream()),
        Some(word) => word.to_string(),
        None => String::new(),
    }
}

/// An expression without parentheses and without the groups of a user's macros.
pub(crate) fn strip(e: &syn::Expr) -> &syn::Expr {
    match e {
        syn::Expr::Paren(p) => strip(&p.expr),
        syn::Expr::Group(g) => strip(&g.expr),
        e => e,
    }
}

/// The name of a type, even if it is a `$t:ty` of a user's macro.
pub(crate) fn type_name(ty: &syn::Type) -> Option<Ident> {
    match ty {
        syn::Type::Path(p) if p.qself.is_none() => p.path.get_ident().cloned(),
        syn::Type::Group(g) => type_name(&g.elem),
        syn::Type::Paren(p) => type_name(&p.elem),
        _ => None,
    }
}

/// The tokens without operators and words of other languages that `syn` does not read. Each is reported, and replaced by something
/// that `syn` reads, so that the rest of a body is checked too.
pub(crate) fn without_foreign(tokens: TokenStream, errors: &mut Errors) -> TokenStream {
    let all: Vec<TokenTree> = tokens.into_iter().collect();
    let (mut out, mut i) = (Vec::with_capacity(all.len()), 0);
    // The `:` that belongs to a `?`.
    let mut is_choice = false;
    while i < all.len() {
        let (before, rest) = (out.last(), &all[i..]);
        if let Some((written, width)) = foreign_word(before, rest, errors) {
            out.extend(written);
            i += width;
            continue;
        }
        let width = match rest {
            [TokenTree::Punct(a), TokenTree::Punct(b), end @ ..] if is_step(a, b) && end.first().is_none_or(is_end) => {
                let (place, op) = (SourceRange { start: a.span(), end: b.span() }, a.as_char());
                errors.push(20, place, format!("there is no operator `{op}{op}`; write `x {op}= 1`"));
                out.extend(operator(op, Some('=')));
                out.push(Literal::u8_unsuffixed(1).into());
                2
            }
            [TokenTree::Punct(p), ..] if p.as_char() == '@' => {
                errors.push(20, p.span(), "`@` has no meaning in a kernel; a matrix product is `dot(a, b)`");
                out.extend(operator('*', None));
                1
            }
            [TokenTree::Punct(p), ..] if p.as_char() == '~' => {
                errors.push(20, p.span(), "`~` has no meaning in a kernel; write `!x`");
                out.extend(operator('!', None));
                1
            }
            [TokenTree::Punct(p), ..] if p.as_char() == '?' => {
                errors.push(20, p.span(), "`?` has no meaning in a kernel; choose with `select(condition, a, b)`");
                // `x?` has nothing behind it.
                is_choice =
                    matches!(rest.get(1), Some(t) if !matches!(t, TokenTree::Punct(p) if ";,.)".contains(p.as_char())));
                out.extend(operator('+', None).filter(|_| is_choice));
                1
            }
            [TokenTree::Punct(p), ..] if is_choice && p.as_char() == ':' && p.spacing() == Spacing::Alone => {
                out.extend(operator('+', None));
                is_choice = false;
                1
            }
            [TokenTree::Punct(a), TokenTree::Punct(b), TokenTree::Punct(c), ..] if is_logical(a, b, c) => {
                let op: String = [a.as_char(), b.as_char()].into_iter().collect();
                let place = SourceRange { start: a.span(), end: c.span() };
                errors.push(20, place, format!("`{op}=` has no meaning in a kernel; write `x = x {op} ..`"));
                out.extend(operator('=', None));
                3
            }
            [TokenTree::Punct(a), TokenTree::Punct(b), TokenTree::Punct(c), ..] if is_unsigned_shift(a, b, c) => {
                let place = SourceRange { start: a.span(), end: c.span() };
                errors.push(20, place, format!("there is no operator `>>>`; write {SHIFT}"));
                out.extend(operator('>', Some('>')));
                3
            }
            [TokenTree::Group(g), ..] if is_operand(before) && adds_an_axis(g) => {
                let message = "tiles are not indexed, and `None` adds no axis: `x[:, None]` of a tile of rank 1 is the column `x.t()`, and `x[None, :]` is `x`, which broadcasts as a row";
                errors.push(20, SourceRange { start: g.span_open(), end: g.span_close() }, message);
                1
            }
            [TokenTree::Group(g), ..] => {
                let inner = if g.delimiter() == Delimiter::Bracket && is_operand(before) {
                    without_slices(g.stream(), errors)
                } else {
                    g.stream()
                };
                let mut group = Group::new(g.delimiter(), without_foreign(inner, errors));
                group.set_span(g.span());
                out.push(group.into());
                1
            }
            _ => {
                is_choice &= !matches!(&rest[0], TokenTree::Punct(p) if p.as_char() == ';');
                out.push(rest[0].clone());
                1
            }
        };
        i += width;
    }
    out.into_iter().collect()
}

/// What stands for words of other languages at the begin of some tokens, and how many tokens it replaces. They are reported.
fn foreign_word(before: Option<&TokenTree>, rest: &[TokenTree], errors: &mut Errors) -> Option<(TokenStream, usize)> {
    let word_of = |name: &str, at: &Ident| TokenStream::from(TokenTree::from(Ident::new(name, at.span())));
    Some(match rest {
        [TokenTree::Ident(word), TokenTree::Group(g), ..] if is_where(word, g) => {
            errors.push(5, word.span(), "unknown function `where`; write `select(condition, a, b)`");
            (word_of("select", word), 1)
        }
        [TokenTree::Ident(word), TokenTree::Group(g), ..]
            if word == "mod" && g.delimiter() == Delimiter::Parenthesis =>
        {
            let message = "unknown function `mod`; write `x - y * floor(x / y)`, of integers `x % y`";
            errors.push(5, word.span(), message);
            (word_of("max", word), 1)
        }
        [TokenTree::Ident(word), ..] if is_operand(before) && (word == "and" || word == "or") => {
            let op = if word == "and" { '&' } else { '|' };
            errors.push(20, word.span(), format!("`{word}` has no meaning in a kernel; write `{op}{op}`"));
            (operator(op, Some(op)).collect(), 1)
        }
        [TokenTree::Ident(word), TokenTree::Ident(_) | TokenTree::Literal(_), ..]
            if word == "not" && !is_operand(before) =>
        {
            errors.push(20, word.span(), "`not` has no meaning in a kernel; write `!condition`");
            (operator('!', None).collect(), 1)
        }
        [TokenTree::Ident(word), tail @ ..] if (word == "for" || word == "let") && bare_names(word, tail) > 1 => {
            let width = bare_names(word, tail) * 2;
            let names: TokenStream = tail[..width - 1].iter().cloned().collect();
            let written = names.to_string().replace(" ,", ",");
            let message = if word == "for" {
                format!("several coordinates stand in parentheses: write `for ({written}) in ..`")
            } else {
                format!(
                    "several names stand in parentheses: write `let ({written}) = f(..)`, where `f` gives as many tiles"
                )
            };
            errors.push(1, tail[1].span(), message);
            let together = TokenTree::from(Group::new(Delimiter::Parenthesis, names));
            ([rest[0].clone(), together].into_iter().collect(), width)
        }
        [TokenTree::Ident(word), ..] if word == "if" && is_operand(before) && chooses(rest) => {
            errors.push(20, word.span(), "`a if c else b` has no meaning in a kernel; write `select(c, a, b)`");
            (TokenStream::new(), rest.iter().position(is_end).unwrap_or(rest.len()))
        }
        [TokenTree::Ident(word), TokenTree::Ident(name), TokenTree::Punct(p), ..]
            if p.as_char() == '=' && DECLARES.iter().any(|d| word == d) =>
        {
            let message = format!("a name is bound by `let {name} = ..`, and by `let mut {name}` if it changes");
            errors.push(20, word.span(), message);
            (word_of("let", word), 1)
        }
        _ => return None,
    })
}

/// True for the indices `[:, None]` and `[np.newaxis, :]`.
fn adds_an_axis(indices: &Group) -> bool {
    let is_axis = |t: &TokenTree| matches!(t, TokenTree::Ident(word) if word == "None" || word == "newaxis");
    indices.delimiter() == Delimiter::Bracket && indices.stream().into_iter().any(|t| is_axis(&t))
}

/// Indices with `..` in place of `:`, which is reported.
fn without_slices(tokens: TokenStream, errors: &mut Errors) -> TokenStream {
    let mut out: Vec<TokenTree> = Vec::new();
    // Of the two of `::`, the second one stands alone.
    let mut is_path = false;
    // The `:` that belongs to a `?`.
    let mut is_choice = false;
    let mut dots = 0;
    for tree in tokens {
        dots = if matches!(&tree, TokenTree::Punct(p) if p.as_char() == '.') { dots + 1 } else { 0 };
        if dots == 3 {
            errors.push(20, tree.span(), "`...` has no meaning as an index; write one `..` for each whole axis");
            // `..` stands already; its second dot was to be followed by this one.
            out.pop();
            out.push(Punct::new('.', Spacing::Alone).into());
            continue;
        }
        let joint = match &tree {
            TokenTree::Punct(p) if p.as_char() == ':' => Some(p.spacing() == Spacing::Joint),
            _ => None,
        };
        is_choice |= matches!(&tree, TokenTree::Punct(p) if p.as_char() == '?');
        if joint == Some(false) && !is_path && !is_choice {
            let message = "an index has no `:`: `..` is a whole axis, a coordinate of `tiles(DIM, SIZE)` one of its tiles, and `span(start, LEN)` other elements";
            errors.push(20, tree.span(), message);
            let dots = [Punct::new('.', Spacing::Joint), Punct::new('.', Spacing::Alone)];
            out.extend(dots.map(|mut dot| {
                dot.set_span(tree.span());
                TokenTree::Punct(dot)
            }));
        } else {
            out.push(tree);
        }
        is_path = joint == Some(true);
    }
    out.into_iter().collect()
}

/// Words before a name that C and other languages declare with them.
const DECLARES: [&str; 9] = ["float", "double", "int", "half", "auto", "var", "val", "bool", "long"];

/// The number of names in `a, b in` behind `for`, and in `a, b =` behind `let`, which have no parentheses.
fn bare_names(behind: &Ident, tokens: &[TokenTree]) -> usize {
    let is_in = |t: &TokenTree| matches!(t, TokenTree::Ident(word) if word == "in");
    let is_equals = |t: &TokenTree| matches!(t, TokenTree::Punct(p) if p.as_char() == '=');
    let is_name = |t: &TokenTree| matches!(t, TokenTree::Ident(_)) && !is_in(t);
    let end = tokens.iter().position(|t| if behind == "for" { is_in(t) } else { is_equals(t) }).unwrap_or(0);
    let names = tokens[..end].iter().step_by(2);
    let commas = tokens[..end].iter().skip(1).step_by(2);
    let is_comma = |t: &TokenTree| matches!(t, TokenTree::Punct(p) if p.as_char() == ',');
    match names.clone().all(is_name) && commas.clone().all(is_comma) {
        true => names.len(),
        false => 0,
    }
}

/// True for what ends an expression.
fn is_end(tree: &TokenTree) -> bool {
    matches!(tree, TokenTree::Punct(p) if ";,".contains(p.as_char()))
}

/// `if c else b`, without braces. An `if` behind an operand also stands in a `match`.
fn chooses(tokens: &[TokenTree]) -> bool {
    let is_brace = |t: &TokenTree| matches!(t, TokenTree::Group(g) if g.delimiter() == Delimiter::Brace);
    let until = tokens.iter().take_while(|t| !is_end(t) && !is_brace(t));
    until.skip(1).any(|t| matches!(t, TokenTree::Ident(word) if word == "else"))
}

/// `++` and `--`.
fn is_step(a: &Punct, b: &Punct) -> bool {
    a.spacing() == Spacing::Joint && a.as_char() == b.as_char() && "+-".contains(a.as_char())
}

/// `where(..)`, a keyword of Rust.
fn is_where(word: &Ident, arguments: &Group) -> bool {
    word == "where" && arguments.delimiter() == Delimiter::Parenthesis
}

/// True for the last token of an operand.
fn is_operand(before: Option<&TokenTree>) -> bool {
    match before {
        Some(TokenTree::Group(g)) => g.delimiter() != Delimiter::Brace,
        Some(TokenTree::Literal(_)) => true,
        Some(TokenTree::Ident(word)) => !["in", "let", "mut", "return"].iter().any(|w| word == w),
        _ => false,
    }
}

/// `&&=` and `||=`.
fn is_logical(a: &Punct, b: &Punct, c: &Punct) -> bool {
    let joined = a.spacing() == Spacing::Joint && b.spacing() == Spacing::Joint;
    joined && matches!((a.as_char(), b.as_char(), c.as_char()), ('&', '&', '=') | ('|', '|', '='))
}

/// `>>>`
fn is_unsigned_shift(a: &Punct, b: &Punct, c: &Punct) -> bool {
    let joined = a.spacing() == Spacing::Joint && b.spacing() == Spacing::Joint;
    joined && [a, b, c].iter().all(|p| p.as_char() == '>')
}

/// An operator of one or two characters.
fn operator(first: char, second: Option<char>) -> impl Iterator<Item = TokenTree> {
    let spacing = if second.is_some() { Spacing::Joint } else { Spacing::Alone };
    let second = second.map(|c| Punct::new(c, Spacing::Alone));
    [Some(Punct::new(first, spacing)), second].into_iter().flatten().map(TokenTree::Punct)
}
