//! Forms of other languages: fields such as `x.shape`, methods of modules such as `np.exp(x)`, named arguments, axes from the
//! end. Each is a mistake that says what to write.

use crate::ast::{ExprSyntax, ExprSyntaxKind};
use crate::names::{functions, is_store, written_here};
use crate::parse_unsupported::{is_dotted_module, is_module};
use crate::resolve::Resolver;
use crate::tree::ParamKind;
use proc_macro2::Ident;

/// Names under which the size of a tensor is asked for.
const SIZES: [&str; 8] = ["shape", "size", "len", "numel", "ndim", "dim", "rank", "strides"];

/// Registers of CUDA.
const REGISTERS: [&str; 4] = ["blockIdx", "threadIdx", "blockDim", "gridDim"];

/// An index or an argument that is a whole number written here.
fn number(e: Option<&ExprSyntax>) -> Option<f64> {
    match e?.kind {
        ExprSyntaxKind::Literal { value, whole: true } => Some(value),
        ExprSyntaxKind::Unary("-", ref x) => number(Some(x)).map(|x| -x),
        _ => None,
    }
}

/// The name before the first dot of `a.b.c`.
fn first_name(e: &ExprSyntax) -> Option<&Ident> {
    match &e.kind {
        ExprSyntaxKind::Name(name) => Some(name),
        ExprSyntaxKind::Field(base, _) => first_name(base).filter(|name| is_dotted_module(&name.to_string())),
        _ => None,
    }
}

/// `a.b.c` as it is written.
fn dotted(e: &ExprSyntax) -> String {
    match &e.kind {
        ExprSyntaxKind::Name(name) => name.to_string(),
        ExprSyntaxKind::Field(base, name) => format!("{}.{name}", dotted(base)),
        _ => String::new(),
    }
}

