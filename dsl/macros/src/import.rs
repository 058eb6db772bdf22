//! Tile fns of other modules: which of them an input calls, and how their text comes to it.
//!
//! A macro sees its own tokens alone. So beside each tile fn stands a `macro_rules!` of the same name (`share` emits it),
//! which goes where the function goes: through `use`, `pub use` and other crates. An input that calls such functions
//! becomes a call of the first one's macro, which calls `atlas_kernel_with!` with the function's text and the input; that
//! becomes a call of the second one's; and so on, until all texts are there. They are checked at each call like those of
//! functions of the input itself. What is emitted calls the function, whose consts and helpers Rust resolves where it stands.

use crate::ast::{Called, ExprSyntax, ExprSyntaxKind, Import, Item, RangeSyntax, StmtSyntax, TileFnSyntax, path_key};
use crate::error::Errors;
use crate::parse::parse;
use proc_macro2::{Group, Ident, TokenStream};
use quote::quote;
use std::collections::{BTreeMap, BTreeSet};
use syn::parse::{Parse, ParseStream, Parser};
use syn::{LitInt, LitStr, Token, braced, bracketed, parenthesized};

/// A tile fn of another module with those that it calls, itself first.
pub(crate) struct Package {
    pub(crate) fns: Vec<Imported>,
}

/// One of them.
pub(crate) struct Imported {
    /// Names the input that declares it.
    pub(crate) home: String,
    /// It is a device fn.
    pub(crate) is_device: bool,
    pub(crate) name: Ident,
    pub(crate) params: Vec<Ident>,
    pub(crate) results: usize,
    /// What its body calls, as indices into the package.
    pub(crate) uses: BTreeMap<String, usize>,
    /// Those under `cfg`s; none if it has mistakes.
    pub(crate) versions: Vec<TileFnSyntax>,
}

/// What an input to `atlas_kernel_with!` holds.
pub(crate) struct Step {
    pub(crate) packages: Vec<TokenStream>,
    pub(crate) input: TokenStream,
}

impl Parse for Step {
    fn parse(input: ParseStream<'_>) -> syn::Result<Step> {
        let group = |input: ParseStream<'_>| input.parse::<Group>().map(|g| g.stream());
        let newest = group(input)?;
        let before;
        braced!(before in input);
        let mut packages = Vec::new();
        while !before.is_empty() {
            packages.push(group(&before)?);
        }
        packages.push(newest);
        Ok(Step { packages, input: group(input)? })
    }
}

