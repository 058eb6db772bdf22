//! The syntax of a kernel behind its name: type parameters, parameters, `tune`, `require` and the body.

use crate::ast::{KernelSyntax, ParamSyntax, ParamSyntaxKind, TypeParam};
use crate::error::Errors;
use crate::parse::{block, expression};
use crate::parse_tokens::refuse_attributes;
use crate::parse_tune::knob;
use atlas_vocabulary::DType;
use proc_macro2::{Ident, TokenTree};
use syn::parse::{Parse, ParseStream};
use syn::{Token, braced, bracketed, parenthesized};

mod keyword {
    syn::custom_keyword!(tune);
    syn::custom_keyword!(require);
}

/// Reads a kernel from behind its name on.
pub(crate) fn kernel_rest(input: ParseStream<'_>, kernel: &mut KernelSyntax, errors: &mut Errors) -> syn::Result<()> {
    if input.peek(Token![<]) {
        input.parse::<Token![<]>()?;
        while !input.peek(Token![>]) {
            let name = input.parse()?;
            let bound = if input.peek(Token![:]) {
                input.parse::<Token![:]>()?;
                Some(input.parse()?)
            } else {
                None
            };
            kernel.types.push(TypeParam { name, bound });
            if !input.peek(Token![>]) {
                input.parse::<Token![,]>()?;
            }
        }
        input.parse::<Token![>]>()?;
    }
    let content;
    parenthesized!(content in input);
    kernel.params = content.parse_terminated(param, Token![,])?.into_iter().collect();
    let before = errors.count();
    refuse_result(input, errors)?;
    let (mut tuned, mut required) = (false, false);
    loop {
        let is_tune = input.peek(keyword::tune) && !tuned;
        if is_tune {
            input.parse::<keyword::tune>()?;
        } else if input.peek(keyword::require) && !required {
            input.parse::<keyword::require>()?;
        } else {
            break;
        }
        let content;
        braced!(content in input);
        if is_tune {
            tuned = true;
            kernel.tune = content.parse_terminated(knob, Token![,])?.into_iter().collect();
        } else {
            required = true;
            refuse_attributes(&content.cursor().token_stream(), errors);
            let conditions = content.parse_terminated(syn::Expr::parse, Token![,])?;
            kernel.requires = conditions.iter().filter_map(|e| expression(e, errors)).collect();
        }
    }
    if !input.peek(syn::token::Brace) {
        let form = "expected the body of the kernel in braces, behind one `tune` and one `require` at the most";
        return Err(input.error(form));
    }
    let mistaken = errors.count() > before;
    (kernel.body, kernel.broken) = block(input, None, errors)?;
    kernel.broken |= mistaken;
    Ok(())
}

/// Reports `-> f32` and `where T: Float`, and skips them.
fn refuse_result(input: ParseStream<'_>, errors: &mut Errors) -> syn::Result<()> {
    let message = if input.peek(Token![->]) {
        "a kernel has no result: it stores to a tensor that it is given, such as `y: &mut Tensor<f32, [N]>`"
    } else if input.peek(Token![where]) {
        "a kernel has no `where`: the bound stands where the type is named, as in `kernel NAME<T: Float>(..)`"
    } else {
        return Ok(());
    };
    errors.push(1, input.span(), message);
    let goes_on = || input.peek(syn::token::Brace) || input.peek(keyword::tune) || input.peek(keyword::require);
    while !input.is_empty() && !goes_on() {
        input.parse::<TokenTree>()?;
    }
    Ok(())
}

fn param(input: ParseStream<'_>) -> syn::Result<ParamSyntax> {
    let name: Ident = input.parse()?;
    let form = "write `x: &Tensor<f32, [N]>`, `y: &mut Tensor<f32, [N]>` to store to it, or `eps: f32` for a number";
    if !input.peek(Token![:]) {
        return Err(syn::Error::new(name.span(), format!("`{name}` has no type; {form}")));
    }
    input.parse::<Token![:]>()?;
    if !input.peek(Token![&]) {
        let place = input.span();
        let dtype: Ident =
            input.parse().map_err(|_| syn::Error::new(place, format!("no type of a parameter: {form}")))?;
        if dtype == "Tensor" {
            return Err(syn::Error::new(
                dtype.span(),
                format!("write `{name}: &Tensor<..>`, or `&mut` to store to it"),
            ));
        }
        if input.peek(Token![=]) {
            let message = format!(
                "a parameter has no default: each launch gives `{name}`; a number that never changes is a const outside of `atlas_kernel!`, as in `const {}: {dtype} = ..;`",
                name.to_string().to_uppercase()
            );
            return Err(input.error(message));
        }
        return Ok(ParamSyntax { name, kind: ParamSyntaxKind::Scalar { dtype } });
    }
    input.parse::<Token![&]>()?;
    let writable = input.parse::<Option<Token![mut]>>()?.is_some();
    let place = input.span();
    let tensor: Ident = input.parse().map_err(|_| syn::Error::new(place, format!("no type of a parameter: {form}")))?;
    if tensor != "Tensor" {
        let number = DType::ALL.iter().find(|d| tensor == d.name());
        let mend = number.map_or_else(String::new, |d| format!("; a number is passed by value: write `{name}: {d}`"));
        return Err(syn::Error::new(tensor.span(), format!("expected `Tensor<DTYPE, [DIMS]>`{mend}")));
    }
    input.parse::<Token![<]>()?;
    if input.peek(syn::token::Bracket) {
        return Err(input.error("the element type of a tensor stands before its dims, as in `Tensor<f32, [N, D]>`"));
    }
    let dtype = input.parse()?;
    input.parse::<Token![,]>()?;
    if !input.peek(syn::token::Bracket) {
        return Err(input.error("the dims of a tensor stand in brackets, as in `Tensor<f32, [N, D]>`"));
    }
    let content;
    bracketed!(content in input);
    let dim = |input: ParseStream<'_>| {
        let number: Option<syn::LitInt> = input.fork().parse().ok();
        let mend = number.map_or("such as `N`".to_owned(), |n| {
            format!("such as `D{n}`; that it is {n} is said before the body: `require {{ D{n} == {n} }}`")
        });
        input
            .parse::<Ident>()
            .map_err(|e| syn::Error::new(e.span(), format!("a dim is an upper-case name, {mend}")))
    };
    let dims = content.parse_terminated(dim, Token![,])?.into_iter().collect();
    input.parse::<Option<Token![,]>>()?;
    input.parse::<Token![>]>()?;
    Ok(ParamSyntax { name, kind: ParamSyntaxKind::Tensor { writable, dtype, dims } })
}
