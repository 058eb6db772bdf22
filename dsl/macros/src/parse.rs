//! From tokens to syntax, through `syn`. A mistake in one item does not affect the others.

use crate::ast::{Called, ExprSyntax, ExprSyntaxKind, Item, KernelSyntax, Mode, StmtSyntax, TileFnSyntax};
use crate::error::{Errors, SourceRange};
use crate::names::POWER;
use crate::nesting::{DEEPEST, deep_brackets, deep_expression};
use crate::parse_kernel::kernel_head;
use crate::parse_loop::for_loop;
use crate::parse_tokens::{plain_names, readable, refuse_attributes, strip, type_name, without_foreign};
use crate::parse_unsupported::{
    bad, is_foreign, no_callee, no_macro, no_number, no_place, unsupported, without_return,
};
use crate::parse_use::{called, imports, signature};
use atlas_vocabulary::{BinaryOp, Predicate};
use proc_macro2::{Delimiter, Ident, TokenStream, TokenTree};
use quote::ToTokens;
use syn::ext::IdentExt;
use syn::parse::{ParseStream, Parser};
use syn::spanned::Spanned;
use syn::{Attribute, Token, Visibility, braced, bracketed};

mod keyword {
    syn::custom_keyword!(kernel);
    syn::custom_keyword!(tile);
    syn::custom_keyword!(device);
}

/// Reads every item of the macro's input, and the path of `#![crate = path]` before them.
pub(crate) fn parse(tokens: TokenStream, errors: &mut Errors) -> (Option<syn::Path>, Vec<Item>) {
    let (mut root, mut items) = (None, Vec::new());
    if let Some((at, message)) = deep_brackets(&tokens) {
        errors.push(6, at, format!("{message}; give parts names with `let`, or a `tile fn` of their own"));
        return (root, items);
    }
    let read = |input: ParseStream<'_>| {
        root = named_crate(input)?;
        while !input.is_empty() {
            skip_consts(input, errors)?;
            if input.is_empty() {
                break;
            }
            let mut started = None;
            match item(input, errors, &mut started) {
                Ok(item) => items.push(item),
                Err(e) => {
                    report(&e, errors);
                    items.extend(started);
                    skip_item(input)?;
                }
            }
        }
        Ok(())
    };
    // What syn says at the end is of a list left in the middle by a mistake already reported.
    if let Err(e) = Parser::parse2(read, plain_names(tokens))
        && errors.count() == 0
    {
        report(&e, errors);
    }
    (root, items)
}

