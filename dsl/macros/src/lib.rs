//! `atlas_kernel!`: checks a kernel while Rust compiles, and expands to calls of the Tile IR builder.
//!
//! | file | does |
//! |---|---|
//! | `parse`, `ast` | from tokens to syntax, through `syn` |
//! | `signature`, `resolve*`, `tree` | resolves names, counts arguments, finds unused names |
//! | `check*`, `carried`, `symbolic` | checks element types, extents and edges as names, and which program writes what |
//! | `expand*` | Rust that calls the builder; what a kernel keeps of its doc comment |
//! | `fuse` | `fuse!`, which only has the names of kernels |
//! | `error` | every mistake, at the user's tokens |
//!
//! Codes. A mistake that is also one of Tile IR has the same code as there (ATL1xx, ATL2xx).
//!
//! | code | mistake |
//! |---|---|
//! | 001 | tokens that cannot be read |
//! | 002 | number out of range |
//! | 003 | unknown name |
//! | 004 | a name declared twice |
//! | 005 | unknown function or method |
//! | 020 | Rust that is not part of the language |
//! | 021 | number of arguments |
//! | 022 | unknown element type or bound; an element type where none is wanted |
//! | 023 | knob without usable values |
//! | 024 | unused name, needless `mut` |
//! | 025 | assignment to a name that is not `mut` |
//! | 026 | grid loop missing, repeated or malformed |
//! | 027 | unknown dim |
//! | 028 | tile size that is not a knob |
//! | 029 | recursion |
//! | 030 | unknown precision |
//! | 031 | dim, tensor or tile in a place of another kind |
//! | 119 | coordinate of one dim as the index of another |
//! | 120 | `or` without a constant |
#![warn(clippy::too_many_lines)]

mod ast;
mod carried;
mod check;
mod check_derivative;
mod check_loops;
mod check_memory;
mod check_operations;
mod error;
mod expand;
mod expand_derivative;
mod expand_docs;
mod expand_extent;
mod fuse;
mod names;
mod nesting;
mod parse;
mod parse_loop;
mod parse_tokens;
mod parse_tune;
mod parse_type;
mod parse_unsupported;
mod require;
mod resolve;
mod resolve_access;
mod resolve_derivative;
mod resolve_end;
mod resolve_expr;
mod signature;
mod symbolic;
mod tree;

use proc_macro_crate::{FoundCrate, crate_name};
use proc_macro2::{Ident, Span, TokenStream};
use quote::quote;

/// Declares tile fns and kernels. The language is described in `dsl/LANGUAGE.md`.
#[proc_macro]
pub fn atlas_kernel(input: proc_macro::TokenStream) -> proc_macro::TokenStream {
    declared(input.into(), root).into()
}

/// The output of `atlas_kernel!`: an error for each mistake, then the items.
fn declared(input: TokenStream, root: impl FnOnce(Option<syn::Path>) -> TokenStream) -> TokenStream {
    let mut errors = error::Errors::default();
    let (named, items) = parse::parse(input, &mut errors);
    let mut file = resolve::resolve(items, &mut errors);
    check::check(&mut file, &mut errors);
    let mut out = errors.into_tokens();
    out.extend(expand::expand(&file, &root(named)));
    out
}

/// Declares kernels that are made from several kernels in sequence: `pub kernel forward = features >> read(r = x) >> norm;`.
/// `dsl/LANGUAGE.md` says which can be fused.
#[proc_macro]
pub fn fuse(input: proc_macro::TokenStream) -> proc_macro::TokenStream {
    fuse::fuse(input.into()).into()
}

/// The path, in the crate that is being compiled, of the items that emitted code uses. `named` is the path in `#![crate =
/// path]`.
fn root(named: Option<syn::Path>) -> TokenStream {
    if let Some(path) = named {
        return quote!(#path::__macro);
    }
    // `CARGO_CRATE_NAME` tells a library from the examples and tests beside it, which name it as others do.
    let is_library = |name: &str| {
        std::env::var("CARGO_CRATE_NAME").is_ok_and(|c| c == name)
            && std::env::var_os("CARGO_BIN_NAME").is_none()
            && std::env::var_os("UNSTABLE_RUSTDOC_TEST_PATH").is_none()
    };
    for (package, library) in [("atlas", "atlas"), ("atlas-dsl", "atlas_dsl")] {
        match crate_name(package) {
            Ok(FoundCrate::Itself) if is_library(library) => return quote!(crate::__macro),
            Ok(FoundCrate::Itself) => {
                let library = Ident::new(library, Span::call_site());
                return quote!(::#library::__macro);
            }
            Ok(FoundCrate::Name(name)) => {
                let name = Ident::new(&name, Span::call_site());
                return quote!(::#name::__macro);
            }
            Err(_) => {}
        }
    }
    quote!(::atlas::__macro)
}

#[cfg(test)]
mod tests {
    use proc_macro2::{TokenStream, TokenTree};
    use quote::quote;

    /// The codes of the errors that the kernels in a Rust text give.
    fn codes(text: &str) -> Vec<String> {
        let tokens: Vec<TokenTree> = text.parse::<TokenStream>().unwrap().into_iter().collect();
        let kernels = tokens.windows(3).filter_map(|w| match w {
            [TokenTree::Ident(name), TokenTree::Punct(bang), TokenTree::Group(items)]
                if name == "atlas_kernel" && bang.as_char() == '!' =>
            {
                Some(items.stream())
            }
            _ => None,
        });
        let emitted = kernels.map(|items| super::declared(items, |_| quote!(atlas)).to_string()).collect::<String>();
        let errors = emitted.split("compile_error").skip(1);
        errors.filter_map(|e| Some(e.split_once("ATL")?.1[..3].to_owned())).collect()
    }

    /// A block of the language page that is marked with a code fails with that code. Every other block has no mistake.
    #[test]
    fn blocks_of_the_language_page_are_what_they_say() {
        let page = include_str!("../../LANGUAGE.md");
        let mut failing = 0;
        for block in page.split("```rust").skip(1) {
            let (tag, text) = block.split_once('\n').unwrap();
            let text = text.split("```").next().unwrap();
            match tag.strip_prefix(",compile_fail,ATL") {
                Some(code) => {
                    assert!(codes(text).contains(&code.to_owned()), "{:?} for ATL{code}:\n{text}", codes(text));
                    failing += 1;
                }
                None if tag.is_empty() => assert_eq!(codes(text), Vec::<String>::new(), "{text}"),
                None => assert_eq!(tag, ",ignore"),
            }
        }
        assert!(failing >= 7, "{failing} blocks that fail");
    }
}
