//! Rust that is not part of the language, and what to write instead.

use crate::error::{Errors, SourceRange};
use crate::parse_type::type_name;

/// Reports Rust that is not part of the language, and what to write instead.
pub(crate) fn unsupported<T>(e: &syn::Expr, errors: &mut Errors) -> Option<T> {
    let whole = SourceRange::of(e);
    if let syn::Expr::Cast(c) = e
        && let Some(to) = type_name(&c.ty)
    {
        errors.push(20, c.as_token.span, format!("`as` does not convert tiles; write `x.cast::<{to}>()`"));
        return None;
    }
    let (place, message) = match e {
        syn::Expr::If(i) => (
            i.if_token.span.into(),
            "a kernel has no `if`: `select(cond, a, b)` chooses a value, the bounds of a loop how often it runs",
        ),
        syn::Expr::Match(m) => {
            (m.match_token.span.into(), "`match` cannot branch on tiles; choose with `select(cond, a, b)`")
        }
        syn::Expr::While(w) => (w.while_token.span.into(), "`while` has no bound; write `for i in lo..hi`"),
        syn::Expr::Loop(l) => (l.loop_token.span.into(), "`loop` has no bound; write `for i in lo..hi`"),
        syn::Expr::Closure(_) => (whole, "closures cannot be written in a kernel; write a `tile fn`"),
        syn::Expr::Cast(c) => (c.as_token.span.into(), "`as` does not convert tiles; write `x.cast::<f32>()`"),
        syn::Expr::Reference(_) => (whole, "tiles are values; remove the `&`"),
        syn::Expr::Unary(_) => (whole, "tiles are values; remove the `*`"),
        syn::Expr::Break(_) | syn::Expr::Continue(_) | syn::Expr::Return(_) => {
            (whole, "a kernel's loops always run to their end")
        }
        syn::Expr::Tuple(_) => (whole, "tuples have no meaning here; bind each tile with its own `let`"),
        syn::Expr::Block(_) => (whole, "a block is no expression in a kernel; write its `let`s before it"),
        syn::Expr::Macro(_) => (whole, "macros cannot be called in a kernel"),
        syn::Expr::ForLoop(f) => (f.for_token.span.into(), "a loop is a statement, not a value"),
        syn::Expr::Assign(_) => (whole, "an assignment is a statement, not a value"),
        syn::Expr::Range(_) => {
            (whole, "a range has no meaning here; an axis is indexed by a coordinate, `span(start, LEN)` or `..`")
        }
        _ => (whole, "this Rust expression has no meaning in a kernel"),
    };
    errors.push(20, place, message);
    None
}
