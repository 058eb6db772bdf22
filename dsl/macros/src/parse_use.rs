//! Functions: their names and parameters where they are declared, paths where they are called, and those of other modules:
//! `use math::gelu2;`.

use crate::ast::{Called, Import};
use crate::error::{Errors, SourceRange};
use proc_macro2::{Delimiter, Ident, TokenStream, TokenTree};
use syn::parse::{ParseBuffer, ParseStream};
use syn::{Attribute, ItemUse, PathArguments, Token, UseTree, Visibility, parenthesized};

/// Names of types that have functions of their own, as `f32::sqrt`.
pub(crate) const PRIMITIVES: [&str; 19] = [
    "bf16", "bool", "char", "f16", "f32", "f64", "f128", "i8", "i16", "i32", "i64", "i128", "isize", "str", "u8",
    "u16", "u32", "u64", "usize",
];
/// Rust's libraries, which have no tile fns.
const LIBRARIES: [&str; 3] = ["std", "core", "alloc"];

/// The function that a path names, if it may be a tile fn: those of types and of Rust's libraries are none.
pub(crate) fn called(path: &syn::Path) -> Option<Called> {
    let last = path.segments.last()?;
    let name = last.ident.clone();
    let modules = path.segments.len() - 1;
    if modules == 0 {
        return path.leading_colon.is_none().then_some(Called { name, path: None });
    }
    let is_type = |text: &str| PRIMITIVES.contains(&text) || text.starts_with(|c: char| c.is_ascii_uppercase());
    for (i, segment) in path.segments.iter().take(modules).enumerate() {
        let text = segment.ident.to_string();
        let of_library = i == 0 && LIBRARIES.contains(&text.as_str());
        if !matches!(segment.arguments, PathArguments::None) || is_type(&text) || of_library {
            return None;
        }
    }
    let mut path = path.clone();
    if let Some(last) = path.segments.last_mut() {
        last.arguments = PathArguments::None;
    }
    Some(Called { name, path: Some(path) })
}

/// Reads `use math::{gelu2, silu as swish};`.
pub(crate) fn imports(
    input: ParseStream<'_>,
    attrs: &[Attribute],
    vis: &Visibility,
    errors: &mut Errors,
) -> syn::Result<Vec<Import>> {
    let item: ItemUse = input.parse()?;
    for attr in attrs {
        errors.push(20, SourceRange::of(attr), "an attribute has no meaning on a `use` in `atlas_kernel!`");
    }
    if !matches!(vis, Visibility::Inherited) {
        let message = "a `use` in `atlas_kernel!` is for its own items; write a `pub use` outside to pass a tile fn on";
        errors.push(20, SourceRange::of(vis), message);
    }
    let mut out = Vec::new();
    let start = syn::Path { leading_colon: item.leading_colon, segments: Default::default() };
    named(&item.tree, start, &mut out, errors);
    Ok(out)
}

/// The functions of a tree of names.
fn named(tree: &UseTree, mut path: syn::Path, out: &mut Vec<Import>, errors: &mut Errors) {
    let mut import = |name: &Ident, own: &Ident, mut path: syn::Path, errors: &mut Errors| {
        if own == "self" || name == "_" {
            errors.push(20, name.span(), "a `use` in `atlas_kernel!` names tile fns, as in `use math::gelu2;`");
            return;
        }
        path.segments.push(own.clone().into());
        out.push(Import { name: name.clone(), path });
    };
    match tree {
        UseTree::Path(p) => {
            path.segments.push(p.ident.clone().into());
            named(&p.tree, path, out, errors);
        }
        UseTree::Name(n) => import(&n.ident, &n.ident, path, errors),
        UseTree::Rename(r) => import(&r.rename, &r.ident, path, errors),
        UseTree::Group(g) => g.items.iter().for_each(|tree| named(tree, path.clone(), out, errors)),
        UseTree::Glob(g) => {
            let message = "a `use` in `atlas_kernel!` names each tile fn: `*` does not say which functions there are";
            errors.push(20, g.star_token.spans[0], message);
        }
    }
}