/// Calls the macro of a tile fn, which calls `with` with its text.
pub(crate) fn fetch(
    path: &syn::Path,
    with: &TokenStream,
    packages: &[TokenStream],
    input: &TokenStream,
) -> TokenStream {
    quote!(#path! { { #with } { #({ #packages })* } { #input } })
}

/// The paths of all functions of other modules that are called, each once.
pub(crate) fn wanted(items: &[Item]) -> Vec<syn::Path> {
    let mut seen = BTreeSet::new();
    let mut out = Vec::new();
    for of in calls(items) {
        let imported = imports(items).find(|i| of.path.is_none() && i.name == of.name);
        if let Some(path) = of.path.or_else(|| imported.map(|i| i.path.clone()))
            && seen.insert(path_key(&path))
        {
            out.push(path);
        }
    }
    out
}

pub(crate) fn imports(items: &[Item]) -> impl Iterator<Item = &Import> {
    items.iter().flat_map(|item| if let Item::Use(list) = item { &list[..] } else { &[] })
}

/// Everything that bodies call.
pub(crate) fn calls(items: &[Item]) -> Vec<Called> {
    let mut out = Vec::new();
    for item in items {
        match item {
            Item::TileFn(f) => in_statements(&f.body, &mut out),
            Item::Kernel(k) => in_statements(&k.body, &mut out),
            Item::Use(_) => {}
        }
    }
    out
}

/// What statements call.
pub(crate) fn in_statements(stmts: &[StmtSyntax], out: &mut Vec<Called>) {
    for stmt in stmts {
        match stmt {
            StmtSyntax::Let { value, .. } => in_expressions(value, out),
            StmtSyntax::LetMany { value, .. }
            | StmtSyntax::AssignMany { value, .. }
            | StmtSyntax::Assign { value, .. }
            | StmtSyntax::Expr { value, .. } => in_expressions([value], out),
            StmtSyntax::Grid { body, .. } => in_statements(body, out),
            StmtSyntax::Loop { range, body, .. } => {
                if let RangeSyntax::Between { lo, hi } = range {
                    in_expressions([lo, hi], out);
                }
                in_statements(body, out);
            }
        }
    }
}

fn in_expressions<'a>(list: impl IntoIterator<Item = &'a ExprSyntax>, out: &mut Vec<Called>) {
    for e in list {
        match &e.kind {
            ExprSyntaxKind::Call { name, args, .. } => {
                out.push(Called::named(name));
                in_expressions(args, out);
            }
            ExprSyntaxKind::CallPath { of, args, .. } | ExprSyntaxKind::Derivative { of, args, .. } => {
                out.push(of.clone());
                in_expressions(args, out);
            }
            ExprSyntaxKind::Unary(_, x) | ExprSyntaxKind::Named(_, x) | ExprSyntaxKind::Field(x, _) => {
                in_expressions([&**x], out)
            }
            ExprSyntaxKind::Binary(_, a, b) | ExprSyntaxKind::Compare(_, a, b) => in_expressions([&**a, &**b], out),
            ExprSyntaxKind::Tuple(list) | ExprSyntaxKind::Array(list) => in_expressions(list, out),
            ExprSyntaxKind::Method { receiver, args, .. } => {
                in_expressions(std::iter::once(&**receiver).chain(args), out)
            }
            ExprSyntaxKind::Index { base, index } => in_expressions(std::iter::once(&**base).chain(index), out),
            ExprSyntaxKind::Literal { .. }
            | ExprSyntaxKind::Name(_)
            | ExprSyntaxKind::Path(_)
            | ExprSyntaxKind::Bad
            | ExprSyntaxKind::Whole => {}
        }
    }
}

/// The text of a tile fn as its macro hands it over. `None` for what another macro hands over.
pub(crate) fn read(package: TokenStream) -> Option<Package> {
    let all = |input: ParseStream<'_>| {
        let mut fns = Vec::new();
        while !input.is_empty() {
            fns.push(input.parse()?);
        }
        Ok(fns)
    };
    let fns: Vec<Imported> = all.parse2(package).ok()?;
    let is_whole = !fns.is_empty() && fns.iter().flat_map(|f| f.uses.values()).all(|&i| i < fns.len());
    is_whole.then_some(Package { fns })
}

/// `["home" tile name (x, y) 1 ["helper" 1] { tile fn name(x, y) { .. } }]`
impl Parse for Imported {
    fn parse(input: ParseStream<'_>) -> syn::Result<Imported> {
        let all;
        bracketed!(all in input);
        let home = all.parse::<LitStr>()?.value();
        let is_device = all.parse::<Ident>()? == "device";
        let name = all.parse()?;
        let params;
        parenthesized!(params in all);
        let params = params.parse_terminated(Ident::parse, Token![,])?.into_iter().collect();
        let results = all.parse::<LitInt>()?.base10_parse()?;
        let (called, bodies);
        bracketed!(called in all);
        let mut uses = BTreeMap::new();
        while !called.is_empty() {
            uses.insert(called.parse::<LitStr>()?.value(), called.parse::<LitInt>()?.base10_parse()?);
        }
        braced!(bodies in all);
        // Where it is declared its mistakes were reported.
        let (_, items) = parse(bodies.parse()?, &mut Errors::default());
        let versions = items.into_iter().filter_map(|i| if let Item::TileFn(f) = i { Some(f) } else { None }).collect();
        Ok(Imported { home, is_device, name, params, results, uses, versions })
    }
}
