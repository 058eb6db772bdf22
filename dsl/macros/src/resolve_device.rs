//! Device functions: inlined where they are called, as statements of the kernel.

use crate::ast::{ExprSyntax, ExprSyntaxKind, StmtSyntax, TileFnSyntax};
use crate::device_fn::{Alias, Frame, called};
use crate::error::{Errors, SourceRange};
use crate::parse::parse;
use crate::parse_use::PRIMITIVES;
use crate::resolve::{LocalNames, Resolver};
use crate::resolve_expr::{const_path, is_const_name};
use crate::signature::is_upper;
use crate::tree::{Expr, ExprKind, Extent, Local, LocalId, LocalKind, Scope, Stmt, TileFn};
use proc_macro2::{Group, Ident, Span, TokenStream, TokenTree};
use quote::{ToTokens, quote};
use std::collections::BTreeMap;
use syn::ExprPath;

/// The most calls of device fns in a kernel, with those in what is called. Each is written out, and each of these may call others.
const MOST_CALLS: usize = 4096;

/// The last expression of a device fn.
enum Tail {
    /// What it computes.
    Values(Vec<Expr>),
    /// The results of the device fn that it calls, which have names already.
    Given(Vec<Expr>),
}

/// Whether an upper-case parameter may be given this.
fn may_be_size(arg: &ExprSyntax) -> bool {
    match &arg.kind {
        ExprSyntaxKind::Literal { value, whole } => *whole && *value >= 1.0,
        ExprSyntaxKind::Name(name) => is_const_name(name),
        ExprSyntaxKind::Path(_) | ExprSyntaxKind::Binary(..) => true,
        _ => false,
    }
}

/// The same tokens, all at one place.
fn placed(tokens: TokenStream, span: Span) -> TokenStream {
    let one = |mut tree: TokenTree| {
        if let TokenTree::Group(group) = tree {
            tree = Group::new(group.delimiter(), placed(group.stream(), span)).into();
        }
        tree.set_span(span);
        tree
    };
    tokens.into_iter().map(one).collect()
}