impl Resolver<'_> {
    /// Reports `x.shape`, `x.shape[0]`, `x.T`.
    pub(crate) fn field(&mut self, e: &ExprSyntax, base: &ExprSyntax, name: &Ident, index: Option<&ExprSyntax>) {
        let text = name.to_string();
        if let ExprSyntaxKind::Name(of) = &base.kind
            && REGISTERS.iter().any(|r| of == r)
        {
            let message = format!(
                "a kernel counts no threads and no blocks, so there is no `{of}`: a program is one of `for (m, n) in grid(tiles(M, BM), tiles(N, BN))`, and works on tiles"
            );
            self.errors.push(20, e.place, message);
            return;
        }
        if let ExprSyntaxKind::Name(of) = &base.kind
            && is_module(&of.to_string())
            && self.lookup(of).is_none()
            && self.param(of).is_none()
        {
            let message = format!(
                "a kernel has no module `{of}`; `{name}` may be a Rust const in scope, such as `PI`, or a function, such as `exp(x)`"
            );
            self.errors.push(20, e.place, message);
            return;
        }
        if SIZES.contains(&text.as_str()) {
            return self.no_size(e, base, name, index);
        }
        let message = match text.as_str() {
            "T" | "mT" | "H" => format!("there is no field `{name}`; a transposed tile is `x.t()`"),
            "dtype" => "there is no field `dtype`; `x.cast_like(y)` converts to the element type of `y`".to_owned(),
            _ if functions().any(|f| f == text) => format!("there is no field `{name}`; write `{name}(x)`"),
            _ => match written_here(&text) {
                Some(written) => format!("there is no field `{name}`{written}"),
                None => "tiles and tensors have no fields".to_owned(),
            },
        };
        self.errors.push(20, e.place, message);
    }

    /// Reports `len(x)` and `size(x, 0)` of a tensor. True if it did.
    pub(crate) fn size_elsewhere(&mut self, e: &ExprSyntax, name: &Ident, args: &[ExprSyntax]) -> bool {
        let Some(ExprSyntax { kind: ExprSyntaxKind::Name(of), .. }) = args.first() else { return false };
        if !SIZES.contains(&name.to_string().as_str()) || self.dims_of(of).is_none() {
            return false;
        }
        self.no_size(e, &args[0], name, args.get(1));
        true
    }

    /// Reports a size that is asked of a tensor or of a tile.
    fn no_size(&mut self, e: &ExprSyntax, base: &ExprSyntax, name: &Ident, index: Option<&ExprSyntax>) {
        let dims = match &base.kind {
            ExprSyntaxKind::Name(of) => self.dims_of(of),
            _ => None,
        };
        let message = match dims {
            Some((of, dims)) => {
                let axis = number(index).map(|i| if i < 0.0 { i + dims.len() as f64 } else { i });
                let one = axis.and_then(|i| dims.get(i as usize).filter(|_| i >= 0.0));
                let sizes = match one.or(dims.first().filter(|_| dims.len() == 1)) {
                    Some(dim) => format!("`size({dim})`"),
                    None => dims.iter().map(|d| format!("`size({d})`")).collect::<Vec<_>>().join(", "),
                };
                format!("`{of}` is [{}], and the size of a dim is a number by its name: {sizes}", dims.join(", "))
            }
            None => format!(
                "there is no `{name}` of a tile: its extents have names, such as `size(N)` for a dim that it has whole, and `BN` for a tile size"
            ),
        };
        self.errors.push(20, e.place, message);
    }

    /// The name of a tensor, and its dims.
    pub(crate) fn dims_of(&self, name: &Ident) -> Option<(String, Vec<String>)> {
        let param = self.param(name).filter(|_| self.lookup(name).is_none())?;
        let ParamKind::Tensor { dims, .. } = &self.params[param].kind else { return None };
        Some((name.to_string(), dims.iter().map(|&d| self.dims[d].name.to_string()).collect()))
    }

    /// Reports a method that tensors and modules have elsewhere. True if it did.
    pub(crate) fn method_elsewhere(
        &mut self,
        e: &ExprSyntax,
        receiver: &ExprSyntax,
        name: &Ident,
        args: &[ExprSyntax],
    ) -> bool {
        let text = name.to_string();
        let Some(of) = first_name(receiver) else { return false };
        if self.lookup(of).is_some() {
            if SIZES.contains(&text.as_str()) {
                self.no_size(e, receiver, name, args.first());
                return true;
            }
            return false;
        }
        if of == "cluster"
            && let Some(written) = written_here(&format!("cluster_{text}"))
        {
            self.errors.push(5, name.span(), format!("unknown function `cluster.{text}`{written}"));
            return true;
        }
        if self.dims_of(of).is_some() && SIZES.contains(&text.as_str()) {
            self.no_size(e, receiver, name, args.first());
            return true;
        }
        // `F.exp()` may be the method of a const `F`.
        if !is_dotted_module(&of.to_string())
            || self.param(of).is_some()
            || (args.is_empty() && !is_module(&of.to_string()))
        {
            return false;
        }
        let dots = dotted(receiver);
        let message = match number(args.get(1)) {
            // `tl.max(x, 1)` is along an axis, and `max(x, 1)` is not.
            Some(axis) if ["sum", "max", "min"].contains(&text.as_str()) => {
                format!("a built-in function has no module, and its axis is named; write `{name}(x, axis = {axis})`")
            }
            _ if functions().any(|f| f == text) => {
                format!("a built-in function has no module; write `{name}(..)` without `{dots}.`")
            }
            _ => {
                let written = written_here(&text).unwrap_or_else(|| format!("; a kernel has no module `{of}`"));
                format!("unknown function `{dots}.{name}`{written}")
            }
        };
        self.errors.push(5, name.span(), message);
        true
    }

    /// What to write instead of a method that is a function here.
    pub(crate) fn as_function(name: &str, args: &[ExprSyntax]) -> String {
        let call = match (name, args) {
            ("sum" | "max" | "min", []) => format!("{name}(x)` or `{name}(x, axis = 1)"),
            ("max" | "min", [ExprSyntax { kind: ExprSyntaxKind::Literal { value, whole: true }, .. }]) => {
                format!("{name}(x, {value})` of the elements and a number, or along an axis `{name}(x, axis = {value})")
            }
            ("max" | "min", [ExprSyntax { kind: ExprSyntaxKind::Literal { value, .. }, .. }]) => {
                format!("{name}(x, {value:?})")
            }
            ("sum", [ExprSyntax { kind: ExprSyntaxKind::Literal { value, whole: true }, .. }]) if *value >= 0.0 => {
                format!("{name}(x, axis = {value})")
            }
            ("sum" | "max" | "min", [ExprSyntax { kind: ExprSyntaxKind::Named(..), .. }, ..]) | ("sum", _) => {
                format!("{name}(x, axis = 1)` along an axis, counted from 0, or of all elements `{name}(x)")
            }
            ("load", _) => "load(x[..])".to_owned(),
            (name, _) if is_store(name) => format!("{name}(y[..], value)"),
            ("max" | "min", _) => format!("{name}(x, y)"),
            ("dot", _) => "dot(a, b)".to_owned(),
            ("select", _) => "select(cond, a, b)".to_owned(),
            ("broadcast", _) => "broadcast(x, [A, B])".to_owned(),
            _ => format!("{name}(..)"),
        };
        format!("; it is a function: write `{call}`")
    }

    /// What to write instead of arguments that `load`, `store`, `dot` and `cast` have elsewhere.
    pub(crate) fn more_arguments(name: &str, args: &[ExprSyntax]) -> Option<String> {
        let named = args.iter().find_map(|a| match &a.kind {
            ExprSyntaxKind::Named(what, _) => Some(what.to_string()),
            _ => None,
        });
        Some(match (name, named.as_deref()) {
            ("load", Some("mask" | "other")) => "`load` has no mask: edges of tensors are masked by themselves, `load(x[..]).or(0.0)` has a number past them, and `select(mask, load(x[..]), other)` chooses".to_owned(),
            ("store_disjoint", Some("mask")) => "`store_disjoint` has no mask: what lies outside of the tensor is dropped by itself, and nothing is stored at the place -1: `store_disjoint(y[select(mask, place, -1), ..], value)`".to_owned(),
            (name, Some("mask")) if name != "store" && is_store(name) => format!("`{name}` has no mask: what lies outside of the tensor is dropped by itself, and `select(mask, value, other)` chooses what changes nothing, such as 0 for a sum"),
            ("store", Some("mask")) => "`store` has no mask: what lies outside of the tensor is dropped by itself; where else nothing changes, store what is there: `store(y[..], select(mask, new, load(y[..])))`".to_owned(),
            (name, Some(what)) if name == "load" || is_store(name) => format!("`{name}` has no `{what}`: leave it out; the compiler chooses how memory is accessed"),
            ("store", None) if args.len() > 2 && !matches!(args[0].kind, ExprSyntaxKind::Index { .. }) => "indices stand in brackets, as in `store(y[n, d], value)`".to_owned(),
            ("load", None) if args.len() > 1 && !matches!(args[0].kind, ExprSyntaxKind::Index { .. }) => "indices stand in brackets, as in `load(x[n, d])`".to_owned(),
            ("dot", _) if named.is_some() || args.len() > 2 => "`dot` takes two tiles and accumulates in f32; its precision stands behind it, as in `dot(a, b).precision(tf32)`, and a sum before it, as in `acc += dot(a, b)`".to_owned(),
            ("cluster_sum", Some("axis")) => {
                let axis = args.iter().find_map(|a| match &a.kind {
                    ExprSyntaxKind::Named(_, axis) => number(Some(axis)),
                    _ => None,
                });
                format!("`cluster_sum` adds up the tiles of the programs and reduces no axis: write `cluster_sum(sum(x, axis = {}))`", axis.unwrap_or(1.0))
            }
            ("zeros" | "full", _) => {
                let value = if name == "full" { ", value" } else { "" };
                format!("the element type of `{name}` stands before its brackets, and its extents in brackets of their own: `{name}::<f32>([A, B]{value})`")
            }
            _ => return None,
        })
    }

    /// What to write instead of an argument of a reduction that it does not have.
    pub(crate) fn reduction_argument(name: &Ident, args: &[ExprSyntax]) -> Option<String> {
        let named = args.iter().find_map(|a| match &a.kind {
            ExprSyntaxKind::Named(what, _) if what != "axis" => Some(what.to_string()),
            _ => None,
        })?;
        Some(match named.as_str() {
            "keepdims" | "keepdim" | "keep_dims" => format!(
                "a reduced axis always stays, with extent 1: leave `{named}` out, as in `{name}(x, axis = 1)`; a store to a tensor without the axis drops it"
            ),
            "reverse" => "a reduction has no direction: leave `reverse` out; a scan from the last element down is `cumsum(x, axis = 1, reverse = true)`".to_owned(),
            _ => format!("the axis of a reduction is called `axis`: write `{name}(x, axis = 1)`"),
        })
    }
}
