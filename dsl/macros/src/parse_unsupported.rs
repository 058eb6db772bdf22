//! Rust that is not part of the language, and what to write instead.

use crate::ast::{Called, ExprSyntax, ExprSyntaxKind};
use crate::error::{Errors, SourceRange};
use crate::names::{functions, is_reserved, is_store, written_here};
use crate::parse_tokens::{strip, type_name};
use atlas_vocabulary::{BinaryOp, DType, Update};
use proc_macro2::Ident;
use quote::ToTokens;
use syn::visit::{self, Visit};

/// Reports Rust that is not part of the language, and what to write instead.
pub(crate) fn unsupported<T>(e: &syn::Expr, errors: &mut Errors) -> Option<T> {
    let whole = SourceRange::of(e);
    if let syn::Expr::Cast(c) = e {
        let message = format!("`as` does not convert tiles; write `{}`", cast(c));
        errors.push(20, c.as_token.span, message);
        return None;
    }
    if let syn::Expr::Range(r) = e {
        let mend = span(r).map_or("`span(start, LEN)`".to_owned(), |span| format!("`{span}`"));
        let message = format!("a range has no meaning here; an axis is indexed by a coordinate, {mend} or `..`");
        errors.push(20, whole, message);
        return None;
    }
    let (place, message) = match e {
        syn::Expr::If(i) => (i.if_token.span.into(), no_if(i, errors.in_cluster)),
        syn::Expr::Match(m) => {
            (m.match_token.span.into(), "`match` cannot branch on tiles; choose with `select(cond, a, b)`")
        }
        syn::Expr::While(w) => (
            w.while_token.span.into(),
            "`while` has no bound; write `for i in lo..hi`, whose bounds may be computed or loaded, and choose with `select(cond, new, old)` what changes",
        ),
        syn::Expr::Loop(l) => (l.loop_token.span.into(), "`loop` has no bound; write `for i in lo..hi`"),
        syn::Expr::Closure(_) => (whole, "closures cannot be written in a kernel; write a `tile fn`"),
        syn::Expr::Reference(_) => (whole, "tiles are values; remove the `&`"),
        syn::Expr::Unary(_) => (whole, "tiles are values; remove the `*`"),
        syn::Expr::Break(_) => (
            whole,
            "a loop always runs to its end: give it fewer iterations by its bounds, `for i in lo..hi`, or keep what it has found with `select(done, old, new)`",
        ),
        syn::Expr::Continue(_) => (
            whole,
            "a loop's body always runs to its end: leave a value as it is with `select(cond, new, old)`, and add nothing with `select(cond, x, 0.0)`",
        ),
        syn::Expr::Return(_) => (
            whole,
            "nothing returns early: a kernel ends after its last store, and a tile or device fn in an expression without `;`; choose with `select(cond, a, b)`",
        ),
        syn::Expr::Tuple(_) => (whole, "tuples have no meaning here; bind each tile with its own `let`"),
        syn::Expr::Block(_) => (whole, "a block is no expression in a kernel; write its `let`s before it"),
        syn::Expr::Macro(m) => (whole, no_macro(&m.mac)),
        syn::Expr::ForLoop(f) => (f.for_token.span.into(), "a loop is a statement, not a value"),
        syn::Expr::Assign(_) => (whole, "an assignment is a statement, not a value; two values are compared with `==`"),
        _ => (whole, "this Rust expression has no meaning in a kernel"),
    };
    errors.push(20, place, message);
    None
}

/// `span(2, 3)` for `2..5`.
fn span(r: &syn::ExprRange) -> Option<String> {
    let number = |e: &syn::Expr| match strip(e) {
        syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Int(n), .. }) => n.base10_parse::<u64>().ok(),
        _ => None,
    };
    let (lo, hi) = (r.start.as_ref().map_or(Some(0), |e| number(e))?, number(r.end.as_ref()?)?);
    let hi = hi + u64::from(matches!(r.limits, syn::RangeLimits::Closed(_)));
    (hi > lo).then(|| format!("span({lo}, {})", hi - lo))
}

/// `x.cast::<f32>()` for `x as f32`. Types that tiles do not have become the nearest one.
fn cast(c: &syn::ExprCast) -> String {
    let x = match strip(&c.expr) {
        syn::Expr::Path(p) => p.path.get_ident().map(Ident::to_string),
        _ => None,
    };
    let to = type_name(&c.ty).map_or_else(|| "f32".to_owned(), |to| to.to_string());
    let is_whole = ["u8", "u16", "u32", "u64", "usize", "i8", "i16", "isize"].contains(&to.as_str());
    let to = if is_whole && DType::from_name(&to).is_none() { "i32" } else { &to };
    format!("{}.cast::<{to}>()", x.as_deref().unwrap_or("(..)"))
}