/// A device fn of another module as if it stood where it is called: its own lines are of another file.
fn at_the_call(f: &TileFn, span: Span) -> Option<TileFnSyntax> {
    let (name, tokens) = (&f.ast.name, placed(f.ast.tokens.clone(), span));
    let (_, items) = parse(quote!(device fn #name #tokens), &mut Errors::default());
    items.into_iter().find_map(|item| if let crate::ast::Item::TileFn(f) = item { Some(f) } else { None })
}

impl<'a> Resolver<'a> {
    /// The device fn that an expression calls, with its arguments.
    pub(crate) fn device_call<'e>(&mut self, e: &'e ExprSyntax) -> Option<(usize, Ident, &'e [ExprSyntax])> {
        let (of, generics, args) = called(e)?;
        let &index = self.scope.get(&of.key())?;
        if !self.fns[index].is_device {
            return None;
        }
        self.called(&of);
        let _ = self.needless_types(&of.name, generics);
        Some((index, of.name, args))
    }

    /// Appends the statements of a device fn, and returns the tiles that it gives, as many as are `wanted`.
    pub(crate) fn inline(
        &mut self,
        e: &ExprSyntax,
        (index, name, args): (usize, Ident, &[ExprSyntax]),
        wanted: usize,
        out: &mut Vec<Stmt>,
    ) -> Option<Vec<Expr>> {
        if self.kernel.is_none() {
            self.no_device_call(&name, e.place);
            return None;
        }
        let (params, results) = (self.fns[index].params.clone(), self.fns[index].results);
        self.arity(e, args, &name, &params.iter().map(String::as_str).collect::<Vec<_>>())?;
        let device = self.device;
        let is_open = self.frames.iter().any(|f| f.index == index);
        let Some(f) = device.get(index).filter(|f| !f.broken && !is_open) else {
            // Where it is declared, this was reported.
            self.lacks_a_body = true;
            return None;
        };
        if results != wanted {
            let tiles = |n: usize| match n {
                0 => "no tile".to_owned(),
                1 => "1 tile".to_owned(),
                n => format!("{n} tiles"),
            };
            let what = match wanted {
                0 => "nothing takes them here: bind them with `let`, or drop them with `let _ = ..`".to_owned(),
                n => format!("{} wanted here", if n == 1 { "one is".to_owned() } else { format!("{n} are") }),
            };
            self.errors.push(21, e.place, format!("`{name}` gives {}, and {what}", tiles(results)));
            return None;
        }
        self.inlined += 1;
        if self.inlined > MOST_CALLS {
            if self.inlined == MOST_CALLS + 1 {
                let message = format!("this kernel has more than {MOST_CALLS} calls of device fns; call them in loops");
                self.errors.push(6, e.place, message);
            }
            return None;
        }
        let respanned;
        let ast = match &f.origin {
            None => &f.ast,
            Some(_) => {
                respanned = at_the_call(f, name.span())?;
                &respanned
            }
        };
        let (mut body, mut aliases, mut values) = (Vec::new(), BTreeMap::new(), Vec::new());
        for (param, arg) in ast.params.iter().zip(args) {
            match self.alias(param, arg)? {
                Some(alias) => _ = aliases.insert(param.to_string(), alias),
                None => values.push((param, self.expr(arg))),
            }
        }
        let list: Vec<String> = ast.params.iter().zip(args).map(|(p, a)| format!("{p}: {}", self.text_of(a))).collect();
        let given = if list.is_empty() { "nothing".to_owned() } else { list.join(", ") };
        let call = format!("`{name}` called with {given}");
        let mut tensors = BTreeMap::new();
        for (param, alias) in &aliases {
            if let Alias::Tensor(i) = alias {
                tensors.insert(*i, param.clone());
            }
        }
        let frame = Frame { index, name, aliases, is_foreign: f.origin.is_some() };
        let outer_call = self.errors.inside.replace(call.clone());
        let outer = self.enter(frame, &f.scope);
        for (param, value) in values {
            let local = self.bind(param, LocalKind::FnParam);
            self.locals[local].used = true;
            body.push(Stmt::Let { local, value });
        }
        let first = self.locals.len();
        let (last, before) = match (results, ast.body.split_last()) {
            (1.., Some((StmtSyntax::Expr { value, .. }, before))) => (Some(value), before),
            _ => (None, &ast.body[..]),
        };
        body.extend(self.block(before));
        let tail = self.tail(f, last, results, &mut body);
        if f.origin.is_some() {
            // Where it is declared, its author sees what is not used.
            self.locals[first..].iter_mut().for_each(|l| (l.used, l.assigned) = (true, true));
        }
        self.leave(outer);
        self.errors.inside = outer_call;
        let given = tail.map(|tail| self.given(e, f, tail, &mut body));
        out.push(Stmt::Inlined { call, tensors, body });
        given
    }

    /// What a device fn ends in.
    fn tail(&mut self, f: &TileFn, last: Option<&ExprSyntax>, results: usize, body: &mut Vec<Stmt>) -> Option<Tail> {
        let Some(last) = last else { return Some(Tail::Values(vec![])) };
        if let Some(call) = self.device_call(last) {
            return self.inline(last, call, results, body).map(Tail::Given);
        }
        Some(Tail::Values(match &last.kind {
            ExprSyntaxKind::Tuple(list) => list.iter().map(|e| self.expr(e)).collect(),
            _ if results > 1 => {
                let call = self.call_of_many(last, results)?;
                let locals: Vec<_> = (0..results).map(|_| self.unnamed(f)).collect();
                let values = locals
                    .iter()
                    .map(|&l| Expr { kind: ExprKind::Local(l), place: last.place, token: last.token })
                    .collect();
                body.push(Stmt::Many { locals, binds: true, call });
                return Some(Tail::Given(values));
            }
            _ => vec![self.expr(last)],
        }))
    }

    /// A local that no name of the body's means. In messages it has the name of the device fn whose result it is.
    fn unnamed(&mut self, f: &TileFn) -> LocalId {
        let (name, kind) = (f.ast.name.clone(), LocalKind::Let { mutable: false });
        self.locals.push(Local { name, kind, used: true, assigned: false, hides: None, along: None });
        self.locals.len() - 1
    }

    /// The results of a call, as names that no text means: a mistake in what is done with them is one of the call's statement.
    fn given(&mut self, e: &ExprSyntax, f: &TileFn, tail: Tail, body: &mut Vec<Stmt>) -> Vec<Expr> {
        let here = |kind| Expr { kind, place: e.place, token: e.token };
        let values = match tail {
            Tail::Given(names) => return names.into_iter().map(|name| here(name.kind)).collect(),
            Tail::Values(values) => values,
        };
        let mut names = Vec::new();
        for value in values {
            let local = self.unnamed(f);
            body.push(Stmt::Let { local, value });
            names.push(here(ExprKind::Local(local)));
        }
        names
    }

    /// Reports a device fn that a tile fn calls.
    pub(crate) fn no_device_call(&mut self, name: &Ident, place: SourceRange) {
        let message = format!(
            "`{name}` is a device fn, and a tile fn calls none: call it in the kernel, or make this a device fn"
        );
        self.errors.push(20, place, message);
    }

    /// What to say of a name that stands for no dim in a device fn.
    pub(crate) fn no_dim_given(&self, name: &Ident) -> Option<String> {
        let (frame, given) = (self.frame()?, self.size_given(name).is_some());
        let of = &frame.name;
        Some(match given {
            true => format!("`{name}` of `{of}` has to be a dim, and the call gives it a tile size or a number"),
            false if !is_upper(name) => {
                format!("`{name}` is lower-case, and a dim is an upper-case parameter of `{of}`")
            }
            false => format!("`{of}` has no parameter `{name}`, and a device fn sees the dims that it is given"),
        })
    }

    /// Reports a name that stands for no tile size in a device fn.
    pub(crate) fn no_tile_size_given(&mut self, name: &Ident, given: bool) {
        let of = self.device_fn().map_or(String::new(), Ident::to_string);
        let message = match given {
            true => format!(
                "`{name}` of `{of}` has to be a knob of `tune` or a whole number, and the call gives it something else"
            ),
            false if !is_upper(name) => {
                format!(
                    "`{name}` is lower-case, and a tile size is an upper-case parameter of `{of}`, or a whole number"
                )
            }
            false => format!("`{of}` has no parameter `{name}`, and a device fn sees the tile sizes that it is given"),
        };
        self.errors.push(28, name.span(), message);
    }

    /// What an argument stands for, if that is no value. `None` if it was reported.
    fn alias(&mut self, param: &Ident, arg: &ExprSyntax) -> Option<Option<Alias>> {
        let tensor = if let ExprSyntaxKind::Name(name) = &arg.kind { self.tensor(name) } else { None };
        if !is_upper(param) {
            return Some(tensor.map(Alias::Tensor));
        }
        if tensor.is_some() {
            let message = format!("`{param}` is upper-case, so it is a dim or a tile size, and not a tensor");
            self.errors.push(31, arg.place, message);
            return None;
        }
        if !may_be_size(arg) {
            let message = format!(
                "`{param}` is upper-case, so it is a dim, a tile size, a const or a whole number above 0; what is computed is given to a lower-case parameter"
            );
            self.errors.push(28, arg.place, message);
            return None;
        }
        let dim = if let ExprSyntaxKind::Name(name) = &arg.kind { self.dim_named(name) } else { None };
        let size = dim.map_or_else(|| self.extent(arg), Extent::Dim);
        (!matches!(size, Extent::Bad)).then_some(Some(Alias::Size(size)))
    }

    /// An argument as it is written, for messages.
    fn text_of(&self, arg: &ExprSyntax) -> String {
        match &arg.kind {
            ExprSyntaxKind::Name(name) => match self.frame().and_then(|f| f.stands_for(name)) {
                Some(Alias::Tensor(i)) => self.params[*i].name.to_string(),
                Some(Alias::Size(Extent::Dim(i))) => self.dims[*i].name.to_string(),
                Some(Alias::Size(Extent::Number(n))) => n.to_string(),
                Some(Alias::Size(Extent::Knob(i))) => {
                    self.kernel.map_or(String::new(), |k| k.tune[*i].name.to_string())
                }
                _ => name.to_string(),
            },
            ExprSyntaxKind::Literal { value, .. } => value.to_string(),
            _ => "..".to_owned(),
        }
    }

    fn enter(&mut self, frame: Frame, scope: &'a Scope) -> (LocalNames, &'a Scope) {
        self.frames.push(frame);
        (std::mem::take(&mut self.names), std::mem::replace(&mut self.scope, scope))
    }

    fn leave(&mut self, (names, scope): (LocalNames, &'a Scope)) {
        self.frames.pop();
        (self.names, self.scope) = (names, scope);
    }

    /// The device fn being inlined.
    pub(crate) fn frame(&self) -> Option<&Frame> {
        self.frames.last()
    }

    /// The name of the device fn being inlined.
    pub(crate) fn device_fn(&self) -> Option<&Ident> {
        self.frame().map(|f| &f.name)
    }

    /// A parameter of the kernel by the name that it has here.
    pub(crate) fn param(&self, name: &Ident) -> Option<usize> {
        match self.frame() {
            None => self.params.iter().position(|p| p.name == *name),
            Some(f) => match f.stands_for(name)? {
                Alias::Tensor(i) => Some(*i),
                Alias::Size(_) => None,
            },
        }
    }

    /// A tensor by the name that it has here, where no tile hides it.
    fn tensor(&self, name: &Ident) -> Option<usize> {
        let is_tensor = |&i: &usize| matches!(self.params[i].kind, crate::tree::ParamKind::Tensor { .. });
        self.param(name).filter(is_tensor).filter(|_| self.lookup(name).is_none())
    }

    /// A dim by the name that it has here.
    pub(crate) fn dim_named(&self, name: &Ident) -> Option<usize> {
        match self.frame() {
            None => self.dims.iter().position(|d| d.name == *name),
            Some(f) => match f.stands_for(name)? {
                Alias::Size(Extent::Dim(i)) => Some(*i),
                _ => None,
            },
        }
    }

    /// The extent that a parameter of a device fn stands for, if it is one.
    pub(crate) fn size_given(&self, name: &Ident) -> Option<Extent> {
        match self.frame()?.stands_for(name)? {
            Alias::Size(size) => Some(size.clone()),
            Alias::Tensor(_) => None,
        }
    }

    /// The names of tensors, dims and tile sizes that there are here.
    pub(crate) fn given_names(&self) -> Vec<String> {
        match self.frame() {
            Some(f) => f.aliases.keys().cloned().collect(),
            None => {
                let params = self.params.iter().map(|p| p.name.to_string());
                params.chain(self.kernel.iter().flat_map(|k| &k.tune).map(|k| k.name.to_string())).collect()
            }
        }
    }

    /// A const by its name, or by a path. Those of the module that declares a device fn are not seen where it is inlined.
    pub(crate) fn const_here(&mut self, path: &ExprPath, place: SourceRange) -> Option<ExprPath> {
        let Some(frame) = self.frame().filter(|f| f.is_foreign) else { return Some(path.clone()) };
        let first = path.path.segments.first().map_or(String::new(), |s| s.ident.to_string());
        let is_of_rust = ["std", "core"].contains(&first.as_str()) || PRIMITIVES.contains(&first.as_str());
        if path.qself.is_some() || (path.path.segments.len() > 1 && is_of_rust) {
            return Some(path.clone());
        }
        let (name, of) = (path.to_token_stream().to_string().replace(' ', ""), &frame.name);
        let message = format!(
            "the device fn `{of}` of another module names the const `{name}`, which is not seen here: take it as an argument, or use it in a tile fn that `{of}` calls"
        );
        self.errors.push(20, place, message);
        None
    }

    /// The value of what a parameter of a device fn stands for.
    pub(crate) fn size_as_value(&mut self, name: &Ident) -> Option<ExprKind> {
        fn value(size: Extent, span: Span) -> ExprKind {
            let side = |size| Box::new(Expr { kind: value(size, span), place: span.into(), token: span });
            match size {
                Extent::Number(n) => ExprKind::Literal { value: n.into(), whole: true },
                Extent::Knob(i) => ExprKind::Knob(i),
                Extent::Const(path) => ExprKind::Const(path),
                Extent::Dim(i) => ExprKind::Size(i),
                Extent::Combined(op, a, b) => ExprKind::Binary(op, side(*a), side(*b)),
                Extent::Bad => ExprKind::Bad,
            }
        }
        Some(value(self.size_given(name)?, name.span()))
    }

    /// A name that looks like a const, as one.
    pub(crate) fn const_named(&mut self, name: &Ident) -> Option<ExprPath> {
        debug_assert!(is_const_name(name));
        self.const_here(&const_path(name), name.span().into())
    }
}
