//! `fuse!`: from names of kernels to a fusion, which `atlas_dsl::fuse` turns into one kernel.

use crate::error::Errors;
use crate::parse::named_crate;
use crate::parse_tokens::plain_names;
use proc_macro2::{Ident, TokenStream};
use quote::{ToTokens, quote};
use syn::ext::IdentExt;
use syn::parse::{Parse, ParseStream, Parser};
use syn::{Attribute, Path, Token, Visibility, parenthesized};

mod keyword {
    syn::custom_keyword!(kernel);
}

/// `pub kernel name(keep_f32) = first >> second(x = y);`
struct Fused {
    attrs: Vec<Attribute>,
    vis: Visibility,
    name: Ident,
    options: Vec<Ident>,
    parts: Vec<Part>,
}

/// A kernel and the new names of its parameters.
struct Part {
    kernel: Path,
    names: Vec<(Ident, Ident)>,
}

impl Parse for Part {
    fn parse(input: ParseStream<'_>) -> syn::Result<Part> {
        let kernel = Path::parse_mod_style(input)?;
        let mut names = Vec::new();
        if input.peek(syn::token::Paren) {
            let content;
            parenthesized!(content in input);
            let rename = |input: ParseStream<'_>| {
                let old = Ident::parse_any(input)?;
                input.parse::<Token![=]>()?;
                Ok((old, Ident::parse_any(input)?))
            };
            names.extend(content.parse_terminated(rename, Token![,])?);
        }
        Ok(Part { kernel, names })
    }
}

impl Parse for Fused {
    fn parse(input: ParseStream<'_>) -> syn::Result<Fused> {
        let attrs = Attribute::parse_outer(input)?;
        let vis = input.parse()?;
        if !input.peek(keyword::kernel) {
            return Err(input.error("expected `kernel NAME = FIRST >> SECOND;`"));
        }
        input.parse::<keyword::kernel>()?;
        let name = input.parse()?;
        let mut options = Vec::new();
        if input.peek(syn::token::Paren) {
            let content;
            parenthesized!(content in input);
            options.extend(content.parse_terminated(Ident::parse, Token![,])?);
        }
        input.parse::<Token![=]>()?;
        let mut parts = vec![input.parse()?];
        while input.peek(Token![>>]) {
            input.parse::<Token![>>]>()?;
            parts.push(input.parse()?);
        }
        input.parse::<Token![;]>()?;
        Ok(Fused { attrs, vis, name, options, parts })
    }
}

/// Rust for every fused kernel of the macro's input.
pub(crate) fn fuse(tokens: TokenStream) -> TokenStream {
    let mut errors = Errors::default();
    let mut named = None;
    let read = |input: ParseStream<'_>| {
        named = named_crate(input)?;
        let mut all = Vec::new();
        while !input.is_empty() {
            all.push(input.parse::<Fused>()?);
        }
        Ok(all)
    };
    let all = match Parser::parse2(read, plain_names(tokens)) {
        Ok(all) => all,
        Err(e) => {
            e.clone().into_iter().for_each(|e| errors.push(1, e.span(), &e));
            Vec::new()
        }
    };
    let (root, mut out) = (crate::root(named), TokenStream::new());
    for fused in &all {
        check(fused, &mut errors);
        out.extend(expand(fused, &root));
    }
    let mut tokens = errors.into_tokens();
    tokens.extend(out);
    tokens
}

fn check(fused: &Fused, errors: &mut Errors) {
    for option in fused.options.iter().filter(|o| *o != "keep_f32") {
        errors.push(3, option.span(), format!("no option of a fusion is called `{option}`; there is `keep_f32`"));
    }
    if let [one] = &fused.parts[..] {
        let span = syn::spanned::Spanned::span(&one.kernel);
        errors.push(21, span, "a fusion is of two kernels at least: `first >> second`");
    }
    for part in &fused.parts {
        for (i, (old, _)) in part.names.iter().enumerate() {
            if part.names[..i].iter().any(|(o, _)| o == old) {
                errors.push(4, old.span(), format!("`{old}` is renamed twice"));
            }
        }
    }
}

fn expand(fused: &Fused, root: &TokenStream) -> TokenStream {
    let Fused { attrs, vis, name, options, parts } = fused;
    let (text, doc) = (name.unraw().to_string(), crate::expand_docs::doc_text(attrs));
    let keep = options.iter().any(|o| o == "keep_f32");
    let parts = parts.iter().map(|part| {
        let kernel = part.kernel.to_token_stream();
        let names = part.names.iter().map(|(old, new)| {
            let (old, new) = (old.unraw().to_string(), new.unraw().to_string());
            quote!((#old, #new))
        });
        quote!(#root::Part { kernel: &#kernel, names: &[#(#names),*] })
    });
    let register = crate::expand::register(name, root);
    quote! {
        #(#attrs)*
        #[allow(non_upper_case_globals, reason = "a kernel is used like a function")]
        #vis static #name: #root::Fused = {
            #register
            #root::Fused::new(#root::Fusion {
                name: #text,
                doc: #doc,
                file: ::core::file!(),
                parts: &[#(#parts),*],
                keep_f32: #keep,
            })
        };
    }
}
