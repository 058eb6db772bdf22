//! Extents of tiles: Rust that computes them when a kernel is built.

use crate::expand::{Writer, dim_variable, knob_variable, variant};
use crate::tree::Extent;
use atlas_vocabulary::BinaryOp;
use proc_macro2::{Span, TokenStream};
use quote::{ToTokens, quote, quote_spanned};

impl Writer<'_> {
    /// The u32 value of an extent.
    pub(crate) fn extent(&mut self, e: &Extent, span: Span, out: &mut TokenStream) -> TokenStream {
        match e {
            Extent::Number(n) => quote!(#n),
            Extent::Knob(i) => {
                let knob = knob_variable(&self.knobs[*i].name);
                quote!(#knob)
            }
            Extent::Dim(i) => {
                let (d, loc) = (dim_variable(*i), self.loc(span));
                self.bind(quote!(__atlas_b.dim_extent(#loc, #d)), out)
            }
            Extent::Const(_) | Extent::Combined(..) => {
                let (value, loc, text) = (self.whole_number(e, span, out), self.loc(span), self.extent_text(e));
                self.bind(quote!(__atlas_b.extent(#loc, #text, #value)), out)
            }
            Extent::Bad => quote!(1),
        }
    }

    /// The i64 value of an extent or of a part of one. A part may be 0 or less.
    fn whole_number(&mut self, e: &Extent, span: Span, out: &mut TokenStream) -> TokenStream {
        let root = self.root;
        match e {
            Extent::Const(path) => quote_spanned!(span=> #root::ConstExtent::extent(#path)),
            Extent::Combined(op, a, b) => {
                let (a, b) = (self.whole_number(a, span, out), self.whole_number(b, span, out));
                let (op, loc, text) = (variant(op.variant()), self.loc(span), self.extent_text(e));
                self.bind(quote!(__atlas_b.extent_of(#loc, #text, #root::BinaryOp::#op, #a, #b)), out)
            }
            _ => {
                let number = self.extent(e, span, out);
                quote!(::core::primitive::i64::from(#number))
            }
        }
    }

    /// An extent as it is written, for messages.
    fn extent_text(&self, e: &Extent) -> String {
        match e {
            Extent::Number(n) => n.to_string(),
            Extent::Knob(i) => self.knobs[*i].name.to_string(),
            Extent::Dim(i) => self.dims.get(*i).map_or(String::new(), |d| d.name.to_string()),
            Extent::Const(path) => path.to_token_stream().to_string().replace(' ', ""),
            Extent::Combined(op, a, b) => {
                let is_sum = |op: &BinaryOp| matches!(op, BinaryOp::Add | BinaryOp::Sub);
                let looser = matches!(&**a, Extent::Combined(inner, ..) if is_sum(inner)) && !is_sum(op);
                let made = matches!(**b, Extent::Combined(..)) && *op != BinaryOp::Add;
                let side = |e: &Extent, inner| match (self.extent_text(e), inner) {
                    (text, true) => format!("({text})"),
                    (text, false) => text,
                };
                format!("{} {} {}", side(a, looser), op.text(), side(b, made))
            }
            Extent::Bad => String::new(),
        }
    }

    pub(crate) fn extents(&mut self, list: &[Extent], span: Span, out: &mut TokenStream) -> TokenStream {
        let list: Vec<TokenStream> = list.iter().map(|e| self.extent(e, span, out)).collect();
        quote!(&[#(#list),*])
    }
}
