//! The nesting depth of source, found without recursion. Source that might overflow the compiler's stack is refused.

use crate::error::SourceRange;
use proc_macro2::{Delimiter, Span, TokenStream, TokenTree};

/// The deepest nesting of an expression. A sum nests as deep as it has terms.
pub(crate) const DEEPEST: usize = 300;
/// The deepest nesting of brackets, and the most signs before a term: `syn` reads these by recursion.
const DEEPEST_BRACKETS: usize = 200;

/// The location where brackets or signs nest too deep, and what to do about it.
pub(crate) fn deep_brackets(tokens: &TokenStream) -> Option<(Span, String)> {
    let mut open = vec![tokens.clone().into_iter()];
    let mut signs = 0;
    while let Some(tokens) = open.last_mut() {
        match tokens.next() {
            Some(TokenTree::Group(group)) => {
                if open.len() > DEEPEST_BRACKETS {
                    let loop_or_part = match group.delimiter() {
                        Delimiter::Brace => "blocks",
                        _ => "brackets",
                    };
                    let message = format!("{loop_or_part} stand in each other more than {DEEPEST_BRACKETS} deep");
                    return Some((group.span_open(), message));
                }
                signs = 0;
                open.push(group.stream().into_iter());
            }
            Some(TokenTree::Punct(p)) if matches!(p.as_char(), '-' | '!' | '*' | '&') => {
                signs += 1;
                if signs > DEEPEST_BRACKETS {
                    let message = format!("more than {DEEPEST_BRACKETS} signs stand before one term");
                    return Some((p.span(), message));
                }
            }
            Some(_) => signs = 0,
            None => _ = open.pop(),
        }
    }
    None
}

/// The location where an expression nests deeper than [`DEEPEST`], if it does.
pub(crate) fn deep_expression(e: &syn::Expr) -> Option<SourceRange> {
    let mut open = vec![(e, 1)];
    while let Some((e, depth)) = open.pop() {
        if depth > DEEPEST {
            return Some(SourceRange::of(e));
        }
        open.extend(parts(e).into_iter().map(|part| (part, depth + 1)));
    }
    None
}

/// The operands of an expression.
fn parts(e: &syn::Expr) -> Vec<&syn::Expr> {
    match e {
        syn::Expr::Paren(p) => vec![&p.expr],
        syn::Expr::Group(g) => vec![&g.expr],
        syn::Expr::Unary(u) => vec![&u.expr],
        syn::Expr::Binary(b) => vec![&b.left, &b.right],
        syn::Expr::Assign(a) => vec![&a.left, &a.right],
        syn::Expr::Tuple(t) => t.elems.iter().collect(),
        syn::Expr::Array(a) => a.elems.iter().collect(),
        syn::Expr::Call(c) => c.args.iter().collect(),
        syn::Expr::MethodCall(m) => std::iter::once(&*m.receiver).chain(&m.args).collect(),
        syn::Expr::Index(i) => vec![&i.expr, &i.index],
        syn::Expr::Range(r) => [&r.start, &r.end].into_iter().flatten().map(|e| &**e).collect(),
        // What else there is has no meaning in a kernel.
        _ => vec![],
    }
}
