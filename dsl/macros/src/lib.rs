//! `atlas_kernel!`: checks a kernel while Rust compiles, and expands to calls of the Tile IR builder.
//!
//! | file | does |
//! |---|---|
//! | `parse`, `ast` | tokens to syntax, through `syn` |
//! | `import`, `share` | tile fns of other modules: how their text comes here, and goes there |
//! | `signature`, `resolve*`, `tree` | names to what they mean; counts of arguments; what is unused |
//! | `check*`, `carried`, `symbolic` | element types, extents and edges, by name; who writes what |
//! | `expand` | Rust that calls the builder |
//! | `fuse` | `fuse!`, which names kernels and sees none |
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
mod check_regions;
mod device_fn;
mod error;
mod expand;
mod expand_call;
mod expand_docs;
mod expand_extent;
mod fuse;
mod import;
mod names;
mod nesting;
mod parse;
mod parse_kernel;
mod parse_loop;
mod parse_tokens;
mod parse_unsupported;
mod parse_use;
mod require;
mod resolve;
mod resolve_access;
mod resolve_call;
mod resolve_derivative;
mod resolve_device;
mod resolve_elsewhere;
mod resolve_end;
mod resolve_expr;
mod resolve_fns;
mod share;
mod signature;
mod symbolic;
mod tree;

use proc_macro_crate::{FoundCrate, crate_name};
use proc_macro2::{Ident, Span, TokenStream};
use quote::{ToTokens, quote};

/// Declares tile fns and kernels. The language is described in `docs/src/kernel-language.md`.
#[proc_macro]
pub fn atlas_kernel(input: proc_macro::TokenStream) -> proc_macro::TokenStream {
    declared(input.into(), &[], atlas).into()
}

/// `atlas_kernel!` with the text of tile fns of other modules, which it calls itself.
#[doc(hidden)]
#[proc_macro]
pub fn atlas_kernel_with(input: proc_macro::TokenStream) -> proc_macro::TokenStream {
    match syn::parse::<import::Step>(input) {
        Ok(step) => declared(step.input, &step.packages, atlas).into(),
        Err(e) => e.into_compile_error().into(),
    }
}

/// What `atlas_kernel!` emits: an error for each mistake, then the items. If tile fns of other modules are called whose text
/// is not among the packages, it is a call for the first of these instead.
fn declared(
    input: TokenStream,
    packages: &[TokenStream],
    atlas: impl FnOnce(Option<syn::Path>) -> TokenStream,
) -> TokenStream {
    let mut errors = error::Errors::default();
    let (named, items) = parse::parse(input.clone(), &mut errors);
    let atlas = atlas(named);
    let wanted = import::wanted(&items);
    if let Some(path) = wanted.get(packages.len()) {
        return import::fetch(path, &with_path(&atlas), packages, &input);
    }
    let mut imported = Vec::new();
    for (path, package) in wanted.into_iter().zip(packages) {
        let package = import::read(package.clone());
        if package.is_none() {
            errors.push(5, error::SourceRange::of(&path), format!("`{}` is no tile fn", ast::path_key(&path)));
        }
        imported.push((path, package));
    }
    let mut file = resolve::resolve(items, imported, &mut errors);
    check::check(&mut file, &mut errors);
    let mut out = errors.into_tokens();
    out.extend(expand::expand(&file, &quote!(#atlas::__macro)));
    out
}

/// The path of `atlas_kernel_with!`: of this crate, if the one that is being compiled names it, and otherwise of Atlas.
fn with_path(atlas: &TokenStream) -> TokenStream {
    let package = "atlas-gpu-macros";
    match crate_name(package) {
        Ok(FoundCrate::Name(name)) => {
            let name = library_name(package, "atlas_macros", &name);
            quote!(::#name::atlas_kernel_with)
        }
        Ok(FoundCrate::Itself) => quote!(::atlas_macros::atlas_kernel_with),
        Err(_) => quote!(#atlas::__atlas_kernel_with),
    }
}

/// The name of a package's library where it is a dependency under the name `found`: that of the library, unless the dependency is
/// renamed.
fn library_name(package: &str, library: &str, found: &str) -> Ident {
    let name = if found == package.replace('-', "_") { library } else { found };
    Ident::new(name, Span::call_site())
}

/// Declares kernels made of kernels that follow each other: `pub kernel forward = features >> read(r = x) >> norm;`.
/// `docs/src/kernel-language.md` says which can be fused.
#[proc_macro]
pub fn fuse(input: proc_macro::TokenStream) -> proc_macro::TokenStream {
    fuse::fuse(input.into()).into()
}

/// The path of what emitted code calls.
fn root(named: Option<syn::Path>) -> TokenStream {
    let atlas = atlas(named);
    quote!(#atlas::__macro)
}

/// The path of Atlas in the crate that is being compiled; `named` is what `#![crate = path]` says.
fn atlas(named: Option<syn::Path>) -> TokenStream {
    if let Some(path) = named {
        return path.into_token_stream();
    }
    // `CARGO_CRATE_NAME` tells a library from the examples and tests beside it, which name it as others do.
    let is_library = |name: &str| {
        std::env::var("CARGO_CRATE_NAME").is_ok_and(|c| c == name)
            && std::env::var_os("CARGO_BIN_NAME").is_none()
            && std::env::var_os("UNSTABLE_RUSTDOC_TEST_PATH").is_none()
    };
    for (package, library) in [("atlas-gpu", "atlas"), ("atlas-gpu-dsl", "atlas_dsl")] {
        match crate_name(package) {
            Ok(FoundCrate::Itself) if is_library(library) => return quote!(crate),
            Ok(FoundCrate::Itself) => {
                let library = Ident::new(library, Span::call_site());
                return quote!(::#library);
            }
            Ok(FoundCrate::Name(name)) => {
                let name = library_name(package, library, &name);
                return quote!(::#name);
            }
            Err(_) => {}
        }
    }
    quote!(::atlas)
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
        let emitted =
            kernels.map(|items| super::declared(items, &[], |_| quote!(atlas)).to_string()).collect::<String>();
        let errors = emitted.split("compile_error").skip(1);
        errors.filter_map(|e| Some(e.split_once("ATL")?.1[..3].to_owned())).collect()
    }

    /// A block of the language page that is marked with a code fails with that code. Every other block has no mistake.
    #[test]
    fn blocks_of_the_language_page_are_what_they_say() {
        let page = include_str!("../../../docs/src/kernel-language.md");
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
