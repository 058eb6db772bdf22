//! `grad(f)(x, y)` and `jvp(f)(x, y, dx, dy)`.

use crate::ast::{ExprSyntax, ExprSyntaxKind, Mode};
use crate::names::{did_you_mean, elementwise, functions};
use crate::resolve::Resolver;
use crate::resolve_expr::unary_named;
use crate::tree::{Callee, Expr, ExprKind};
use atlas_vocabulary::{BinaryOp, Random, Takes};

impl Resolver<'_> {
    /// A derivative, and the number of tiles that it gives.
    pub(crate) fn derivative(&mut self, e: &ExprSyntax) -> Option<(ExprKind, usize)> {
        let ExprSyntaxKind::Derivative { mode, of, args } = &e.kind else { return None };
        let (mode, name) = (*mode, mode.name());
        let function = of;
        let of = &of.name;
        let builtin = unary_named(of).filter(|_| function.path.is_none());
        let (callee, params) = match (self.called(function), builtin) {
            (Some(index), _) => {
                let f = &self.fns[index];
                if f.is_device {
                    let message =
                        format!("`{name}` is of what works element by element; the device fn `{of}` does not");
                    self.errors.push(21, of.span(), message);
                    return None;
                }
                if f.results != 1 {
                    self.errors.push(21, of.span(), format!("`{of}` gives {} tiles; `{name}` is of one", f.results));
                    return None;
                }
                (Callee::Fn(index), f.params.clone())
            }
            (None, Some(op)) => (Callee::Builtin(op), vec!["x".to_owned()]),
            // Reported where it was read.
            (None, None) if function.path.is_some() => return None,
            (None, None) => {
                if ["max", "min", "select", "clamp", "fma", "pow", "atan2"].iter().any(|f| of == f) {
                    let message = format!(
                        "`{name}` is of a tile fn or of a function of one tile; write a `tile fn` that calls `{of}`"
                    );
                    self.errors.push(21, of.span(), message);
                    return None;
                }
                let text = of.to_string();
                let is_of_bits = BinaryOp::function(&text).is_some_and(|op| op.row().takes == Takes::Integers);
                if is_of_bits || Random::from_name(&text).is_some() {
                    let message = format!("`{name}` differentiates by floats; `{of}` is a function of whole numbers");
                    self.errors.push(21, of.span(), message);
                    return None;
                }
                if functions().any(|f| *of == f) {
                    self.errors.push(
                        21,
                        of.span(),
                        format!("`{name}` is of what works element by element; `{of}` does not"),
                    );
                    return None;
                }
                let hint = did_you_mean(&of.to_string(), elementwise().chain(self.tile_fns()));
                let message =
                    format!("`{name}` is of a tile fn or of a function such as `gelu`; unknown function `{of}`{hint}");
                self.errors.push(5, of.span(), message);
                return None;
            }
        };
        let tangents = match mode {
            Mode::Reverse => vec![],
            Mode::Forward => params.iter().map(|p| format!("d{p}")).collect(),
        };
        let wanted: Vec<&str> = params.iter().chain(&tangents).map(String::as_str).collect();
        if args.len() != wanted.len() {
            let (list, plural) = (wanted.join(", "), if wanted.len() == 1 { "" } else { "s" });
            let message =
                format!("`{name}({of})` takes {} argument{plural} ({list}), found {}", wanted.len(), args.len());
            self.errors.push(21, e.place, message);
            return None;
        }
        let mut args: Vec<Expr> = args.iter().map(|a| self.expr(a)).collect();
        let tangents = args.split_off(params.len());
        let results = if mode == Mode::Reverse { args.len() } else { 1 };
        Some((ExprKind::Derivative { mode, of: callee, args, tangents }, results))
    }
}
