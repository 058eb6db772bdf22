//! The syntax of a kernel between its name and its body: type parameters, parameters, and `tune` with its knobs and their values.

use crate::ast::{KernelSyntax, Knob, ParamSyntax, ParamSyntaxKind, TypeParam};
use crate::error::Errors;
use crate::parse_tokens::refuse_attributes;
use atlas_vocabulary::{DType, ScheduleKey, Setting};
use proc_macro2::{Ident, TokenTree};
use syn::parse::{Parse, ParseStream};
use syn::{Token, braced, bracketed, parenthesized};

mod keyword {
    syn::custom_keyword!(tune);
    syn::custom_keyword!(require);
}

/// Reads a kernel from behind its name up to its body. Returns what it requires.
pub(crate) fn kernel_head(
    input: ParseStream<'_>,
    kernel: &mut KernelSyntax,
    errors: &mut Errors,
) -> syn::Result<Vec<syn::Expr>> {
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
    refuse_result(input, errors)?;
    let (mut tuned, mut required) = (false, None);
    loop {
        let is_tune = input.peek(keyword::tune) && !tuned;
        if is_tune {
            input.parse::<keyword::tune>()?;
        } else if input.peek(keyword::require) && required.is_none() {
            input.parse::<keyword::require>()?;
        } else {
            break;
        }
        if !input.peek(syn::token::Brace) {
            let what = if is_tune {
                "knobs stand in braces: `tune { BN: [64, 128] }`"
            } else {
                "conditions stand in braces: `require { N == 64 }`"
            };
            return Err(input.error(what));
        }
        let content;
        braced!(content in input);
        if is_tune {
            tuned = true;
            kernel.tune = content.parse_terminated(knob, Token![,])?.into_iter().collect();
        } else {
            refuse_attributes(&content.cursor().token_stream(), errors);
            required = Some(content.parse_terminated(syn::Expr::parse, Token![,])?);
        }
    }
    if !input.peek(syn::token::Brace) {
        let form = "expected the body of the kernel in braces, behind one `tune` and one `require` at the most";
        return Err(input.error(form));
    }
    Ok(required.into_iter().flatten().collect())
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
    if input.peek(Token![&]) {
        return Err(input.error("the `&` of a parameter stands before its type: `x: &Tensor<f32, [N]>`"));
    }
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
    if !input.peek(Token![,]) {
        return Err(input.error("the dims of a tensor stand behind its element type, as in `Tensor<f32, [N, D]>`"));
    }
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
        input.parse::<Ident>().map_err(|e| syn::Error::new(e.span(), format!("a dim is an upper-case name, {mend}")))
    };
    let dims = content.parse_terminated(dim, Token![,])?.into_iter().collect();
    input.parse::<Option<Token![,]>>()?;
    input.parse::<Token![>]>()?;
    Ok(ParamSyntax { name, kind: ParamSyntaxKind::Tensor { writable, dtype, dims } })
}

/// The most values of a knob.
const MOST_VALUES: u32 = 1024;

/// `BN: [64, 128]`, `stages: 2..=4` or `order: [linear, groups(8)]`.
fn knob(input: ParseStream<'_>) -> syn::Result<Knob> {
    let name: Ident = input.parse()?;
    if input.peek(Token![=]) {
        return Err(input.error(format!("the values of a knob stand behind a `:`, as in `{name}: [..]`")));
    }
    input.parse::<Token![:]>()?;
    let number = |input: ParseStream<'_>| {
        let at = input.span();
        let value = input.parse::<syn::LitInt>().and_then(|n| n.base10_parse::<u32>());
        value.map_err(|_| {
            syn::Error::new(at, "a tile size is a whole number above 0, written in digits: `BN: [64, 128]`")
        })
    };
    let key = ScheduleKey::named(&name.to_string());
    let values = if input.peek(syn::token::Bracket) {
        let content;
        bracketed!(content in input);
        let mut values = Vec::new();
        while !content.is_empty() {
            values.push(match key {
                Some(key) => setting(key, &content)?,
                None => Setting::Number(number(&content)?),
            });
            refuse_range(&name, &values, &content)?;
            if !content.is_empty() {
                content.parse::<Token![,]>()?;
            }
        }
        values
    } else {
        if let Some(key) = key {
            let (start, value) = (input.span(), setting(key, &input.fork())?);
            if !matches!(value, Setting::Number(_)) {
                let message = format!("the values of `{name}` stand in brackets: write `{name}: [{value}]`");
                return Err(syn::Error::new(start, message));
            }
        }
        let lo = number(input)?;
        if !input.peek(Token![..=]) {
            let end = if input.is_empty() || input.peek(Token![,]) {
                format!("; a single value stands in brackets too: `{name}: [{lo}]`")
            } else {
                String::new()
            };
            return Err(syn::Error::new(input.span(), format!("the values of a knob are `[64, 128]` or `2..=4`{end}")));
        }
        input.parse::<Token![..=]>()?;
        let (last, hi) = (input.span(), number(input)?);
        if hi < lo {
            return Err(syn::Error::new(
                last,
                format!("{lo}..={hi} is empty: the first value of a range is the least"),
            ));
        }
        if hi.saturating_sub(lo) >= MOST_VALUES {
            return Err(syn::Error::new(last, format!("a knob has at most {MOST_VALUES} values")));
        }
        (lo..=hi).map(Setting::Number).collect()
    };
    Ok(Knob { name, values })
}

/// Says how the values of a range are written, where one begins in brackets behind the last value.
fn refuse_range(name: &Ident, values: &[Setting], content: ParseStream<'_>) -> syn::Result<()> {
    if !content.peek(Token![..]) {
        return Ok(());
    }
    let at = content.span();
    let is_closed = content.peek(Token![..=]);
    if is_closed {
        content.parse::<Token![..=]>().map(drop)?
    } else {
        content.parse::<Token![..]>().map(drop)?
    }
    let message = match (values, content.parse::<syn::LitInt>().and_then(|last| last.base10_parse::<u32>())) {
        ([Setting::Number(first)], Ok(last)) => {
            let last = if is_closed { last } else { last.saturating_sub(1) };
            format!("a range stands without brackets: write `{name}: {first}..={last}`")
        }
        _ => "a list has no ranges: write each of its values, such as `[2, 4, 5, 6]`".to_owned(),
    };
    Err(syn::Error::new(at, message))
}

/// A value of a schedule's key: `4`, `2x4`, `linear` or `groups(8)`.
fn setting(key: &ScheduleKey, input: ParseStream<'_>) -> syn::Result<Setting> {
    let start = input.span();
    if input.peek(syn::LitInt) {
        // `0x8` and `4u32` are numbers too; the suffix of `2x4` is half of a grid.
        let number: syn::LitInt = input.parse()?;
        let digits = if number.suffix().starts_with('x') { None } else { key.read(number.base10_digits()).ok() };
        let read = digits.map_or_else(|| key.read(&number.to_string()), Ok);
        return read.map_err(|why| syn::Error::new(start, why));
    }
    let mut text = String::new();
    while !input.is_empty() && !input.peek(Token![,]) {
        text += &input.parse::<TokenTree>()?.to_string();
    }
    key.read(&text).map_err(|why| syn::Error::new(start, why))
}