/// `#![crate = path]`, if the input begins with it: the path of Atlas for a crate that has Atlas through another crate.
pub(crate) fn named_crate(input: ParseStream<'_>) -> syn::Result<Option<syn::Path>> {
    if !input.peek(Token![#]) || !input.peek2(Token![!]) {
        return Ok(None);
    }
    input.parse::<Token![#]>()?;
    input.parse::<Token![!]>()?;
    let content;
    bracketed!(content in input);
    let attribute: Ident = content.call(Ident::parse_any)?;
    if attribute != "crate" {
        let message = format!("unknown attribute `{attribute}`; there is `#![crate = path::to::atlas]`");
        return Err(syn::Error::new(attribute.span(), message));
    }
    content.parse::<Token![=]>()?;
    let path = syn::Path::parse_mod_style(&content)?;
    if content.is_empty() { Ok(Some(path)) } else { Err(content.error("a path ends here")) }
}

fn report(e: &syn::Error, errors: &mut Errors) {
    for e in e.clone() {
        let mend = match e.to_string().as_str() {
            // `&` binds more strongly than a comparison.
            "comparison operators cannot be chained" => {
                "; write `0.0 < x && x < 1.0`, with `&&` and not `&` between comparisons"
            }
            _ => "",
        };
        errors.push(1, e.span(), format!("{e}{mend}"));
    }
}

/// Reports and skips consts, which a macro would not share with the rest of the module.
fn skip_consts(input: ParseStream<'_>, errors: &mut Errors) -> syn::Result<()> {
    while input.peek(Token![const]) || input.peek(Token![static]) {
        errors.push(
            1,
            input.span(),
            "a const stands outside of `atlas_kernel!`, in the module; kernels see it by its name",
        );
        while !input.is_empty() && input.parse::<Option<Token![;]>>()?.is_none() {
            input.parse::<TokenTree>()?;
        }
    }
    Ok(())
}

/// Skips the rest of a broken item: up to the next item keyword after a brace group.
fn skip_item(input: ParseStream<'_>) -> syn::Result<()> {
    let mut after_body = false;
    while !input.is_empty() {
        let starts = input.peek(keyword::kernel)
            || input.peek(keyword::tile)
            || input.peek(keyword::device)
            || input.peek(Token![pub])
            || input.peek(Token![#]);
        if after_body && starts {
            break;
        }
        let tree: TokenTree = input.parse()?;
        after_body = matches!(&tree, TokenTree::Group(g) if g.delimiter() == Delimiter::Brace);
    }
    Ok(())
}

/// Reads one item. `started` holds a kernel whose name was read, in case the rest fails.
fn item(input: ParseStream<'_>, errors: &mut Errors, started: &mut Option<Item>) -> syn::Result<Item> {
    let attrs = Attribute::parse_outer(input)?;
    let vis: Visibility = input.parse()?;
    let is_device = input.peek(keyword::device);
    if is_device || input.peek(keyword::tile) {
        input.parse::<Ident>()?;
        input.parse::<Token![fn]>()?;
        return tile_fn(input, is_device, (attrs, vis), errors).map(Item::TileFn);
    }
    if input.peek(Token![use]) {
        return imports(input, &attrs, &vis, errors).map(Item::Use);
    }
    if !input.peek(keyword::kernel) {
        return Err(input.error("expected `kernel NAME(..)`, `tile fn NAME(..)` or `device fn NAME(..)`"));
    }
    input.parse::<keyword::kernel>()?;
    if input.peek(Token![fn]) {
        errors.push(1, input.span(), "a kernel is declared without `fn`: write `kernel NAME(..)`");
        input.parse::<Token![fn]>()?;
    }
    let name: Ident = input.parse()?;
    let mut kernel = KernelSyntax {
        attrs,
        vis,
        name,
        types: vec![],
        params: vec![],
        tune: vec![],
        requires: vec![],
        body: vec![],
        broken: false,
    };
    match kernel_rest(input, &mut kernel, errors) {
        Ok(()) => Ok(Item::Kernel(kernel)),
        Err(e) => {
            kernel.broken = true;
            *started = Some(Item::Kernel(kernel));
            Err(e)
        }
    }
}

/// Reads a tile fn or a device fn from its name on.
fn tile_fn(
    input: ParseStream<'_>,
    is_device: bool,
    (attrs, vis): (Vec<Attribute>, Visibility),
    errors: &mut Errors,
) -> syn::Result<TileFnSyntax> {
    let what = if is_device { "device" } else { "tile" };
    let (before, signature) = (errors.count(), signature(input, what, errors)?);
    let mistaken = errors.count() > before;
    let (body, broken) = block(input, Some(what), errors)?;
    // The body may be a macro's `$body:block`, which is a group in a group.
    let written = signature.written;
    let tokens = [written.parse::<TokenTree>()?, written.parse::<TokenTree>()?].into_iter().collect();
    let (name, params) = (signature.name, signature.params);
    Ok(TileFnSyntax { is_device, attrs, vis, name, params, body, tokens, broken: broken || mistaken })
}

/// Reads a kernel from behind its name on.
fn kernel_rest(input: ParseStream<'_>, kernel: &mut KernelSyntax, errors: &mut Errors) -> syn::Result<()> {
    let before = errors.count();
    let conditions = kernel_head(input, kernel, errors)?;
    kernel.requires = conditions.iter().filter_map(|e| expression(e, errors)).collect();
    let mistaken = errors.count() > before;
    (kernel.body, kernel.broken) = block(input, None, errors)?;
    kernel.broken |= mistaken;
    Ok(())
}

/// Reads a body: of a kernel, or of a tile or device fn as `of` says. The flag is true if it could not be read in full.
fn block(input: ParseStream<'_>, of: Option<&str>, errors: &mut Errors) -> syn::Result<(Vec<StmtSyntax>, bool)> {
    let content;
    braced!(content in input);
    let tokens: TokenStream = content.parse()?;
    let before = errors.count();
    refuse_attributes(&tokens, errors);
    let stmts = match syn::Block::parse_within.parse2(readable(without_foreign(tokens, errors))) {
        Ok(mut stmts) => {
            if let Some(what) = of {
                without_return(&mut stmts, what, errors);
            }
            statements(&stmts, errors)
        }
        Err(e) => {
            report(&e, errors);
            Vec::new()
        }
    };
    Ok((stmts, errors.count() > before))
}

pub(crate) fn statements(stmts: &[syn::Stmt], errors: &mut Errors) -> Vec<StmtSyntax> {
    stmts.iter().filter_map(|s| statement(s, errors)).collect()
}

fn statement(stmt: &syn::Stmt, errors: &mut Errors) -> Option<StmtSyntax> {
    // A statement that a macro of the user's was given as an expression.
    if let syn::Stmt::Expr(syn::Expr::Group(g), semi) = stmt {
        return statement(&syn::Stmt::Expr((*g.expr).clone(), *semi), errors);
    }
    match stmt {
        // A `;` alone.
        syn::Stmt::Expr(syn::Expr::Verbatim(nothing), _) if nothing.is_empty() => None,
        syn::Stmt::Local(local) => {
            if let Some(init) = &local.init
                && let Some((_, other)) = &init.diverge
            {
                errors.push(20, SourceRange::of(other), "`let .. else` has no meaning in a kernel");
                return None;
            }
            // The name is known even if its value could not be read.
            let value = local.init.as_ref();
            let value = value.map(|init| expression(&init.expr, errors).unwrap_or_else(|| bad(&init.expr)));
            bound(&local.pat, value, errors)
        }
        syn::Stmt::Expr(syn::Expr::ForLoop(f), _) => for_loop(f, errors),
        syn::Stmt::Expr(syn::Expr::Assign(a), _) if matches!(ungrouped(&a.left), syn::Expr::Tuple(_)) => {
            let syn::Expr::Tuple(left) = ungrouped(&a.left) else { return None };
            let names: Vec<Option<Ident>> = left.elems.iter().map(|e| assigned(e, None, errors)).collect();
            let value = expression(&a.right, errors)?;
            Some(StmtSyntax::AssignMany { names: names.into_iter().collect::<Option<_>>()?, value })
        }
        syn::Stmt::Expr(syn::Expr::Assign(a), _) => {
            let name = assigned(&a.left, None, errors)?;
            Some(StmtSyntax::Assign { name, op: None, op_span: a.eq_token.span, value: expression(&a.right, errors)? })
        }
        syn::Stmt::Expr(syn::Expr::Binary(b), _) if compound(&b.op).is_some() => {
            let op = compound(&b.op);
            let name = assigned(&b.left, op, errors)?;
            Some(StmtSyntax::Assign { name, op, op_span: b.op.span(), value: expression(&b.right, errors)? })
        }
        syn::Stmt::Expr(e, semi) => Some(StmtSyntax::Expr { value: expression(e, errors)?, last: semi.is_none() }),
        syn::Stmt::Item(i) => {
            errors.push(
                20,
                SourceRange::of(i),
                "items are written outside of `atlas_kernel!`, in the module; kernels see a const by its name",
            );
            None
        }
        syn::Stmt::Macro(m) => {
            errors.push(20, SourceRange::of(&m.mac.path), no_macro(&m.mac));
            None
        }
    }
}

/// The names that a `let` binds: one, or one for each tile that a function gives.
fn bound(pat: &syn::Pat, value: Option<ExprSyntax>, errors: &mut Errors) -> Option<StmtSyntax> {
    let name = |pat: &syn::Pat| match pat {
        syn::Pat::Ident(p) if p.subpat.is_none() => Some((p.mutability.is_some(), p.ident.clone())),
        syn::Pat::Wild(w) => Some((false, Ident::new("_", w.underscore_token.span))),
        _ => None,
    };
    match (pat, value) {
        (syn::Pat::Ident(p), value) => {
            Some(StmtSyntax::Let { mutable: p.mutability.is_some(), name: p.ident.clone(), value })
        }
        (syn::Pat::Wild(w), Some(value)) => {
            let name = Ident::new("_", w.underscore_token.span);
            Some(StmtSyntax::Let { mutable: false, name, value: Some(value) })
        }
        (syn::Pat::Tuple(t), Some(value)) if t.elems.iter().all(|e| name(e).is_some()) => {
            Some(StmtSyntax::LetMany { names: t.elems.iter().filter_map(name).collect(), value })
        }
        // The name is known, so that its uses are no mistakes.
        (syn::Pat::Type(p), value) => {
            let message = "a `let` in a kernel has no written type: remove it; `x.cast::<f32>()` converts";
            errors.push(20, SourceRange::of(&p.ty), message);
            bound(&p.pat, value, errors)
        }
        _ => {
            let message = "a `let` in a kernel binds a name, or `(a, b)` what a function gives";
            errors.push(20, SourceRange::of(pat), message);
            None
        }
    }
}

fn compound(op: &syn::BinOp) -> Option<BinaryOp> {
    Some(match op {
        syn::BinOp::AddAssign(_) => BinaryOp::Add,
        syn::BinOp::SubAssign(_) => BinaryOp::Sub,
        syn::BinOp::MulAssign(_) => BinaryOp::Mul,
        syn::BinOp::DivAssign(_) => BinaryOp::Div,
        syn::BinOp::BitAndAssign(_) => BinaryOp::BitAnd,
        syn::BinOp::BitOrAssign(_) => BinaryOp::BitOr,
        syn::BinOp::BitXorAssign(_) => BinaryOp::BitXor,
        syn::BinOp::ShlAssign(_) => BinaryOp::Shl,
        syn::BinOp::ShrAssign(_) => BinaryOp::Shr,
        syn::BinOp::RemAssign(_) => BinaryOp::Rem,
        _ => return None,
    })
}

fn assigned(left: &syn::Expr, op: Option<BinaryOp>, errors: &mut Errors) -> Option<Ident> {
    let name = if let syn::Expr::Path(p) = ungrouped(left) { p.path.get_ident().cloned() } else { None };
    if name.is_none() {
        errors.push(20, SourceRange::of(left), no_place(ungrouped(left), op));
    }
    name
}

/// The content of the group without delimiters that a `$x:expr` of a user's macro leaves.
fn ungrouped(e: &syn::Expr) -> &syn::Expr {
    if let syn::Expr::Group(g) = e { ungrouped(&g.expr) } else { e }
}

pub(crate) fn ident_of(e: &syn::Expr) -> Option<Ident> {
    if let syn::Expr::Path(p) = strip(e) { p.path.get_ident().cloned() } else { None }
}

/// What is called, and its type arguments.
fn callee(f: &syn::Expr) -> Option<(Called, Vec<Ident>)> {
    let syn::Expr::Path(p) = ungrouped(f) else { return None };
    let last = p.path.segments.last().filter(|_| p.qself.is_none())?;
    let types = match &last.arguments {
        syn::PathArguments::AngleBracketed(a) => generics(a)?,
        _ => vec![],
    };
    Some((called(&p.path)?, types))
}

/// The name of a call without type arguments.
pub(crate) fn plain_callee(f: &syn::Expr) -> Option<Ident> {
    callee(f).filter(|(of, types)| of.path.is_none() && types.is_empty()).map(|(of, _)| of.name)
}

/// The function in `grad(f)` and `jvp(f)`.
fn derivative(f: &syn::Expr) -> Option<(Mode, Called)> {
    let syn::Expr::Call(c) = ungrouped(f) else { return None };
    let mode = Mode::named(&plain_callee(&c.func)?.to_string())?;
    let of = c.args.first().filter(|_| c.args.len() == 1)?;
    callee(strip(of)).filter(|(_, types)| types.is_empty()).map(|(of, _)| (mode, of))
}

fn generics(args: &syn::AngleBracketedGenericArguments) -> Option<Vec<Ident>> {
    let ident = |a: &syn::GenericArgument| match a {
        syn::GenericArgument::Type(ty) => type_name(ty),
        _ => None,
    };
    args.args.iter().map(ident).collect()
}

fn expressions<'a>(list: impl IntoIterator<Item = &'a syn::Expr>, errors: &mut Errors) -> Option<Vec<ExprSyntax>> {
    let read: Vec<Option<ExprSyntax>> = list.into_iter().map(|e| nested(e, errors)).collect();
    read.into_iter().collect()
}

/// The arguments of a call: expressions, or `name = value`, which `syn` reads as an assignment.
fn arguments<'a>(list: impl IntoIterator<Item = &'a syn::Expr>, errors: &mut Errors) -> Option<Vec<ExprSyntax>> {
    let argument = |e: &syn::Expr, errors: &mut Errors| match e {
        syn::Expr::Assign(a) if ident_of(&a.left).is_some() => {
            let name = ident_of(&a.left)?;
            // `keepdims = True`, which is reported where the function is known.
            let value = match &*a.right {
                right if name == "axis" => nested(right, errors)?,
                syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Bool(flag), .. }) if name == "reverse" => ExprSyntax {
                    kind: ExprSyntaxKind::Literal { value: u8::from(flag.value).into(), whole: true },
                    ..bad(&a.right)
                },
                right => bad(right),
            };
            let token = name.span();
            Some(ExprSyntax { kind: ExprSyntaxKind::Named(name, Box::new(value)), place: SourceRange::of(e), token })
        }
        e => nested(e, errors),
    };
    let read: Vec<Option<ExprSyntax>> = list.into_iter().map(|e| argument(e, errors)).collect();
    read.into_iter().collect()
}

