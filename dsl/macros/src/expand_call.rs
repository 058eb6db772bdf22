//! Calls of tile fns, and of the builder that differentiates them.

use crate::ast::Mode;
use crate::expand::{Writer, variant};
use crate::tree::{Callee, Expr, ExprKind, TileFn};
use proc_macro2::{Span, TokenStream};
use quote::{ToTokens, quote};
use syn::ext::IdentExt;

impl Writer<'_> {
    /// A Rust function of a device fn's name: it calls a tile fn that the device fn calls, by the input that declares it and its name.
    ///
    /// The body of the device fn is written out in kernels of other modules, which do not see private functions of its module.
    pub(crate) fn called_by_device_fn(&self, f: &TileFn, home: &str) -> TokenStream {
        let (root, file) = (self.root, self.file);
        let (name, vis, attrs) = (&f.ast.name, &f.ast.vis, &f.ast.attrs);
        let (mut arms, mut through) = (Vec::new(), Vec::new());
        for &index in f.uses.values() {
            let called = &file.fns[index];
            let (home, text) = (called.origin.as_ref().map_or(home, |o| &o.home), called.ast.name.unraw().to_string());
            if called.ast.is_device {
                let path = match &called.origin {
                    None => called.ast.name.to_token_stream(),
                    Some(origin) => origin.path.to_token_stream(),
                };
                through.push(quote! {
                    if let ::core::option::Option::Some(given) = #path(__atlas_b, __atlas_home, __atlas_name, __atlas_args) {
                        return ::core::option::Option::Some(given);
                    }
                });
                continue;
            }
            let args: Vec<TokenStream> = (0..called.ast.params.len()).map(|i| quote!(__atlas_args[#i])).collect();
            let call = self.call_of(index, &args, name.span());
            let given = if called.results == 1 { quote!(::std::vec![#call]) } else { quote!(#call.to_vec()) };
            arms.push(quote!((#home, #text) => return ::core::option::Option::Some(#given),));
        }
        quote! {
            #(#attrs)*
            #[allow(unused, non_snake_case, clippy::all, reason = "expanded from a device fn")]
            #vis fn #name(
                __atlas_b: &mut #root::Builder,
                __atlas_home: &str,
                __atlas_name: &str,
                __atlas_args: &[#root::Operand],
            ) -> ::core::option::Option<::std::vec::Vec<#root::Operand>> {
                match (__atlas_home, __atlas_name) {
                    #(#arms)*
                    _ => {}
                }
                #(#through)*
                ::core::option::Option::None
            }
        }
    }

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
    pub(crate) fn call_of(&self, index: usize, args: &[TokenStream], token: Span) -> TokenStream {
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
        if origin.is_through_device {
            let (home, name) = (&origin.home, f.ast.name.unraw().to_string());
            let one = (f.results == 1).then(|| quote!([0]));
            let call = quote!(#path(__atlas_b, #home, #name, &[#(#args),*]).unwrap_or_default()#one);
            return quote!(__atlas_b.call_elsewhere(#loc, |__atlas_b: &mut #root::Builder| #call));
        }
        quote!(__atlas_b.call_elsewhere(#loc, |__atlas_b: &mut #root::Builder| #path(__atlas_b #(, #args)*)))
    }

    /// Functions of the builder that take tiles alone.
    pub(crate) fn composed(&mut self, e: &Expr, out: &mut TokenStream) -> TokenStream {
        let (root, loc) = (self.root, self.loc(e.token));
        match &e.kind {
            ExprKind::Scan { op, value, axis: (axis, _), reverse } => {
                let (x, op) = (self.operand(value, out), variant(op.variant()));
                quote!(__atlas_b.scan(#loc, #root::ReduceOp::#op, #x, #axis, #reverse))
            }
            ExprKind::Clamp(parts) => {
                let [x, lo, hi] = [0, 1, 2].map(|i| self.operand(&parts[i], out));
                quote!(__atlas_b.clamp(#loc, #x, #lo, #hi))
            }
            ExprKind::Fma(parts) => {
                let [a, b, c] = [0, 1, 2].map(|i| self.operand(&parts[i], out));
                quote!(__atlas_b.fma(#loc, #a, #b, #c))
            }
            ExprKind::IsNan(x) => {
                let x = self.operand(x, out);
                quote!(__atlas_b.is_nan(#loc, #x))
            }
            ExprKind::Random(of, parts) => {
                let ([seed, index], of) = ([0, 1].map(|i| self.operand(&parts[i], out)), variant(of.variant()));
                quote!(__atlas_b.random(#loc, #root::Random::#of, #seed, #index))
            }
            ExprKind::Transpose(x) => {
                let x = self.operand(x, out);
                quote!(__atlas_b.transpose(#loc, #x))
            }
            ExprKind::ClusterSum(x) => {
                let x = self.operand(x, out);
                quote!(__atlas_b.cluster_sum(#loc, #x))
            }
            _ => TokenStream::new(),
        }
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
