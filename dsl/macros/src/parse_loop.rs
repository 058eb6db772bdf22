//! Loops, over the grid and inside it.

use crate::ast::{AxisSyntax, ExprSyntax, RangeSyntax, StmtSyntax};
use crate::error::{Errors, SourceRange};
use crate::parse::{expression, ident_of, plain_callee, statements};
use crate::parse_tokens::strip;
use atlas_vocabulary::LoopKind;
use proc_macro2::Ident;
use quote::ToTokens;

pub(crate) fn for_loop(f: &syn::ExprForLoop, errors: &mut Errors) -> Option<StmtSyntax> {
    let place = SourceRange { start: f.for_token.span, end: SourceRange::of(&f.expr).end };
    let mut names = Vec::new();
    let mut pats = vec![&*f.pat];
    while let Some(pat) = pats.pop() {
        match pat {
            syn::Pat::Ident(p) if p.mutability.is_none() && p.subpat.is_none() => names.push(p.ident.clone()),
            syn::Pat::Wild(w) => names.push(Ident::new("_", w.underscore_token.span)),
            syn::Pat::Paren(p) => pats.push(&p.pat),
            syn::Pat::Tuple(t) => pats.extend(t.elems.iter().rev()),
            other => {
                errors.push(20, SourceRange::of(other), "a loop binds plain names, as in `for (g, n) in grid(..)`")
            }
        }
    }
    let (callee, args) = match strip(&f.expr) {
        syn::Expr::Call(c) => (plain_callee(&c.func), c.args.iter().collect::<Vec<_>>()),
        _ => (None, vec![]),
    };
    let outer = errors.in_cluster;
    errors.in_cluster |= args.iter().any(|a| is_call_of(a, "cluster"));
    let body = statements(&f.body.stmts, errors);
    errors.in_cluster = outer;
    if callee.as_ref().is_some_and(|c| c == "grid") {
        let axes: Vec<AxisSyntax> = args.iter().filter_map(|a| grid_axis(a, errors)).collect();
        return (axes.len() == args.len()).then_some(StmtSyntax::Grid { coords: names, axes, body, place });
    }
    let (kind, range) = match callee {
        Some(c) if c == "pipeline" => match args[..] {
            [inner] => (LoopKind::Pipeline, inner),
            _ => {
                let message = format!(
                    "`pipeline` takes 1 argument, found {}; how many buffers it uses is said by `tune {{ stages: [2, 3] }}`",
                    args.len()
                );
                errors.push(21, SourceRange::of(&f.expr), message);
                return None;
            }
        },
        _ => (LoopKind::Carried, &*f.expr),
    };
    let range = loop_range(range, errors)?;
    let [index] = &names[..] else {
        errors.push(
            20,
            SourceRange::of(&f.pat),
            format!("this loop counts one index, but {} names are bound", names.len()),
        );
        return None;
    };
    Some(StmtSyntax::Loop { index: index.clone(), kind, range, body, place })
}

/// True for a call of a function of that name.
fn is_call_of(e: &syn::Expr, name: &str) -> bool {
    matches!(strip(e), syn::Expr::Call(c) if plain_callee(&c.func).is_some_and(|f| f == name))
}

/// `tiles(DIM, SIZE)` as its parts, if that is what the expression is.
fn tiles(e: &syn::Expr, errors: &mut Errors) -> Option<Option<(Ident, ExprSyntax)>> {
    let syn::Expr::Call(c) = strip(e) else { return None };
    plain_callee(&c.func).filter(|name| name == "tiles")?;
    if c.args.len() != 2 {
        errors.push(
            21,
            SourceRange::of(e),
            format!("`tiles` takes 2 arguments (a dim, a tile size), found {}", c.args.len()),
        );
        return Some(None);
    }
    let Some(dim) = ident_of(&c.args[0]) else {
        let turned = match (strip(&c.args[0]), ident_of(&c.args[1])) {
            (syn::Expr::Lit(size), Some(dim)) => format!(": write `tiles({dim}, {})`", size.to_token_stream()),
            _ => String::new(),
        };
        let message = format!("the first argument of `tiles` is a dim, and the second its tile size{turned}");
        errors.push(27, SourceRange::of(&c.args[0]), message);
        return Some(None);
    };
    Some(expression(&c.args[1], errors).map(|size| (dim, size)))
}

