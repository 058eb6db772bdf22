//! The syntax of `tune`: knobs and their values.

use crate::ast::Knob;
use atlas_vocabulary::{ScheduleKey, Setting};
use proc_macro2::{Ident, TokenTree};
use syn::parse::ParseStream;
use syn::{Token, bracketed};

/// The most values of a knob.
const MOST_VALUES: u32 = 1024;

/// `BN: [64, 128]`, `stages: 2..=4` or `order: [linear, groups(8)]`.
pub(crate) fn knob(input: ParseStream<'_>) -> syn::Result<Knob> {
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