/// What to write instead of a macro.
pub(crate) fn no_macro(m: &syn::Macro) -> &'static str {
    let name = m.path.segments.last().map_or(String::new(), |s| s.ident.to_string());
    match name.as_str() {
        "print" | "println" | "eprint" | "eprintln" | "dbg" => {
            "macros cannot be called in a kernel; to see a value, store it to a tensor of its own"
        }
        "assert" | "assert_eq" | "assert_ne" | "debug_assert" | "debug_assert_eq" => {
            "macros cannot be called in a kernel; what holds of the sizes of dims stands before its body, as in `require { H % J == 0 }`"
        }
        _ => "macros cannot be called in a kernel",
    }
}

/// What to write instead of an `if`, by what stands in it.
fn no_if(e: &syn::ExprIf, in_cluster: bool) -> &'static str {
    #[derive(Default)]
    struct Content {
        stores: bool,
        combines: bool,
        places: bool,
        assigns: bool,
    }
    impl<'a> Visit<'a> for Content {
        fn visit_expr_call(&mut self, call: &'a syn::ExprCall) {
            let name = if let syn::Expr::Path(p) = &*call.func { p.path.get_ident() } else { None };
            let update = name.and_then(|name| Update::of_statement(&name.to_string()));
            self.stores |= update == Some(Update::Replace);
            self.combines |= update.is_some_and(Update::is_atomic);
            self.places |= update == Some(Update::Disjoint);
            visit::visit_expr_call(self, call);
        }
        fn visit_expr_assign(&mut self, e: &'a syn::ExprAssign) {
            self.assigns = true;
            visit::visit_expr_assign(self, e);
        }
        fn visit_expr_binary(&mut self, e: &'a syn::ExprBinary) {
            self.assigns |= e.op.to_token_stream().to_string().ends_with('=') && !is_comparison(&e.op);
            visit::visit_expr_binary(self, e);
        }
    }
    let mut content = Content::default();
    content.visit_expr_if(e);
    match content {
        Content { stores: true, .. } if in_cluster => {
            "a kernel has no `if`: leave it out. A `store` without the coordinate of the cluster is of a value that all its programs have, and one of them makes it. To store under another condition, choose the value: `store(y[..], select(cond, new, old))`"
        }
        Content { stores: true, .. } => {
            "a kernel has no `if`: every program stores, and where nothing changes it stores what is there: `store(y[..], select(cond, new, load(y[..])))`; for no iteration at all use the bounds of a loop"
        }
        Content { combines: true, .. } => {
            "a kernel has no `if`: every program combines, and where nothing changes with what changes nothing: `atomic_add(y[..], select(cond, value, 0.0))`; of `atomic_max` that is the least number, and of `atomic_min` the greatest"
        }
        Content { places: true, .. } => {
            "a kernel has no `if`: every program stores, and nothing is stored where a place is not valid: `store_disjoint(y[select(cond, place, -1), ..], value)`"
        }
        Content { assigns: true, .. } => {
            "a kernel has no `if`: `x = select(cond, new, x)` changes a value under a condition, and the bounds of a loop say how often it runs"
        }
        _ => "a kernel has no `if`: `select(cond, a, b)` chooses a value, the bounds of a loop how often it runs",
    }
}

fn is_comparison(op: &syn::BinOp) -> bool {
    use syn::BinOp::{Eq, Ge, Le, Ne};
    matches!(op, Eq(_) | Ge(_) | Le(_) | Ne(_))
}

/// Reports the `return` in which a tile or device fn ends, and leaves its value.
pub(crate) fn without_return(stmts: &mut Vec<syn::Stmt>, what: &str, errors: &mut Errors) {
    let Some(syn::Stmt::Expr(syn::Expr::Return(r), _)) = stmts.last() else { return };
    let place = SourceRange::of(&r.return_token);
    let value = r.expr.clone();
    let message = match &value {
        Some(_) => format!("a {what} fn ends in its result: remove the `return`, and the `;` behind it"),
        None => format!("a {what} fn ends after its last statement: remove the `return`"),
    };
    errors.push(20, place, message);
    stmts.pop();
    stmts.extend(value.map(|e| syn::Stmt::Expr(*e, None)));
}

