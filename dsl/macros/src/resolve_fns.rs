//! Which tile fns there are: those of the input, and those of other modules that it calls.

use crate::ast::{self, ExprSyntax, ExprSyntaxKind, Import, StmtSyntax, TileFnSyntax, conditions, path_key};
use crate::device_fn::{ends_in, mentions, results};
use crate::error::Errors;
use crate::import::{Imported, Package, calls, imports, in_statements};
use crate::names::is_reserved;
use crate::tree::{Origin, Scope, TileFn};
use proc_macro2::{Ident, Span, TokenStream};
use std::collections::BTreeMap;
use syn::Visibility;
use syn::ext::IdentExt;

/// A tile fn's name, its parameters and how many tiles it gives, known before any body is read.
pub(crate) struct FnSignature {
    pub(crate) name: Ident,
    pub(crate) params: Vec<String>,
    pub(crate) results: usize,
    /// The first of those that stand for each other under `cfg`s.
    pub(crate) group: usize,
    /// It stands under a `cfg`, as another one of its name may.
    conditional: bool,
    /// It is a device fn.
    pub(crate) is_device: bool,
}

/// A tile fn of another module, and what its body's calls mean.
pub(crate) struct Foreign {
    pub(crate) ast: TileFnSyntax,
    pub(crate) scope: Scope,
    pub(crate) origin: Origin,
}

/// All tile fns, those of the input first.
#[derive(Default)]
pub(crate) struct Signatures {
    pub(crate) list: Vec<FnSignature>,
    /// What calls of the input mean.
    pub(crate) scope: Scope,
    /// How many are of the input.
    own: usize,
}

/// True if attributes may leave out what they stand before.
fn is_conditional(attrs: &[syn::Attribute]) -> bool {
    attrs.iter().any(|a| a.path().is_ident("cfg") || a.path().is_ident("cfg_attr"))
}

impl Signatures {
    /// The tile fns of the input.
    pub(crate) fn own(&mut self, items: &[ast::Item], errors: &mut Errors) {
        for item in items {
            let ast::Item::TileFn(f) = item else { continue };
            let what = if f.is_device { "device" } else { "tile" };
            if is_reserved(&f.name.to_string()) {
                let message = format!("`{}` is a built-in function; give the {what} fn another name", f.name);
                errors.push(4, f.name.span(), message);
            }
            let results = match f.body.last() {
                _ if f.is_device => results(&f.body),
                Some(StmtSyntax::Expr { value: ExprSyntax { kind: ExprSyntaxKind::Tuple(list), .. }, last: true }) => {
                    list.len()
                }
                _ => 1,
            };
            let params = names(&f.params);
            let conditional = is_conditional(&f.attrs);
            for before in self.list.iter().filter(|s| s.name == f.name) {
                if !conditional && !before.conditional {
                    errors.push(4, f.name.span(), format!("{what} fn `{}` is defined twice", f.name));
                } else if (params.len(), results) != (before.params.len(), before.results) {
                    let message = format!(
                        "tile fn `{}` has two versions under `cfg`s, which must take as many arguments and give as many tiles",
                        f.name
                    );
                    errors.push(4, f.name.span(), message);
                }
            }
            let group = *self.scope.entry(f.name.to_string()).or_insert(self.list.len());
            let (name, is_device) = (f.name.clone(), f.is_device);
            self.list.push(FnSignature { name, params, results, group, conditional, is_device });
        }
        self.own = self.list.len();
    }

    /// The tile fns of other modules, by the paths that call them.
    pub(crate) fn foreign(&mut self, packages: Vec<(syn::Path, Option<Package>)>) -> Vec<Foreign> {
        let mut out = Vec::new();
        for (path, package) in packages {
            let Some(package) = package else { continue };
            self.scope.insert(path_key(&path), self.list.len());
            let is_through_device = package.fns.first().is_some_and(|f| f.is_device);
            let mut firsts = Vec::new();
            let mut next = self.list.len();
            for f in &package.fns {
                firsts.push(next);
                next += f.versions.len().max(1);
            }
            for (f, &group) in package.fns.into_iter().zip(&firsts) {
                let Imported { home, is_device, name, params, results, uses, mut versions } = f;
                let scope: Scope = uses.into_iter().map(|(key, i)| (key, firsts[i])).collect();
                if versions.is_empty() {
                    versions.push(without_body(&name, is_device, params.clone()));
                }
                for ast in versions {
                    let (name, params) = (name.clone(), names(&params));
                    let conditional = !is_device;
                    self.list.push(FnSignature { name, params, results, group, conditional, is_device });
                    let origin = Origin { path: path.clone(), home: home.clone(), is_through_device };
                    out.push(Foreign { ast, scope: scope.clone(), origin });
                }
            }
        }
        out
    }

