//! Scans: `cumsum(x, axis = 0)`, and with `reverse = true`.

use crate::ast::{ExprSyntax, ExprSyntaxKind};
use crate::resolve::Resolver;
use crate::tree::ExprKind;
use atlas_vocabulary::ReduceOp;
use proc_macro2::Ident;

impl Resolver<'_> {
    pub(crate) fn scan(&mut self, e: &ExprSyntax, name: &Ident, args: &[ExprSyntax]) -> Option<ExprKind> {
        let op = ReduceOp::of_scan(&name.to_string())?;
        let named = |i: usize, what: &str| match &args.get(i)?.kind {
            ExprSyntaxKind::Named(is, value) if is == what => Some(&**value),
            _ => None,
        };
        let flag = |value: &ExprSyntax| match value.kind {
            ExprSyntaxKind::Literal { value, whole: true } => Some(value != 0.0),
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
}
