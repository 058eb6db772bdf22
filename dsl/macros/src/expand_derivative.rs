//! Calls of the builder that differentiate a function.

use crate::ast::Mode;
use crate::expand::{Writer, variant};
use crate::tree::{Callee, Expr, ExprKind};
use proc_macro2::TokenStream;
use quote::quote;

impl Writer<'_> {
    /// A list of partial derivatives, or the derivative along tangents.
    pub(crate) fn derivative(&mut self, e: &Expr, out: &mut TokenStream) -> Option<TokenStream> {
        let ExprKind::Derivative { mode, of, args, tangents } = &e.kind else { return None };
        let (root, loc) = (self.root, self.loc(e.token));
        let slots = 0..args.len();
        let call = match of {
            Callee::Fn(index) => {
                let name = self.called(*index, e.token);
                quote!(#name(__atlas_b #(, __atlas_args[#slots])*))
            }
            Callee::Builtin(op) => {
                let op = variant(op.variant());
                quote!(__atlas_b.unary(#loc, #root::UnaryOp::#op, __atlas_args[0]))
            }
        };
        let args: Vec<TokenStream> = args.iter().map(|a| self.operand(a, out)).collect();
        let f = quote!(|__atlas_b: &mut #root::Builder, __atlas_args| #call);
        Some(match mode {
            Mode::Reverse => quote!(__atlas_b.gradient(#loc, [#(#args),*], #f)),
            Mode::Forward => {
                let tangents: Vec<TokenStream> = tangents.iter().map(|a| self.operand(a, out)).collect();
                quote!(__atlas_b.jvp(#loc, [#(#args),*], [#(#tangents),*], #f))
            }
        })
    }
}