pub(crate) fn expression(e: &syn::Expr, errors: &mut Errors) -> Option<ExprSyntax> {
    if let Some(place) = deep_expression(e) {
        let message = format!("an expression nests more than {DEEPEST} deep; give parts of it names with `let`");
        errors.push(6, place, message);
        return None;
    }
    nested(e, errors)
}

/// Reads an expression inside another one, unless it nests deeper than a stack holds.
fn nested(e: &syn::Expr, errors: &mut Errors) -> Option<ExprSyntax> {
    let place = SourceRange::of(e);
    let mut token = place.start;
    let boxed = |e: &syn::Expr, errors: &mut Errors| nested(e, errors).map(Box::new);
    let kind = match e {
        syn::Expr::Paren(p) => return nested(&p.expr, errors),
        syn::Expr::Group(g) => return nested(&g.expr, errors),
        syn::Expr::Lit(l) => literal(&l.lit, errors)?,
        syn::Expr::Path(p) => match p.path.get_ident() {
            Some(name) => ExprSyntaxKind::Name(name.clone()),
            None => ExprSyntaxKind::Path(p.clone()),
        },
        syn::Expr::Unary(u) => {
            let op = match u.op {
                syn::UnOp::Neg(_) => "-",
                syn::UnOp::Not(_) => "!",
                _ => return unsupported(e, errors),
            };
            ExprSyntaxKind::Unary(op, boxed(&u.expr, errors)?)
        }
        // `x ** 2`, as `syn` reads it.
        syn::Expr::Binary(syn::ExprBinary { left, op: op @ syn::BinOp::Mul(_), right, .. })
            if matches!(&**right, syn::Expr::Unary(syn::ExprUnary { op: syn::UnOp::Deref(_), .. })) =>
        {
            let _ = nested(left, errors);
            errors.push(20, op.span(), format!("there is no operator `**`; for a power write {POWER}"));
            return None;
        }
        syn::Expr::Binary(b) => {
            token = b.op.span();
            let spelling: String = b.op.to_token_stream().to_string();
            let (left, right) = (boxed(&b.left, errors), boxed(&b.right, errors));
            let (left, right) = (left?, right?);
            match (BinaryOp::from_text(&spelling), Predicate::from_text(&spelling)) {
                (Some(op), _) => ExprSyntaxKind::Binary(op, left, right),
                (_, Some(p)) => ExprSyntaxKind::Compare(p, left, right),
                _ => {
                    errors.push(20, b.op.span(), format!("`{spelling}` has no meaning in a kernel"));
                    return None;
                }
            }
        }
        syn::Expr::Tuple(t) if t.elems.len() > 1 => ExprSyntaxKind::Tuple(expressions(&t.elems, errors)?),
        syn::Expr::Call(c) => {
            if let Some((mode, of)) = derivative(&c.func) {
                let args = arguments(&c.args, errors)?;
                return Some(ExprSyntax { kind: ExprSyntaxKind::Derivative { mode, of, args }, place, token });
            }
            let Some((of, generics)) = callee(&c.func).filter(|(of, _)| !is_foreign(of)) else {
                errors.push(5, SourceRange::of(&c.func), no_callee(ungrouped(&c.func)));
                let _ = arguments(&c.args, errors);
                return None;
            };
            let args = arguments(&c.args, errors)?;
            if of.path.is_none() {
                ExprSyntaxKind::Call { name: of.name, generics, args }
            } else {
                token = of.name.span();
                ExprSyntaxKind::CallPath { of, generics, args }
            }
        }
        syn::Expr::MethodCall(m) => {
            token = m.method.span();
            let receiver = boxed(&m.receiver, errors);
            let args = arguments(&m.args, errors);
            let generics = match &m.turbofish {
                Some(t) => generics(t).or_else(|| {
                    errors.push(22, SourceRange::of(t), "expected an element type");
                    None
                })?,
                None => vec![],
            };
            ExprSyntaxKind::Method { receiver: receiver?, name: m.method.clone(), generics, args: args? }
        }
        syn::Expr::Index(i) => {
            let base = boxed(&i.expr, errors);
            let index = match ungrouped(&i.index) {
                syn::Expr::Tuple(t) => expressions(&t.elems, errors),
                one => nested(one, errors).map(|e| vec![e]),
            };
            ExprSyntaxKind::Index { base: base?, index: index? }
        }
        syn::Expr::Field(syn::ExprField { base, member: syn::Member::Named(name), .. }) => {
            token = name.span();
            ExprSyntaxKind::Field(boxed(base, errors)?, name.clone())
        }
        syn::Expr::Array(a) => ExprSyntaxKind::Array(expressions(&a.elems, errors)?),
        syn::Expr::Range(r) if r.start.is_none() && r.end.is_none() => ExprSyntaxKind::Whole,
        _ => return unsupported(e, errors),
    };
    Some(ExprSyntax { kind, place, token })
}

