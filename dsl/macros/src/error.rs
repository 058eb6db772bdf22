//! Collects errors with their spans, so that one compilation reports every mistake, and writes suggestions.

use proc_macro2::{Delimiter, Group, Span, TokenStream, TokenTree};
use quote::{ToTokens, quote_spanned};
use std::collections::BTreeSet;
use std::fmt::Display;

/// A stretch of the user's source, from its first token to its last.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SourceRange {
    /// The first token.
    pub(crate) start: Span,
    /// The last token.
    pub(crate) end: Span,
}

impl SourceRange {
    /// The stretch that a syntax node covers.
    pub(crate) fn of(node: &impl ToTokens) -> SourceRange {
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
        SourceRange { start, end }
    }
}

impl From<Span> for SourceRange {
    fn from(span: Span) -> SourceRange {
        SourceRange { start: span, end: span }
    }
}

/// Every mistake found so far.
#[derive(Default)]
pub(crate) struct Errors {
    list: Vec<(SourceRange, String)>,
    seen: BTreeSet<String>,
    /// Those that were dropped, too.
    count: usize,
    /// The call whose body is being read, for messages.
    pub(crate) inside: Option<String>,
    /// The grid whose body is being read has a cluster, for messages.
    pub(crate) in_cluster: bool,
}

impl Errors {
    /// Records a mistake. A second one of the same code at the same token is dropped.
    pub(crate) fn push(&mut self, code: u16, place: impl Into<SourceRange>, message: impl Display) {
        let place = place.into();
        self.count += 1;
        if self.seen.insert(format!("{code} {:?} {:?}", place.start, place.end)) {
            let inside = self.inside.as_ref().map_or(String::new(), |call| format!(" (in {call})"));
            self.list.push((place, format!("ATL{code:03}: {message}{inside}")));
        }
    }

    /// The number of mistakes, with those that were recorded before: two kernels may call one wrong function. Equal counts
    /// before and after a step mean that it found none.
    pub(crate) fn count(&self) -> usize {
        self.count
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
