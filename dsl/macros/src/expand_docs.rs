//! Documentation: the text that a kernel keeps of it, and the parameters that its page gets.

use crate::tree::{DTypeRef, Kernel, ParamKind};
use proc_macro2::TokenStream;
use quote::quote;
use syn::ext::IdentExt;

/// The text of doc comments, without what `rustfmt` puts before it.
pub(crate) fn doc_text(attrs: &[syn::Attribute]) -> String {
    let line = |a: &syn::Attribute| match &a.meta {
        syn::Meta::NameValue(m) if m.path.is_ident("doc") => match &m.value {
            syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(s), .. }) => Some(s.value()),
            _ => None,
        },
        _ => None,
    };
    let lines: Vec<String> =
        attrs.iter().filter_map(line).map(|l| l.strip_prefix(' ').unwrap_or(&l).to_owned()).collect();
    lines.join("\n").trim_end().to_owned()
}

/// What is added to the doc comment of a kernel: the type of its `static` says nothing of its parameters. A kernel without a
/// comment gets none, so that the compiler still warns of it.
pub(crate) fn documented_parameters(k: &Kernel) -> Option<TokenStream> {
    if doc_text(&k.ast.attrs).is_empty() {
        return None;
    }
    let lines: Vec<String> =
        k.params.iter().map(|p| format!("{}: {}", p.name.unraw(), type_text(k, p.dtype, &p.kind))).collect();
    let text = format!("\n\n# Parameters\n```text\n{}\n```", lines.join("\n"));
    Some(quote!(#[doc = #text]))
}

/// `&Tensor<T, [N, D]>`, as the user wrote it.
fn type_text(k: &Kernel, dtype: DTypeRef, kind: &ParamKind) -> String {
    let element = match dtype {
        DTypeRef::Fixed(d) => d.name().to_owned(),
        DTypeRef::Generic(i) => k.ast.types.get(i).map_or_else(String::new, |t| t.name.to_string()),
    };
    match kind {
        ParamKind::Scalar => element,
        ParamKind::Tensor { writable, dims } => {
            let dims: Vec<String> = dims.iter().map(|&d| k.dims[d].name.to_string()).collect();
            let reference = if *writable { "&mut " } else { "&" };
            format!("{reference}Tensor<{element}, [{}]>", dims.join(", "))
        }
    }
}
