//! Collects spanned errors, so that one compile reports every mistake, and spells suggestions.

use proc_macro2::{Delimiter, Group, Span, TokenStream, TokenTree};
use quote::{ToTokens, quote_spanned};
use std::collections::BTreeSet;
use std::fmt::Display;

/// A stretch of the user's source, from its first token to its last.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    /// The first token.
    pub(crate) start: Span,
    /// The last token.
    pub(crate) end: Span,
}

impl Place {
    /// The stretch that a syntax node covers.
    pub(crate) fn of(node: &impl ToTokens) -> Place {
        let tokens: Vec<TokenTree> = node.to_token_stream().into_iter().collect();
        let start = match tokens.first() {
            Some(TokenTree::Group(g)) => g.span_open(),
            Some(t) => t.span(),
            None => Span::call_site(),
        };
        let end = match tokens.last() {
            Some(TokenTree::Group(g)) => g.span_close(),
            Some(t) => t.span(),
            None => start,
        };
        Place { start, end }
    }
}

impl From<Span> for Place {
    fn from(span: Span) -> Place {
        Place { start: span, end: span }
    }
}

/// Every mistake found so far.
#[derive(Default)]
pub(crate) struct Errors {
    list: Vec<(Place, String)>,
    seen: BTreeSet<String>,
}

impl Errors {
    /// Records a mistake. A second one of the same code at the same token is dropped.
    pub(crate) fn push(&mut self, code: u16, place: impl Into<Place>, message: impl Display) {
        let place = place.into();
        if self.seen.insert(format!("{code} {:?} {:?}", place.start, place.end)) {
            self.list.push((place, format!("ATL{code:03}: {message}")));
        }
    }

    /// How many mistakes there are; equal counts before and after a step mean that it found none.
    pub(crate) fn count(&self) -> usize {
        self.list.len()
    }

    /// One `compile_error!` per mistake, under the tokens it concerns.
    pub(crate) fn into_tokens(self) -> TokenStream {
        let mut out = TokenStream::new();
        for (place, message) in self.list {
            out.extend(quote_spanned!(place.start=> ::core::compile_error!));
            let text = quote_spanned!(place.end=> #message);
            let mut group = Group::new(Delimiter::Brace, text);
            group.set_span(place.end);
            out.extend([TokenTree::Group(group)]);
        }
        out
    }
}

/// How a power is written.
pub(crate) const POWER: &str = "a product, as in `x * x`, or `exp(y * log(x))` where `x` is above 0";

/// How what other languages call so is written here.
const WRITTEN: [(&str, &str); 14] = [
    ("arange", "`iota([A, B], axis)`"),
    ("clamp", "`min(max(x, low), high)`"),
    ("matmul", "`dot(a, b)`"),
    ("maximum", "`max(x, y)`"),
    ("mean", "`sum(x, axis = 1) / size(D).cast::<f32>()`"),
    ("minimum", "`min(x, y)`"),
    ("pow", POWER),
    ("powf", POWER),
    ("powi", POWER),
    ("relu", "`max(x, 0)`"),
    ("silu", "`x * sigmoid(x)`"),
    ("trans", "`x.t()`"),
    ("transpose", "`x.t()`"),
    ("where", "`select(condition, a, b)`"),
];

/// `; write ...` for a name of other languages, `; did you mean ...?` with the nearest candidate, or nothing.
pub(crate) fn did_you_mean<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> String {
    if let Some((_, written)) = WRITTEN.iter().find(|(other, _)| *other == name) {
        return format!("; write {written}");
    }
    // Names of one or two letters are all near each other.
    let limit = name.len() / 3;
    candidates
        .into_iter()
        .filter(|&c| c != name)
        .map(|c| (distance(name, c), c))
        .filter(|&(d, _)| d <= limit)
        .min()
        .map_or(String::new(), |(_, c)| format!("; did you mean `{c}`?"))
}

/// Edit distance, where swapping two neighbours counts once.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut rows = vec![vec![0; b.len() + 1]; a.len() + 1];
    for i in 0..=a.len() {
        for j in 0..=b.len() {
            rows[i][j] = if i == 0 || j == 0 {
                i.max(j)
            } else {
                let swap = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
                let changed = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
                let near = changed.min(rows[i - 1][j] + 1).min(rows[i][j - 1] + 1);
                if swap { near.min(rows[i - 2][j - 2] + 1) } else { near }
            };
        }
    }
    rows[a.len()][b.len()]
}
