//! Device functions: what they give and call, and what their parameters stand for. `resolve_device` inlines them.

use crate::ast::{Called, ExprSyntax, ExprSyntaxKind, StmtSyntax, TileFnSyntax};
use crate::names::is_store;
use crate::tree::{Expr, ExprKind, Extent, Stmt};
use proc_macro2::{Ident, TokenStream, TokenTree};
use std::collections::BTreeMap;

/// What a parameter of a device fn stands for, if that is no value.
#[derive(Clone)]
pub(crate) enum Alias {
    /// A tensor of the kernel.
    Tensor(usize),
    /// A dim, a tile size or another extent.
    Size(Extent),
}

/// A device fn while its body is resolved: the only names that it sees are its own.
pub(crate) struct Frame {
    pub(crate) index: usize,
    pub(crate) name: Ident,
    pub(crate) aliases: BTreeMap<String, Alias>,
    /// It is one of another module, where the kernel does not see its consts.
    pub(crate) is_foreign: bool,
}

impl Frame {
    /// What a parameter stands for, if that is no value.
    pub(crate) fn stands_for(&self, name: &Ident) -> Option<&Alias> {
        self.aliases.get(&name.to_string())
    }
}

/// How many tiles a device fn gives: those of its last expression, if that has no `;`.
pub(crate) fn results(body: &[StmtSyntax]) -> usize {
    match body.last() {
        Some(StmtSyntax::Expr { value, last: true }) => match &value.kind {
            ExprSyntaxKind::Tuple(list) => list.len(),
            ExprSyntaxKind::Call { name, .. } if is_store(&name.to_string()) => 0,
            _ => 1,
        },
        _ => 0,
    }
}

/// Takes a product out of the call that gives it, so that `+=` accumulates it, as it does where it is written out.
pub(crate) fn take_product(result: Expr, out: &mut [Stmt]) -> Expr {
    let ExprKind::Local(name) = result.kind else { return result };
    let Some(Stmt::Inlined { body, .. }) = out.last_mut() else { return result };
    match body.last() {
        Some(Stmt::Let { local, value: Expr { kind: ExprKind::Dot { .. }, .. } }) if *local == name => {
            if let Some(Stmt::Let { value, .. }) = body.pop() { value } else { result }
        }
        Some(Stmt::Inlined { .. }) => take_product(result, body),
        _ => result,
    }
}

/// The function that an expression calls, the element types that it is given, and its arguments.
pub(crate) fn called(e: &ExprSyntax) -> Option<(Called, &[Ident], &[ExprSyntax])> {
    match &e.kind {
        ExprSyntaxKind::Call { name, generics, args } => Some((Called::named(name), generics, args)),
        ExprSyntaxKind::CallPath { of, generics, args } => Some((of.clone(), generics, args)),
        _ => None,
    }
}

/// The function whose results a device fn gives as its own, if it ends in a call.
pub(crate) fn ends_in(f: &TileFnSyntax) -> Option<Called> {
    match f.body.last() {
        Some(StmtSyntax::Expr { value, last: true }) if f.is_device => called(value).map(|(of, ..)| of),
        _ => None,
    }
}

/// Whether a name stands in the body, which is the last group.
pub(crate) fn mentions(tokens: &TokenStream, name: &Ident) -> bool {
    fn any(tokens: TokenStream, name: &Ident) -> bool {
        tokens.into_iter().any(|tree| match tree {
            TokenTree::Ident(found) => found == *name,
            TokenTree::Group(group) => any(group.stream(), name),
            _ => false,
        })
    }
    tokens.clone().into_iter().last().is_some_and(|body| any(body.into(), name))
}