fn grid_axis(e: &syn::Expr, errors: &mut Errors) -> Option<AxisSyntax> {
    if let Some(parts) = tiles(e, errors) {
        return parts.map(|(dim, size)| AxisSyntax::Tiles { dim, size });
    }
    if let syn::Expr::Call(c) = strip(e)
        && plain_callee(&c.func).is_some_and(|name| name == "pairs")
    {
        let parts = if c.args.len() == 1 { tiles(&c.args[0], errors) } else { None };
        if parts.is_none() {
            errors.push(26, SourceRange::of(e), "`pairs` is of tiles: `for (i, j) in grid(pairs(tiles(DIM, SIZE)))`");
        }
        return parts?.map(|(dim, size)| AxisSyntax::Pairs { dim, size });
    }
    if let syn::Expr::Call(c) = strip(e)
        && plain_callee(&c.func).is_some_and(|name| name == "cluster")
    {
        let axis = if c.args.len() == 1 { grid_axis(&c.args[0], errors) } else { None };
        let place = SourceRange::of(e);
        return match axis {
            Some(AxisSyntax::Tiles { dim, size }) => Some(AxisSyntax::Cluster { dim, size: Some(size), place }),
            Some(AxisSyntax::Points(dim)) => Some(AxisSyntax::Cluster { dim, size: None, place }),
            Some(AxisSyntax::Pairs { .. }) => {
                errors.push(
                    26,
                    place,
                    "`cluster` and `pairs` do not go together: a cluster is of one axis, and pairs are two",
                );
                None
            }
            _ => {
                let message =
                    "`cluster` is of one axis: `for (b, n) in grid(B, cluster(tiles(DIM, SIZE)))` or `cluster(DIM)`";
                errors.push(26, place, message);
                None
            }
        };
    }
    let dim = ident_of(e);
    if dim.is_none() {
        let mend = match (counted(strip(e)), number(strip(e))) {
            (Some(axis), _) => format!(": write `{axis}`"),
            (None, Some(count)) => format!(
                "; for {count} programs name a dim of that size, with `require {{ P == {count} }}` before the body, and to count to {count} in one program write `for i in 0..{count}` in the body"
            ),
            (None, None) => String::new(),
        };
        errors.push(
            26,
            SourceRange::of(e),
            format!("an axis of the grid is a dim, `tiles(DIM, SIZE)`, `pairs(tiles(DIM, SIZE))` or `cluster(..)` of one{mend}"),
        );
    }
    dim.map(AxisSyntax::Points)
}

/// The number of programs that `4` and `0..4` are meant to be.
fn number(e: &syn::Expr) -> Option<String> {
    match e {
        syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Int(n), .. }) => Some(n.base10_digits().to_owned()),
        syn::Expr::Range(r) if matches!(r.limits, syn::RangeLimits::HalfOpen(_)) => {
            let start = r.start.as_ref().map(|start| number(strip(start)));
            start.is_some_and(|start| start.as_deref() == Some("0")).then(|| number(strip(r.end.as_ref()?)))?
        }
        _ => None,
    }
}

/// The axis that counts the same programs as a number: `N / BN`, `cdiv(N, BN)`, `size(N)`, `0..N`.
fn counted(e: &syn::Expr) -> Option<String> {
    let size = |e: &syn::Expr| match strip(e) {
        syn::Expr::Lit(n) => Some(n.to_token_stream().to_string()),
        e => ident_of(e).map(|name| name.to_string()),
    };
    let dim = |e: &syn::Expr| match strip(e) {
        syn::Expr::Call(c) if plain_callee(&c.func).is_some_and(|f| f == "size") => ident_of(c.args.first()?),
        e => ident_of(e),
    };
    match e {
        syn::Expr::Binary(syn::ExprBinary { left, op: syn::BinOp::Div(_), right, .. }) => {
            Some(format!("tiles({}, {})", dim(left)?, size(right)?))
        }
        syn::Expr::MethodCall(m) if m.method == "div_ceil" => {
            Some(format!("tiles({}, {})", dim(&m.receiver)?, size(m.args.first()?)?))
        }
        syn::Expr::Call(c) => {
            let syn::Expr::Path(p) = strip(&c.func) else { return None };
            let name = p.path.segments.last()?.ident.to_string();
            match (name.as_str(), c.args.len()) {
                ("cdiv" | "ceil_div" | "div_ceil", 2) => {
                    Some(format!("tiles({}, {})", dim(&c.args[0])?, size(&c.args[1])?))
                }
                ("size" | "range", 1) => dim(&c.args[0]).map(|dim| dim.to_string()),
                _ => None,
            }
        }
        syn::Expr::Range(syn::ExprRange { start: Some(start), end: Some(end), .. }) if size(start)? == "0" => {
            dim(end).map(|dim| dim.to_string())
        }
        _ => None,
    }
}