/// What to write instead of an assignment to something that is no name.
pub(crate) fn no_place(left: &syn::Expr, op: Option<BinaryOp>) -> String {
    let syn::Expr::Index(i) = left else {
        return "only a `let mut` name can be assigned; a tensor is written with `store(y[g, n, ..], value)`"
            .to_owned();
    };
    let short = |e: &syn::Expr| {
        let text = e.to_token_stream().to_string();
        let text = text.replace(" [", "[");
        if text.len() > 20 { "..".to_owned() } else { text }
    };
    let index = match &*i.index {
        syn::Expr::Tuple(t) => t.elems.iter().map(short).collect::<Vec<_>>().join(", "),
        one => short(one),
    };
    let at = format!("{}[{index}]", short(&i.expr));
    let value = match op {
        Some(BinaryOp::Max | BinaryOp::Min) | None => "value".to_owned(),
        Some(op) => format!("load({at}) {} value", op.text()),
    };
    // A plain store has no tile of places.
    match op {
        Some(BinaryOp::Add) if index.contains("load(") => {
            return format!(
                "a place in a tensor is added to with `atomic_add({at}, value)`; only a `let mut` name can be assigned"
            );
        }
        None if index.contains("load(") => {
            return format!(
                "a place in a tensor is written with `store_disjoint({at}, value)` if no two places are the same; only a `let mut` name can be assigned"
            );
        }
        _ => {}
    }
    let meet = match op {
        Some(BinaryOp::Add) => {
            format!(". Where programs, or elements of one tile, may meet: `atomic_add({at}, value)`")
        }
        _ => String::new(),
    };
    format!("a place in a tensor is written with `store({at}, {value})`; only a `let mut` name can be assigned{meet}")
}

/// Modules in which users of other languages look for functions.
const MODULES: [&str; 11] =
    ["np", "numpy", "cp", "jnp", "jax", "tl", "triton", "torch", "libdevice", "cute", "functional"];

/// The same, where no path of Rust is meant: `F.relu(x)`. Modules of a user's own may have these names.
const DOTTED: [&str; 7] = ["F", "nn", "math", "lax", "special", "mx", "tf"];

/// True for what stands before the first dot of a function of another language.
pub(crate) fn is_dotted_module(name: &str) -> bool {
    is_module(name) || DOTTED.contains(&name)
}

/// True for the name of a module of another language.
pub(crate) fn is_module(name: &str) -> bool {
    MODULES.contains(&name)
}

/// True for the path of a built-in function, which has none, or of a function of another language.
pub(crate) fn is_foreign(of: &Called) -> bool {
    let Some(path) = &of.path else { return false };
    let first = path.segments.first().map_or(String::new(), |s| s.ident.to_string());
    let name = of.name.to_string();
    let is_known = functions().any(|f| name == f) || written_here(&name).is_some();
    // A tile fn may have the name of a function that gives way.
    is_reserved(&name) || (is_module(&first) && is_known)
}

/// The name that is called in `vjp(f)(x)`.
fn called_twice(f: &syn::Expr) -> Option<String> {
    let syn::Expr::Call(c) = strip(f) else { return None };
    let syn::Expr::Path(p) = strip(&c.func) else { return None };
    p.path.segments.last().map(|s| s.ident.to_string())
}

/// What to say of something that cannot be called.
pub(crate) fn no_callee(f: &syn::Expr) -> String {
    match called_twice(f).as_deref() {
        Some("grad" | "jvp") => {
            return "a derivative is of a function that has a name; of a derivative or a closure, write a `tile fn` that gives it".to_owned();
        }
        Some(name) => {
            return format!(
                "`{name}(..)` gives no function; derivatives are `grad(f)(x)`, and along a direction `jvp(f)(x, dx)`"
            );
        }
        None => {}
    }
    let last = match f {
        syn::Expr::Path(p) => p.path.segments.last().map(|s| s.ident.to_string()),
        _ => None,
    };
    let Some(name) = last else {
        return "only built-in functions and tile fns can be called in a kernel".to_owned();
    };
    let path = f.to_token_stream().to_string().replace(' ', "");
    if functions().any(|f| name == f) {
        let call = match name.as_str() {
            "max" | "min" => format!("{name}(x, y)"),
            "load" | "span" | "tiles" | "dot" | "select" | "full" | "iota" | "broadcast" => format!("{name}(..)"),
            name if is_store(name) => format!("{name}(..)"),
            _ => format!("{name}(x)"),
        };
        return format!("a built-in function has no path; write `{call}`");
    }
    match written_here(&name) {
        Some(written) => format!("unknown function `{path}`{written}"),
        None => format!("unknown function `{path}`: only built-in functions and tile fns can be called in a kernel"),
    }
}

/// What to write instead of a literal that is no number.
pub(crate) fn no_number(lit: &syn::Lit) -> String {
    let syn::Lit::Str(text) = lit else { return String::new() };
    let text = text.value();
    match text.trim_start_matches(['-', '+']).to_lowercase().as_str() {
        "inf" | "infinity" => "; infinity is `f32::INFINITY`".to_owned(),
        "nan" => "; write `f32::NAN`".to_owned(),
        "tf32" | "tf32x3" | "bf16x3" => format!("; a precision stands without quotes: `.precision({text})`"),
        _ => String::new(),
    }
}

/// An expression that could not be read.
pub(crate) fn bad(e: &syn::Expr) -> ExprSyntax {
    let place = SourceRange::of(e);
    ExprSyntax { kind: ExprSyntaxKind::Bad, place, token: place.start }
}