fn literal(lit: &syn::Lit, errors: &mut Errors) -> Option<ExprSyntaxKind> {
    let (value, whole, suffix) = match lit {
        syn::Lit::Int(i) => {
            // Above it a float holds some whole numbers alone.
            let exact = i.base10_digits().parse::<u64>().ok().filter(|&v| v <= 1 << 53);
            if exact.is_none() {
                errors.push(
                    2,
                    lit.span(),
                    "a whole number in a kernel is at most 2^53; pass a larger one as a parameter",
                );
            }
            (exact.map(|v| v as f64), true, i.suffix())
        }
        syn::Lit::Float(f) => {
            let finite = f.base10_parse::<f64>().ok().filter(|x| x.is_finite());
            if finite.is_none() {
                let message = format!(
                    "`{}` is beyond the largest number of any type; infinity is `f32::INFINITY`",
                    f.base10_digits()
                );
                errors.push(2, lit.span(), message);
            }
            (finite, false, f.suffix())
        }
        _ => {
            errors.push(20, lit.span(), format!("a literal in a kernel is a number{}", no_number(lit)));
            return None;
        }
    };
    if !suffix.is_empty() {
        errors.push(
            20,
            lit.span(),
            format!("a literal takes the element type of what it meets; remove the suffix `{suffix}`"),
        );
    }
    Some(ExprSyntaxKind::Literal { value: value?, whole })
}
