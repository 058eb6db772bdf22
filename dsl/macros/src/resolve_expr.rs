//! Expressions: resolves calls to operations, counts arguments, looks up names.

use crate::ast::{Called, ExprSyntax, ExprSyntaxKind};
use crate::error::SourceRange;
use crate::names::{did_you_mean, elementwise, functions, is_store, nearest};
use crate::resolve::Resolver;
use crate::resolve_call::is_of_vocabulary;
use crate::signature::dtype_ref;
use crate::tree::{DTypeRef, Expr, ExprKind, LocalKind, ParamKind, Stmt};
use atlas_vocabulary::{BinaryOp, DType, Precision, Random, ReduceOp, UnaryOp, Update};
use proc_macro2::Ident;
use std::cell::OnceCell;
use syn::ExprPath;

/// What is written as a method besides the element-wise operations of the vocabulary.
const METHODS: [&str; 8] = ["cast", "cast_like", "t", "or", "precision", "clamp", "is_nan", "fma"];

pub(crate) fn unary_named(name: &Ident) -> Option<UnaryOp> {
    UnaryOp::function(&name.to_string())
}

pub(crate) fn is_const_name(name: &Ident) -> bool {
    let name = name.to_string();
    name.starts_with(|c: char| c.is_ascii_uppercase()) && !name.chars().any(char::is_lowercase)
}

/// The axis of `-1`, which counts from the end: 255.
fn from_end(x: &ExprSyntax) -> Option<u8> {
    match x.kind {
        ExprSyntaxKind::Literal { value, whole: true } if (1.0..=128.0).contains(&value) => Some((256.0 - value) as u8),
        _ => None,
    }
}

/// A const that is given by its name only.
pub(crate) fn const_path(name: &Ident) -> ExprPath {
    ExprPath { attrs: vec![], qself: None, path: name.clone().into() }
}

