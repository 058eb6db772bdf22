//! Types as they are written in kernels: one name each.

use proc_macro2::Ident;

/// The name of a type, even if it is a `$t:ty` of a user's macro.
pub(crate) fn type_name(ty: &syn::Type) -> Option<Ident> {
    match ty {
        syn::Type::Path(p) if p.qself.is_none() => p.path.get_ident().cloned(),
        syn::Type::Group(g) => type_name(&g.elem),
        syn::Type::Paren(p) => type_name(&p.elem),
        _ => None,
    }
}
