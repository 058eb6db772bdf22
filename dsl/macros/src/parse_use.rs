//! Functions of other modules: `use math::gelu2;`, and paths where functions are called.

use crate::ast::{Called, Import};
use crate::error::{Errors, SourceRange};
use proc_macro2::Ident;
use syn::parse::ParseStream;
use syn::{Attribute, ItemUse, PathArguments, UseTree, Visibility};

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