impl Resolver<'_> {
    /// An expression. A mistake is reported and gives [`ExprKind::Bad`].
    pub(crate) fn expr(&mut self, e: &ExprSyntax) -> Expr {
        let kind = self.expr_kind(e).unwrap_or(ExprKind::Bad);
        Expr { kind, place: e.place, token: e.token }
    }

    pub(crate) fn boxed(&mut self, e: &ExprSyntax) -> Box<Expr> {
        Box::new(self.expr(e))
    }

    fn expr_kind(&mut self, e: &ExprSyntax) -> Option<ExprKind> {
        Some(match &e.kind {
            ExprSyntaxKind::Literal { value, whole } => ExprKind::Literal { value: *value, whole: *whole },
            ExprSyntaxKind::Name(name) => self.name(name)?,
            ExprSyntaxKind::Path(path) => {
                if !path.path.segments.last().is_some_and(|s| is_const_name(&s.ident)) {
                    self.errors.push(
                        3,
                        e.place,
                        "a path in a kernel names a Rust `const`, such as `std::f32::consts::PI`",
                    );
                    return None;
                }
                ExprKind::Const(self.const_here(path, e.place)?)
            }
            ExprSyntaxKind::Unary(op, x) => {
                let x = self.boxed(x);
                // A negated literal stays a literal.
                match (*op, &x.kind) {
                    ("-", ExprKind::Literal { value, whole }) => ExprKind::Literal { value: -value, whole: *whole },
                    ("-", _) => ExprKind::Unary(UnaryOp::Neg, x),
                    _ => ExprKind::Unary(UnaryOp::Not, x),
                }
            }
            ExprSyntaxKind::Binary(op, a, b) => ExprKind::Binary(*op, self.boxed(a), self.boxed(b)),
            ExprSyntaxKind::Compare(p, a, b) => ExprKind::Compare(*p, self.boxed(a), self.boxed(b)),
            ExprSyntaxKind::Call { name, generics, args } => return self.call(e, name, generics, args),
            ExprSyntaxKind::CallPath { of, generics, args } => {
                self.needless_types(&of.name, generics)?;
                let (kind, results) = self.call_fn(e, of, args)?;
                return self.one_of(kind, results, e);
            }
            ExprSyntaxKind::Method { receiver, name, generics, args } => {
                return self.method(e, receiver, name, generics, args);
            }
            ExprSyntaxKind::Derivative { .. } => {
                let (kind, results) = self.derivative(e)?;
                return self.one_of(kind, results, e);
            }
            ExprSyntaxKind::Tuple(_) => {
                let message = "tuples have no meaning here; bind each tile with its own `let`";
                self.errors.push(20, e.place, message);
                return None;
            }
            ExprSyntaxKind::Field(base, name) => {
                self.field(e, base, name, None);
                return None;
            }
            ExprSyntaxKind::Index { base, index } => return self.table(e, base, index),
            ExprSyntaxKind::Array(_) => {
                self.errors.push(
                    20,
                    e.place,
                    "a list in brackets is only written as the extents of `zeros`, `full`, `iota` and `broadcast`",
                );
                return None;
            }
            ExprSyntaxKind::Named(name, _) => {
                let message = format!(
                    "no argument is called `{name}` here; only a reduction and a scan have one: `sum(x, axis = 1)`, `cumsum(x, axis = 1)`"
                );
                self.errors.push(21, e.place, message);
                return None;
            }
            ExprSyntaxKind::Bad => return None,
            ExprSyntaxKind::Whole => {
                self.errors.push(20, e.place, "`..` is only written as an index, as in `load(x[g, ..])`");
                return None;
            }
        })
    }

    pub(crate) fn name(&mut self, name: &Ident) -> Option<ExprKind> {
        if let Some(local) = self.lookup(name) {
            self.locals[local].used = true;
            return Some(ExprKind::Local(local));
        }
        if let Some(i) = self.param(name) {
            self.param_used[i] = true;
            if let ParamKind::Tensor { dims, .. } = &self.params[i].kind {
                let place = self.place_in(dims);
                self.errors.push(
                    102,
                    name.span(),
                    format!("`{name}` is a tensor; load a tile of it, as in `load({name}[{place}])`"),
                );
                return None;
            }
            return Some(ExprKind::Scalar(i));
        }
        if self.dim_named(name).is_some() {
            self.errors.push(31, name.span(), format!("`{name}` is a dim; its size as a number is `size({name})`"));
            return None;
        }
        if let Some(i) = self.knob(name) {
            if !is_const_name(name) {
                self.errors.push(
                    31,
                    name.span(),
                    format!("`{name}` belongs to the schedule; a kernel's result cannot depend on it"),
                );
                return None;
            }
            return Some(ExprKind::Knob(i));
        }
        if let Some(value) = self.size_as_value(name) {
            return Some(value);
        }
        if is_const_name(name) {
            return Some(ExprKind::Const(self.const_named(name)?));
        }
        let message = if self.names.ended.contains(&name.to_string()) {
            format!("`{name}` exists only inside the loop that binds it; declare `let mut {name}` before the loop")
        } else if functions().any(|f| *name == f) || self.is_tile_fn(name) {
            format!("`{name}` is a function; call it")
        } else {
            let mut names = self.bound_names();
            names.extend(self.given_names());
            let hint = match name.to_string().as_str() {
                "inf" | "infinity" => "; infinity is `f32::INFINITY`".to_owned(),
                "nan" => "; write `f32::NAN`".to_owned(),
                "pi" => "; write `PI`, which `atlas::prelude` has".to_owned(),
                text => nearest(text, names.iter().map(String::as_str)),
            };
            format!("unknown name `{name}`{hint}")
        };
        self.errors.push(3, name.span(), message);
        None
    }

    /// Reports a wrong number of arguments.
    pub(crate) fn arity<'e>(
        &mut self,
        e: &ExprSyntax,
        args: &'e [ExprSyntax],
        name: &Ident,
        wanted: &[&str],
    ) -> Option<&'e [ExprSyntax]> {
        if args.len() == wanted.len() {
            return Some(args);
        }
        if let Some(message) = Self::more_arguments(&name.to_string(), args) {
            self.errors.push(21, e.place, message);
            return None;
        }
        let plural = if wanted.len() == 1 { "" } else { "s" };
        let list = if wanted.is_empty() { String::new() } else { format!(" ({})", wanted.join(", ")) };
        self.errors.push(
            21,
            e.place,
            format!("`{name}` takes {} argument{plural}{list}, found {}", wanted.len(), args.len()),
        );
        None
    }

    /// Reports element types given to an operation that takes none.
    pub(crate) fn no_types(&mut self, name: &Ident, generics: &[Ident]) -> Option<()> {
        let known = functions().chain(METHODS).any(|f| *name == f) || self.is_tile_fn(name);
        // Of an unknown function another message says more.
        if known { self.needless_types(name, generics) } else { Some(()) }
    }

    /// Reports element types given to a function, which takes none.
    pub(crate) fn needless_types(&mut self, name: &Ident, generics: &[Ident]) -> Option<()> {
        let ([first, ..], [.., last]) = (generics, generics) else { return Some(()) };
        let cast = format!("cast what goes in or comes out, as in `x.cast::<{first}>()`");
        let message = match name.to_string().as_str() {
            "iota" if first == "i32" => "`iota` is given no element type: it counts in i32".to_owned(),
            "iota" => {
                format!("`iota` is given no element type: it counts in i32; convert with `iota(..).cast::<{first}>()`")
            }
            text => match Random::from_name(text) {
                Some(of) => format!("`{name}` is given no element type: its result is {}", of.row().dtype.name()),
                None => format!("`{name}` is given no element type: it takes that of its operands; {cast}"),
            },
        };
        self.errors.push(22, SourceRange { start: first.span(), end: last.span() }, message);
        None
    }

    fn call(&mut self, e: &ExprSyntax, name: &Ident, generics: &[Ident], args: &[ExprSyntax]) -> Option<ExprKind> {
        let text = name.to_string();
        // Of `cast::<f32>(x)` another message says more.
        if !matches!(text.as_str(), "zeros" | "full" | "cast") {
            self.no_types(name, generics)?;
        }
        if self.is_tile_fn(name) {
            let (kind, results) = self.call_fn(e, &Called::named(name), args)?;
            return self.one_of(kind, results, e);
        }
        Some(match text.as_str() {
            _ if is_of_vocabulary(name) => return self.of_vocabulary(e, name, args),
            "load" => {
                self.arity(e, args, name, &["x[..]"])?;
                let (param, index) = self.access(&args[0], "load")?;
                self.param_used[param] = true;
                ExprKind::Load { param, index }
            }
            "dot" => {
                self.arity(e, args, name, &["a", "b"])?;
                ExprKind::Dot {
                    operands: Box::new([self.expr(&args[0]), self.expr(&args[1])]),
                    precision: Precision::Default,
                }
            }
            "select" => {
                self.arity(e, args, name, &["cond", "a", "b"])?;
                ExprKind::Select(Box::new([self.expr(&args[0]), self.expr(&args[1]), self.expr(&args[2])]))
            }
            "cluster_sum" => {
                self.arity(e, args, name, &["x"])?;
                ExprKind::ClusterSum(self.boxed(&args[0]))
            }
            "clamp" | "fma" | "is_nan" => return self.composed(e, name, args),
            "sum" | "max" | "min" => return self.reduce(e, name, args),
            "cumsum" | "cummax" | "cummin" => return self.scan(e, name, args),
            "zeros" | "full" => return self.filled(e, name, generics, args),
            "iota" => {
                self.arity(e, args, name, &["[extents]", "axis"])?;
                let axis = self.axis(&args[1])?;
                ExprKind::Iota { shape: self.extents(&args[0])?, axis }
            }
            "broadcast" => {
                self.arity(e, args, name, &["x", "[extents]"])?;
                ExprKind::Broadcast { value: self.boxed(&args[0]), shape: self.extents(&args[1])? }
            }
            "size" => {
                if self.size_elsewhere(e, name, args) {
                    return None;
                }
                self.arity(e, args, name, &["DIM"])?;
                let ExprSyntaxKind::Name(dim) = &args[0].kind else {
                    self.errors.push(27, args[0].place, "`size` takes a dim, as in `size(N)`");
                    return None;
                };
                ExprKind::Size(self.dim(dim)?)
            }
            text if is_store(text) => {
                return self.misplaced(e, &format!("`{name}` is a statement, not a value"));
            }
            "span" => {
                return self.misplaced(
                    e,
                    "`span(start, LEN)` is only written as an index, as in `load(x[g, span(start, LEN)])`",
                );
            }
            "tiles" | "grid" | "pairs" | "cluster" | "pipeline" => {
                return self.misplaced(
                    e,
                    &format!("`{name}` is only written in `for .. in`, as in `for h in pipeline(tiles(H, BH))`"),
                );
            }
            "grad" => {
                return self
                    .misplaced(e, "`grad` is given a function, and the gradient its arguments: `grad(gelu)(x)`");
            }
            "jvp" => {
                return self.misplaced(
                    e,
                    "`jvp` is given a function, and what it gives the arguments and their tangents: `jvp(gelu)(x, dx)`",
                );
            }
            "cast" | "t" => {
                let dtype = generics.first().map_or_else(|| "f32".to_owned(), Ident::to_string);
                let method = if text == "t" { "t".to_owned() } else { format!("cast::<{dtype}>") };
                return self.misplaced(e, &format!("`{name}` is a method: write `x.{method}()`"));
            }
            _ => {
                if !self.size_elsewhere(e, name, args) {
                    self.unknown_function(name);
                }
                return None;
            }
        })
    }

    /// `zeros::<f32>([BN, D])` and `full::<f32>([BN, D], x)`.
    fn filled(&mut self, e: &ExprSyntax, name: &Ident, generics: &[Ident], args: &[ExprSyntax]) -> Option<ExprKind> {
        let has_value = name == "full";
        self.arity(e, args, name, if has_value { &["[extents]", "value"] } else { &["[extents]"] })?;
        let dtype = self.one_dtype(e, name, generics)?;
        let shape = self.extents(&args[0])?;
        let zero = || Expr { kind: ExprKind::Literal { value: 0.0, whole: true }, place: e.place, token: e.token };
        let value = if has_value { self.boxed(&args[1]) } else { Box::new(zero()) };
        Some(ExprKind::Fill { dtype, shape, value })
    }

    /// `clamp(x, lo, hi)`, `is_nan(x)` and `fma(a, b, c)`, which are neither of one operand nor of two.
    fn composed(&mut self, e: &ExprSyntax, name: &Ident, args: &[ExprSyntax]) -> Option<ExprKind> {
        if name == "is_nan" {
            self.arity(e, args, name, &["x"])?;
            return Some(ExprKind::IsNan(self.boxed(&args[0])));
        }
        let is_fma = name == "fma";
        self.arity(e, args, name, if is_fma { &["a", "b", "c"] } else { &["x", "lo", "hi"] })?;
        let three = Box::new([self.expr(&args[0]), self.expr(&args[1]), self.expr(&args[2])]);
        Some(if is_fma { ExprKind::Fma(three) } else { ExprKind::Clamp(three) })
    }

    fn misplaced(&mut self, e: &ExprSyntax, message: &str) -> Option<ExprKind> {
        self.errors.push(20, e.place, message);
        None
    }

    /// `sum(x)` and `sum(x, axis = 1)`; the same of `max` and `min`; and `max(x, y)`, which is element-wise.
    fn reduce(&mut self, e: &ExprSyntax, name: &Ident, args: &[ExprSyntax]) -> Option<ExprKind> {
        let op = ReduceOp::from_name(&name.to_string())?;
        if let Some(message) = Self::reduction_argument(name, args) {
            self.errors.push(21, e.place, message);
            return None;
        }
        match (args, op.row().elementwise) {
            ([value], _) => Some(ExprKind::Reduce { op, value: self.boxed(value), axis: None }),
            ([value, ExprSyntax { kind: ExprSyntaxKind::Named(what, axis), .. }], _) if what == "axis" => {
                Some(ExprKind::Reduce { op, value: self.boxed(value), axis: Some(self.axis(axis)?) })
            }
            ([x, y], Some(op)) => Some(ExprKind::Binary(op, self.boxed(x), self.boxed(y))),
            ([_, axis], None) => {
                let number = match axis.kind {
                    ExprSyntaxKind::Literal { value, whole: true } => format!("{value}"),
                    _ => "1".to_owned(),
                };
                let message = format!("the axis of a reduction is named: write `{name}(x, axis = {number})`");
                self.errors.push(21, axis.place, message);
                None
            }
            _ => {
                let elementwise = op.row().elementwise.map(|_| format!(", or `{name}(x, y)`")).unwrap_or_default();
                let message = format!(
                    "`{name}` is written `{name}(x)` or `{name}(x, axis = 1)`{elementwise}; found {} arguments",
                    args.len()
                );
                self.errors.push(21, e.place, message);
                None
            }
        }
    }

    pub(crate) fn axis(&mut self, e: &ExprSyntax) -> Option<(u8, SourceRange)> {
        match e.kind {
            ExprSyntaxKind::Literal { value, whole: true } if value < 128.0 => Some((value as u8, e.place)),
            // An axis from the end, which the check refuses: it knows the rank.
            ExprSyntaxKind::Unary("-", ref x) if from_end(x).is_some() => from_end(x).map(|axis| (axis, e.place)),
            ExprSyntaxKind::Tuple(_) | ExprSyntaxKind::Array(_) => {
                let message = "one axis at a time is reduced, as in `sum(sum(x, axis = 0), axis = 1)`; of all axes write `sum(x)`";
                self.errors.push(101, e.place, message);
                None
            }
            _ => {
                self.errors.push(101, e.place, "an axis is written as a whole number, such as 0 or 1");
                None
            }
        }
    }

    fn method(
        &mut self,
        e: &ExprSyntax,
        receiver: &ExprSyntax,
        name: &Ident,
        generics: &[Ident],
        args: &[ExprSyntax],
    ) -> Option<ExprKind> {
        if name != "cast" {
            self.no_types(name, generics)?;
        }
        if self.method_elsewhere(e, receiver, name, args) {
            return None;
        }
        // Where a tile fn takes the place of a function, that is no method.
        let is_hidden = self.is_tile_fn(name) && functions().any(|f| *name == f);
        let method = if is_hidden { String::new() } else { name.to_string() };
        if let Some(op) = UnaryOp::function(&method) {
            self.arity(e, args, name, &[])?;
            return Some(ExprKind::Unary(op, self.boxed(receiver)));
        }
        if let Some(op) = BinaryOp::function(&method) {
            let args = self.arity(e, args, name, &op.operands()[1..])?;
            return Some(ExprKind::Binary(op, self.boxed(receiver), self.boxed(&args[0])));
        }
        Some(match method.as_str() {
            "cast" => {
                if let [dtype] = args {
                    let written = match &dtype.kind {
                        ExprSyntaxKind::Name(dtype) => dtype.to_string(),
                        _ => "f32".to_owned(),
                    };
                    let message =
                        format!("the type of a `cast` stands before its brackets: write `x.cast::<{written}>()`");
                    self.errors.push(21, e.place, message);
                    return None;
                }
                self.arity(e, args, name, &[])?;
                let x = self.boxed(receiver);
                let dtype = self.one_dtype(e, name, generics)?;
                if dtype == DTypeRef::Fixed(DType::Bool) {
                    self.errors.push(
                        106,
                        generics[0].span(),
                        "nothing casts to bool; compare with 0, as in `x != 0.0`",
                    );
                    return None;
                }
                ExprKind::Cast(dtype, x)
            }
            "t" => {
                self.arity(e, args, name, &[])?;
                ExprKind::Transpose(self.boxed(receiver))
            }
            "cast_like" => {
                let args = self.arity(e, args, name, &["x"])?;
                ExprKind::CastLike(Box::new([self.expr(receiver), self.expr(&args[0])]))
            }
            "clamp" => {
                let args = self.arity(e, args, name, &["lo", "hi"])?;
                ExprKind::Clamp(Box::new([self.expr(receiver), self.expr(&args[0]), self.expr(&args[1])]))
            }
            "fma" => {
                let args = self.arity(e, args, name, &["b", "c"])?;
                ExprKind::Fma(Box::new([self.expr(receiver), self.expr(&args[0]), self.expr(&args[1])]))
            }
            "is_nan" => {
                self.arity(e, args, name, &[])?;
                ExprKind::IsNan(self.boxed(receiver))
            }
            "or" => {
                let args = self.arity(e, args, name, &["number"])?;
                ExprKind::Or(Box::new([self.expr(receiver), self.expr(&args[0])]))
            }
            "precision" => return self.precision(e, receiver, name, args),
            _ => {
                let text = &name.to_string();
                match text.as_str() {
                    // The place is right.
                    text if text == "load" || is_store(text) => drop(self.access(receiver, text)),
                    _ => drop(self.expr(receiver)),
                }
                let as_function = functions().any(|f| f == text) || self.is_tile_fn(name);
                let hint = if as_function {
                    Self::as_function(text, args)
                } else {
                    did_you_mean(text, METHODS.into_iter().chain(elementwise()))
                };
                self.errors.push(5, name.span(), format!("unknown method `{name}`{hint}"));
                return None;
            }
        })
    }

    /// `dot(a, b).precision(tf32)`
    fn precision(
        &mut self,
        e: &ExprSyntax,
        receiver: &ExprSyntax,
        name: &Ident,
        args: &[ExprSyntax],
    ) -> Option<ExprKind> {
        let args = self.arity(e, args, name, &["tf32"])?;
        let x = self.expr(receiver);
        let ExprKind::Dot { operands, .. } = x.kind else {
            if !matches!(x.kind, ExprKind::Bad) {
                self.errors.push(30, name.span(), "`precision` belongs to a `dot`, as in `dot(a, b).precision(tf32)`");
            }
            return None;
        };
        let named = match &args[0].kind {
            ExprSyntaxKind::Name(n) => Some(n.to_string()),
            _ => None,
        };
        let Some(precision) = named.as_deref().and_then(Precision::from_name) else {
            let names = Precision::ALL.iter().map(|p| p.name());
            let hint = nearest(named.as_deref().unwrap_or(""), names);
            self.errors.push(
                30,
                args[0].place,
                format!("unknown precision; the precisions are `default`, `tf32`, `bf16x3` and `tf32x3`{hint}"),
            );
            return None;
        };
        Some(ExprKind::Dot { operands, precision })
    }

    fn one_dtype(&mut self, e: &ExprSyntax, name: &Ident, generics: &[Ident]) -> Option<DTypeRef> {
        let [dtype] = generics else {
            let form = if name == "cast" { "x.cast::<f32>()".to_owned() } else { format!("{name}::<f32>(..)") };
            self.errors.push(22, e.place, format!("`{name}` needs one element type, as in `{form}`"));
            return None;
        };
        // A device fn does not see the kernel's type parameters.
        let kernel = self.kernel.filter(|_| self.frames.is_empty());
        let place = if self.frames.is_empty() { " of a tile fn" } else { " of a device fn" };
        dtype_ref(kernel, place, dtype, self.errors)
    }

    /// A statement that is an expression: `store(..)`, `atomic_add(..)`, or a mistake.
    pub(crate) fn expression_statement(&mut self, e: &ExprSyntax) -> Option<Stmt> {
        if let ExprSyntaxKind::Call { name, generics, args } = &e.kind
            && let Some(update) = Update::of_statement(&name.to_string())
        {
            self.stores = true;
            self.no_types(name, generics)?;
            let args = self.arity(e, args, name, &["y[..]", "value"])?;
            if let Some(tensor) = self.place_second(args) {
                let message =
                    format!("`{name}` takes the place first, and then the value: `{name}({tensor}[..], value)`");
                self.errors.push(20, e.place, message);
                return None;
            }
            let value = self.expr(&args[1]);
            let (param, index) = self.access(&args[0], update.statement())?;
            let tensor = &self.params[param].name;
            if let ParamKind::Tensor { writable: false, .. } = self.params[param].kind {
                let message = format!(
                    "`{tensor}` is an input; declare it `{tensor}: &mut Tensor<..>` to {} it",
                    if update.is_atomic() { "combine with" } else { "store to" }
                );
                self.errors.push(210, args[0].place, message);
                return None;
            }
            let (token, axes) = (name.span(), OnceCell::new());
            return Some(Stmt::Store { update, param, index, value, token, place: e.place, axes });
        }
        let before = self.errors.count();
        let value = self.expr(e);
        if self.errors.count() == before {
            let hint = match value.kind {
                ExprKind::Local(l) if matches!(self.locals[l].kind, LocalKind::Let { .. }) => "",
                _ => "; bind it with `let`, or store it",
            };
            self.errors.push(24, e.place, format!("the value of this expression is not used{hint}"));
        }
        None
    }
}
