//! Calls of tile fns: which function, how many arguments, how many tiles it gives; and the names that are assigned. Scans, whose arguments have names.

use crate::ast::{Called, ExprSyntax, ExprSyntaxKind};
use crate::names::{did_you_mean, functions, nearest};
use crate::resolve::Resolver;
use crate::tree::{Expr, ExprKind, LocalId, LocalKind, Param, ParamKind};
use atlas_vocabulary::{BinaryOp, Random, ReduceOp, UnaryOp};
use proc_macro2::Ident;

fn plural(n: usize) -> &'static str {
    if n == 1 { "" } else { "s" }
}

/// Whether the vocabulary lists a function of this name, other than reductions and scans.
pub(crate) fn is_of_vocabulary(name: &Ident) -> bool {
    let text = name.to_string();
    UnaryOp::function(&text).is_some() || BinaryOp::function(&text).is_some() || Random::from_name(&text).is_some()
}

impl Resolver<'_> {
    /// `cumsum(x, axis = 0)`, and with `reverse = true`: a call whose arguments have names.
    pub(crate) fn scan(&mut self, e: &ExprSyntax, name: &Ident, args: &[ExprSyntax]) -> Option<ExprKind> {
        let op = ReduceOp::of_scan(&name.to_string())?;
        let named = |i: usize, what: &str| match &args.get(i)?.kind {
            ExprSyntaxKind::Named(is, value) if is == what => Some(&**value),
            _ => None,
        };
        let flag = |value: &ExprSyntax| match value.kind {
            ExprSyntaxKind::Literal { value, whole: true } if value == 0.0 || value == 1.0 => Some(value != 0.0),
            _ => None,
        };
        let (axis, reverse) = (named(1, "axis"), named(2, "reverse").and_then(flag));
        let is_written = match args {
            [_, _] => axis.is_some(),
            [_, _, _] => axis.is_some() && reverse.is_some(),
            _ => false,
        };
        let (Some(axis), true, Some(value)) = (axis, is_written, args.first()) else {
            let message = format!(
                "`{name}` is written `{name}(x, axis = 0)`, or `{name}(x, axis = 0, reverse = true)` from the last element down"
            );
            self.errors.push(21, e.place, message);
            return None;
        };
        Some(ExprKind::Scan { op, value: self.boxed(value), axis: self.axis(axis)?, reverse: reverse.unwrap_or(false) })
    }

    /// A call of a tile fn, and how many tiles it gives.
    pub(crate) fn call_fn(&mut self, e: &ExprSyntax, of: &Called, args: &[ExprSyntax]) -> Option<(ExprKind, usize)> {
        let index = self.called(of)?;
        if self.fns[index].is_device {
            let name = &of.name;
            if self.kernel.is_none() {
                self.no_device_call(name, e.place);
                return None;
            }
            let message = format!(
                "`{name}` is a device fn, so its call is a statement, or stands alone behind a `let`: `let a = {name}(..);`"
            );
            self.errors.push(20, e.place, message);
            return None;
        }
        let wanted: Vec<&str> = self.fns[index].params.iter().map(String::as_str).collect();
        self.arity(e, args, &of.name, &wanted)?;
        let args = args.iter().map(|a| self.expr(a)).collect();
        Some((ExprKind::CallFn { index, args }, self.fns[index].results))
    }

    /// Reports a name that no function has.
    pub(crate) fn unknown_function(&mut self, name: &Ident) {
        let hint = did_you_mean(&name.to_string(), functions().chain(self.tile_fns()));
        let import = match hint.as_str() {
            "" => format!(
                "; a tile fn of another module is named by a `use` in this `atlas_kernel!`, as in `use math::{name};`"
            ),
            hint if hint.ends_with('?') => {
                " A tile fn of another module is named by a `use` in this `atlas_kernel!`".to_owned()
            }
            _ => String::new(),
        };
        self.errors.push(5, name.span(), format!("unknown function `{name}`{hint}{import}"));
    }

    /// What gives one tile, as an expression.
    pub(crate) fn one_of(&mut self, kind: ExprKind, results: usize, e: &ExprSyntax) -> Option<ExprKind> {
        if results == 1 {
            return Some(kind);
        }
        let names: Vec<&str> = ["a", "b", "c", "d", "e", "f"].into_iter().take(results).collect();
        let message = format!("this gives {results} tiles; name them: `let ({}) = ..;`", names.join(", "));
        self.errors.push(21, e.place, message);
        None
    }

    /// What gives as many tiles as names are bound to them.
    pub(crate) fn call_of_many(&mut self, e: &ExprSyntax, names: usize) -> Option<Expr> {
        let (kind, results) = match &e.kind {
            ExprSyntaxKind::Derivative { .. } => self.derivative(e)?,
            ExprSyntaxKind::Call { name, generics, args } if self.is_tile_fn(name) => {
                self.no_types(name, generics)?;
                self.call_fn(e, &Called::named(name), args)?
            }
            ExprSyntaxKind::CallPath { of, generics, args } => {
                self.needless_types(&of.name, generics)?;
                self.call_fn(e, of, args)?
            }
            ExprSyntaxKind::Bad => return None,
            _ => {
                self.errors.push(
                    20,
                    e.place,
                    "only what a tile fn gives, or `grad`, has several names; write a `let` for each",
                );
                return None;
            }
        };
        if results != names {
            let message = format!("this gives {results} tile{}, but {names} names are bound", plural(results));
            self.errors.push(21, e.place, message);
            return None;
        }
        Some(Expr { kind, place: e.place, token: e.token })
    }

    /// The name on the left of an assignment.
    pub(crate) fn assigned(&mut self, name: &Ident) -> Option<LocalId> {
        let Some(local) = self.lookup(name) else {
            match self.param(name).map(|i| &self.params[i]) {
                Some(Param { kind: ParamKind::Tensor { .. }, .. }) => {
                    self.errors.push(
                        102,
                        name.span(),
                        format!("`{name}` is a tensor; write it with `store({name}[..], value)`"),
                    );
                }
                Some(_) => self.errors.push(25, name.span(), format!("`{name}` is a parameter; it cannot be assigned")),
                None => {
                    let names = self.bound_names();
                    let hint = nearest(&name.to_string(), names.iter().map(String::as_str));
                    if hint.is_empty() {
                        let message = format!("unknown name `{name}`; a name is bound by `let {name} = ..`");
                        self.errors.push(3, name.span(), message);
                        // What uses it is no mistake.
                        let local = self.bind(name, LocalKind::Let { mutable: true });
                        (self.locals[local].used, self.locals[local].assigned) = (true, true);
                        return Some(local);
                    }
                    self.errors.push(3, name.span(), format!("unknown name `{name}`{hint}"));
                }
            }
            return None;
        };
        self.locals[local].assigned = true;
        match self.locals[local].kind {
            LocalKind::Let { mutable: true } => {}
            LocalKind::Let { mutable: false } => {
                self.errors.push(
                    25,
                    name.span(),
                    format!("`{name}` is assigned, but is not `mut`; write `let mut {name}`"),
                );
            }
            LocalKind::FnParam => {
                let message =
                    format!("`{name}` is a parameter; it cannot be assigned: bind `let mut` another name to it");
                self.errors.push(25, name.span(), message);
            }
            _ => self.errors.push(25, name.span(), format!("`{name}` is a coordinate or index; it cannot be assigned")),
        }
        for (first, carried) in &mut self.loops {
            if local < *first && !carried.contains(&local) {
                carried.push(local);
            }
        }
        Some(local)
    }

    /// Reports a name that stands twice among those that are assigned at once.
    pub(crate) fn assigned_once(&mut self, names: &[Ident]) {
        for (i, name) in names.iter().enumerate() {
            if names[..i].contains(name) {
                self.errors.push(25, name.span(), format!("`{name}` is assigned twice at once"));
            }
        }
    }

    /// A function that the vocabulary lists.
    pub(crate) fn of_vocabulary(&mut self, e: &ExprSyntax, name: &Ident, args: &[ExprSyntax]) -> Option<ExprKind> {
        let text = name.to_string();
        if let Some(op) = UnaryOp::function(&text) {
            self.arity(e, args, name, &["x"])?;
            return Some(ExprKind::Unary(op, self.boxed(&args[0])));
        }
        if let Some(op) = BinaryOp::function(&text) {
            self.arity(e, args, name, &op.operands())?;
            return Some(ExprKind::Binary(op, self.boxed(&args[0]), self.boxed(&args[1])));
        }
        let of = Random::from_name(&text)?;
        self.arity(e, args, name, &["seed", "index"])?;
        Some(ExprKind::Random(of, Box::new([self.expr(&args[0]), self.expr(&args[1])])))
    }
}