    /// A device fn that ends in a call gives what that gives.
    pub(crate) fn passed_on(&mut self, items: &[ast::Item]) {
        let own = items.iter().filter_map(|item| if let ast::Item::TileFn(f) = item { Some(f) } else { None });
        let ends: Vec<(usize, usize)> = own
            .enumerate()
            .filter_map(|(i, f)| Some((i, *self.scope.get(&ends_in(f)?.key())?)))
            .filter(|&(_, called)| self.list[called].is_device || self.list[called].results > 1)
            .collect();
        // As often as one may end in the next one.
        for _ in 0..ends.len() {
            for &(i, called) in &ends {
                self.list[i].results = self.list[called].results;
            }
        }
    }

    /// The names that `use` gives to tile fns of other modules.
    pub(crate) fn imports(&mut self, items: &[ast::Item], errors: &mut Errors) {
        let called = calls(items);
        let mut names: Vec<&Ident> = Vec::new();
        for Import { name, path } in imports(items) {
            if is_reserved(&name.to_string()) {
                let message =
                    format!("`{name}` is a built-in function; import the tile fn under another name, by `as`");
                errors.push(4, name.span(), message);
            } else if self.list[..self.own].iter().any(|f| f.name == *name) || names.contains(&name) {
                errors.push(4, name.span(), format!("tile fn `{name}` is defined twice"));
            } else if !called.iter().any(|c| c.path.is_none() && c.name == *name) {
                errors.push(24, name.span(), format!("`{name}` is imported, but never called; remove it"));
            } else if let Some(&first) = self.scope.get(&path_key(path)) {
                self.scope.insert(name.to_string(), first);
            }
            names.push(name);
        }
    }
}

fn names(params: &[Ident]) -> Vec<String> {
    params.iter().map(|p| p.unraw().to_string()).collect()
}

/// A tile fn that has a mistake where it is declared.
fn without_body(name: &Ident, is_device: bool, params: Vec<Ident>) -> TileFnSyntax {
    let (vis, tokens) = (Visibility::Inherited, TokenStream::new());
    TileFnSyntax { is_device, attrs: vec![], vis, name: name.clone(), params, body: vec![], tokens, broken: true }
}

/// Reports tile fns that call themselves.
pub(crate) fn report_recursion(fns: &mut [TileFn], errors: &mut Errors) {
    for i in 0..fns.len() {
        if let Some((span, through)) = recursion(fns, i) {
            let name = &fns[i].ast.name;
            let what = if fns[i].ast.is_device { "device" } else { "tile" };
            let how = if through == i { String::new() } else { format!(" through `{}`", fns[through].ast.name) };
            errors.push(
                29,
                span,
                format!("{what} fn `{name}` calls itself{how}; {what} fns are inlined, so they cannot recurse"),
            );
            fns[i].broken = true;
        }
    }
}

/// Where a tile fn calls itself, if it does, and the first fn on the way.
fn recursion(fns: &[TileFn], start: usize) -> Option<(Span, usize)> {
    fns[start].calls.iter().copied().find_map(|(first, span)| {
        let (mut todo, mut seen) = (vec![first], vec![false; fns.len()]);
        while let Some(i) = todo.pop() {
            if i == start {
                return Some((span, first));
            }
            // Those of other modules do not call any of this input.
            let Some(f) = fns.get(i) else { continue };
            if !std::mem::replace(&mut seen[i], true) {
                todo.extend(f.calls.iter().map(|c| c.0));
            }
        }
        None
    })
}

/// A device fn as it is declared. What it computes is resolved at each call.
pub(crate) fn declared(
    ast: TileFnSyntax,
    index: usize,
    fns: &Signatures,
    scope: &Scope,
    errors: &mut Errors,
) -> TileFn {
    let before = errors.count();
    let (name, signature) = (&ast.name, &fns.list[index]);
    for (i, p) in ast.params.iter().enumerate() {
        if ast.params[..i].contains(p) {
            errors.push(4, p.span(), format!("parameter `{p}` of `{name}` is declared twice"));
        } else if !ast.broken && !mentions(&ast.tokens, p) {
            errors.push(24, p.span(), format!("parameter `{p}` is never used"));
        }
    }
    if conditions(&ast.attrs).next().is_some() {
        errors.push(20, name.span(), "a device fn does not stand under `cfg`; take a const as an argument instead");
    }
    let (mut called, mut uses, mut calls) = (Vec::new(), BTreeMap::new(), Vec::new());
    in_statements(&ast.body, &mut called);
    for of in called {
        let key = of.key();
        let Some(&first) = scope.get(&key) else { continue };
        uses.insert(key, first);
        let group = fns.list[first].group;
        calls.extend((0..fns.list.len()).filter(|&i| fns.list[i].group == group).map(|i| (i, of.name.span())));
    }
    let (results, group) = (signature.results, signature.group);
    let broken = ast.broken || errors.count() > before;
    let scope = scope.clone();
    TileFn { ast, locals: vec![], body: vec![], tail: vec![], results, calls, uses, scope, group, origin: None, broken }
}
