//! Calls of tile fns, and of the builder that differentiates them.

use crate::ast::Mode;
use crate::expand::{Writer, variant};
use crate::tree::{Callee, Expr, ExprKind};
use proc_macro2::{Span, TokenStream};
use quote::{ToTokens, quote};

impl Writer<'_> {
    /// What a function gives: an operand, or a list of them.
    pub(crate) fn call(&mut self, e: &Expr, out: &mut TokenStream) -> Option<TokenStream> {
        match &e.kind {
            ExprKind::CallFn { index, args } => {
                let args: Vec<TokenStream> = args.iter().map(|a| self.operand(a, out)).collect();
                Some(self.call_of(*index, &args, e.token))
            }
            ExprKind::Derivative { .. } => self.derivative(e, out),
            _ => None,
        }
    }

    /// A call of a tile fn. What one of another module appends stands where it is called: its own lines are of another file.
    fn call_of(&self, index: usize, args: &[TokenStream], token: Span) -> TokenStream {
        let f = &self.file.fns[index];
        let Some(origin) = &f.origin else {
            let mut name = f.ast.name.clone();
            name.set_span(token);
            return quote!(#name(__atlas_b #(, #args)*));
        };
        let (root, loc, mut path) = (self.root, self.loc(token), origin.path.clone());
        if let Some(last) = path.segments.last_mut() {
            last.ident.set_span(token);
        }
        let path = path.to_token_stream();
        quote!(__atlas_b.call_elsewhere(#loc, |__atlas_b: &mut #root::Builder| #path(__atlas_b #(, #args)*)))
    }

    /// A list of partial derivatives, or the derivative along tangents.
    fn derivative(&mut self, e: &Expr, out: &mut TokenStream) -> Option<TokenStream> {
        let ExprKind::Derivative { mode, of, args, tangents } = &e.kind else { return None };
        let (root, loc) = (self.root, self.loc(e.token));
        let call = match of {
            Callee::Fn(index) => {
                let given: Vec<TokenStream> = (0..args.len()).map(|slot| quote!(__atlas_args[#slot])).collect();
                self.call_of(*index, &given, e.token)
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