fn loop_range(e: &syn::Expr, errors: &mut Errors) -> Option<RangeSyntax> {
    if let Some(parts) = tiles(e, errors) {
        return parts.map(|(dim, size)| RangeSyntax::Tiles { dim, size, span: SourceRange::of(e).start });
    }
    if let syn::Expr::Range(r) = strip(e)
        && let (Some(lo), Some(hi), syn::RangeLimits::HalfOpen(_)) = (&r.start, &r.end, &r.limits)
    {
        return Some(RangeSyntax::Between { lo: expression(lo, errors)?, hi: expression(hi, errors)? });
    }
    let mend = no_range(strip(e)).map_or_else(String::new, |mend| format!("; {mend}"));
    errors.push(
        20,
        SourceRange::of(e),
        format!("a loop runs over `tiles(DIM, SIZE)`, `pipeline(tiles(DIM, SIZE))` or `lo..hi`{mend}"),
    );
    None
}

/// The first number of `(lo..hi).step_by(step)`, and how many there are, if all three are written as numbers: of these, `/` does
/// not round.
fn stepped(range: &syn::Expr, step: &str) -> Option<(u64, u64)> {
    let syn::Expr::Range(r) = strip(range) else { return None };
    let number = |e: &syn::Expr| match strip(e) {
        syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Int(n), .. }) => n.base10_parse::<u64>().ok(),
        _ => None,
    };
    let (lo, hi, step) = (number(r.start.as_ref()?)?, number(r.end.as_ref()?)?, step.parse::<u64>().ok()?);
    let hi = hi + u64::from(matches!(r.limits, syn::RangeLimits::Closed(_)));
    (step > 0).then(|| (lo, hi.saturating_sub(lo).div_ceil(step)))
}

/// What to write instead of a range of another language.
fn no_range(e: &syn::Expr) -> Option<String> {
    Some(match e {
        syn::Expr::MethodCall(m) if m.method == "step_by" => {
            let step = m.args.first().map_or(String::new(), |e| e.to_token_stream().to_string());
            let step = if step.chars().all(|c| c.is_alphanumeric() || c == '_') { &step } else { "s" };
            let (lo, count) = match stepped(&m.receiver, step) {
                Some((0, count)) => (String::new(), count.to_string()),
                Some((lo, count)) => (format!("{lo} + "), count.to_string()),
                None => ("lo + ".to_owned(), format!("(hi - lo + {step} - 1) / {step}")),
            };
            format!(
                "a loop counts by 1: for steps of {step} write `for i in 0..{count}`, and `{lo}i * {step}` in its body; `tiles(DIM, {step})` counts tiles of a dim"
            )
        }
        syn::Expr::MethodCall(m) if m.method == "rev" => {
            "a loop counts upwards: `lo + hi - 1 - i` in its body counts downwards".to_owned()
        }
        syn::Expr::Range(r) if r.start.is_some() && r.end.is_some() => "`lo..=hi` is written `lo..hi + 1`".to_owned(),
        syn::Expr::Range(r) if r.start.is_none() && r.end.is_some() => "`..hi` is written `0..hi`".to_owned(),
        syn::Expr::Call(c) => {
            let syn::Expr::Path(p) = strip(&c.func) else { return None };
            let name = p.path.segments.last()?.ident.to_string();
            let is_range = ["range", "arange", "static_range", "iota"].contains(&name.as_str());
            let written = match c.args.len() {
                _ if !is_range => return None,
                1 => "0..n",
                2 => "lo..hi",
                _ => "0..(hi - lo + step - 1) / step`, and `lo + i * step` in the body",
            };
            let end = if c.args.len() > 2 { "" } else { "`" };
            format!("`{name}(..)` is written `{written}{end}")
        }
        syn::Expr::Path(p) => {
            let name = p.path.get_ident()?;
            let is_dim = name.to_string().chars().all(|c| !c.is_lowercase());
            if is_dim {
                format!("`0..size({name})` counts the elements of a dim, and `tiles({name}, SIZE)` its tiles")
            } else {
                format!("`0..{name}` counts to a number")
            }
        }
        syn::Expr::Lit(_) => "`0..n` counts to a number".to_owned(),
        _ => return None,
    })
}