/// A function's name and parameters.
pub(crate) struct Signature<'i> {
    pub(crate) name: Ident,
    pub(crate) params: Vec<Ident>,
    /// Its text from the parameters on.
    pub(crate) written: ParseBuffer<'i>,
}

/// Reads a function from its name up to its body. Mistakes are reported, so that the body can be read all the same.
pub(crate) fn signature<'i>(input: ParseStream<'i>, what: &str, errors: &mut Errors) -> syn::Result<Signature<'i>> {
    let name: Ident = input.parse()?;
    if input.peek(Token![<]) {
        let place = skip_types(input)?;
        let message = format!(
            "a {what} fn has no type parameters: it is checked at each call, with the types that it gets there; write `{what} fn {name}(..)`, and `.cast_like(x)` where a type is needed"
        );
        errors.push(1, place, message);
    }
    let written = input.fork();
    if !input.peek(syn::token::Paren) {
        return Err(input.error(format!("a {what} fn has parameters: write `{what} fn {name}(x, y) {{ .. }}`")));
    }
    let content;
    parenthesized!(content in input);
    let mut params = Vec::new();
    while !content.is_empty() {
        params.push(param(&content, what, errors)?);
        if !content.is_empty() {
            content.parse::<Token![,]>()?;
        }
    }
    if input.peek(Token![->]) {
        errors.push(1, input.span(), format!("a {what} fn has no written types; remove the result type"));
        while !input.is_empty() && !input.peek(syn::token::Brace) {
            input.parse::<TokenTree>()?;
        }
    }
    Ok(Signature { name, params, written })
}

/// Skips `<T, ..>`.
fn skip_types(input: ParseStream<'_>) -> syn::Result<SourceRange> {
    let start = input.span();
    let mut end = start;
    while !input.is_empty() && !input.peek(syn::token::Paren) {
        end = input.parse::<TokenTree>()?.span();
    }
    Ok(SourceRange { start, end })
}

/// A parameter: a name alone.
fn param(input: ParseStream<'_>, what: &str, errors: &mut Errors) -> syn::Result<Ident> {
    let start = input.span();
    let by_reference = input.parse::<Option<Token![&]>>()?;
    let mutable = input.parse::<Option<Token![mut]>>()?;
    let name: Ident = input.parse().map_err(|e| {
        syn::Error::new(e.span(), format!("a parameter of a {what} fn is a name alone, as in `{what} fn f(x, y)`"))
    })?;
    if by_reference.is_some() {
        let message = format!("a parameter of a {what} fn is a name alone; write `{name}`");
        errors.push(1, SourceRange { start, end: name.span() }, message);
    } else if let Some(mutable) = mutable {
        let message =
            format!("a parameter is not `mut`: write `{name}`, and `let mut` another name with its value in the body");
        errors.push(1, SourceRange { start: mutable.span, end: name.span() }, message);
    }
    if input.peek(Token![:]) {
        let tokens = written_type(input)?;
        let kinds = if is_tensor(&tokens) {
            format!("write `{name}`, and give the tensor's name at the call")
        } else {
            format!("it takes the type that the call gives it; write `{name}`")
        };
        let message = format!("a parameter of a {what} fn has no written type: {kinds}");
        errors.push(1, SourceRange { start: name.span(), end: SourceRange::of(&tokens).end }, message);
    }
    Ok(name)
}

/// The type of a parameter, from the `:` to the comma that ends it.
fn written_type(input: ParseStream<'_>) -> syn::Result<TokenStream> {
    let (mut tokens, mut depth) = (TokenStream::new(), 0);
    while !input.is_empty() && (depth > 0 || !input.peek(Token![,])) {
        let tree: TokenTree = input.parse()?;
        if let TokenTree::Punct(p) = &tree {
            depth += i32::from(p.as_char() == '<') - i32::from(p.as_char() == '>');
        }
        tokens.extend([tree]);
    }
    Ok(tokens)
}

fn is_tensor(tokens: &TokenStream) -> bool {
    tokens.clone().into_iter().any(|tree| match tree {
        TokenTree::Ident(name) => name == "Tensor",
        TokenTree::Group(g) => g.delimiter() == Delimiter::None && is_tensor(&g.stream()),
        _ => false,
    })
}
