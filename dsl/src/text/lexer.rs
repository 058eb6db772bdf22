//! Characters to tokens: the longest token at each place, as every text form has them.

use super::TokenKind;
use std::ops::Range;
use winnow::ascii::digit1;
use winnow::combinator::{alt, delimited, opt, preceded, repeat};
use winnow::error::EmptyError;
use winnow::prelude::*;
use winnow::token::{any, one_of, take_while};

type Lexed<T> = std::result::Result<T, EmptyError>;

/// The tokens of a text, with their byte ranges. A character that starts no token is one of kind [`TokenKind::Unknown`].
pub(super) fn tokens(src: &str) -> impl Iterator<Item = (TokenKind, Range<usize>)> {
    let mut rest = src;
    std::iter::from_fn(move || {
        space.parse_next(&mut rest).ok()?;
        let start = src.len() - rest.len();
        let kind = token.parse_next(&mut rest).ok()?;
        Some((kind, start..src.len() - rest.len()))
    })
}

/// White space and comments, which reach to the end of their line.
fn space(input: &mut &str) -> Lexed<()> {
    let blank = take_while(1.., [' ', '\t', '\r', '\n']);
    let comment = ("//", take_while(0.., |c| c != '\n')).take();
    repeat(0.., alt((blank, comment))).parse_next(input)
}

/// One token. It fails at the end of the text alone.
fn token(input: &mut &str) -> Lexed<TokenKind> {
    alt((name, number, quoted, mark, any.value(TokenKind::Unknown))).parse_next(input)
}

/// `kernel`, `%name`, `%3` and `@name`.
fn name(input: &mut &str) -> Lexed<TokenKind> {
    alt((
        word.value(TokenKind::Ident),
        preceded('%', take_while(1.., is_of_word)).value(TokenKind::Value),
        preceded('@', word).value(TokenKind::Symbol),
    ))
    .parse_next(input)
}

fn word<'s>(input: &mut &'s str) -> Lexed<&'s str> {
    (take_while(1, |c: char| is_of_word(c) && !c.is_ascii_digit()), take_while(0.., is_of_word))
        .take()
        .parse_next(input)
}

fn is_of_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// A number without a sign: `3`, `0.5`, `1e-3`.
fn number(input: &mut &str) -> Lexed<TokenKind> {
    let fraction = (digit1, '.', digit1, opt(exponent)).void();
    let power = (digit1, exponent).void();
    alt((fraction.value(TokenKind::Float), power.value(TokenKind::Float), digit1.value(TokenKind::Int)))
        .parse_next(input)
}

fn exponent(input: &mut &str) -> Lexed<()> {
    (one_of(['e', 'E']), opt(one_of(['+', '-'])), digit1).void().parse_next(input)
}

/// `"text"`, on one line, without escapes.
fn quoted(input: &mut &str) -> Lexed<TokenKind> {
    delimited('"', take_while(0.., |c| c != '"' && c != '\n'), '"').value(TokenKind::Str).parse_next(input)
}

/// Punctuation. A mark stands before those that it begins with.
const MARKS: [(&str, TokenKind); 22] = [
    ("..+", TokenKind::DotDotPlus),
    ("..", TokenKind::DotDot),
    (".", TokenKind::Dot),
    ("->", TokenKind::Arrow),
    ("-", TokenKind::Minus),
    ("(", TokenKind::LParen),
    (")", TokenKind::RParen),
    ("[", TokenKind::LBracket),
    ("]", TokenKind::RBracket),
    ("{", TokenKind::LBrace),
    ("}", TokenKind::RBrace),
    ("<", TokenKind::Less),
    (">", TokenKind::Greater),
    (",", TokenKind::Comma),
    (":", TokenKind::Colon),
    (";", TokenKind::Semicolon),
    ("=", TokenKind::Equals),
    ("?", TokenKind::Question),
    ("*", TokenKind::Star),
    ("+", TokenKind::Plus),
    ("/", TokenKind::Slash),
    ("|", TokenKind::Pipe),
];

fn mark(input: &mut &str) -> Lexed<TokenKind> {
    MARKS.iter().find_map(|&(text, kind)| Some((input.strip_prefix(text)?, kind))).map_or(
        Err(EmptyError),
        |(rest, kind)| {
            *input = rest;
            Ok(kind)
        },
    )
}

#[cfg(test)]
mod tests {
    use super::{TokenKind as T, tokens};

    fn kinds(src: &str) -> Vec<(T, &str)> {
        tokens(src).map(|(kind, range)| (kind, &src[range])).collect()
    }

    #[test]
    fn the_longest_token_is_taken() {
        let of = |src: &str| kinds(src).into_iter().map(|(kind, _)| kind).collect::<Vec<T>>();
        assert_eq!(
            of("..+ .. . -> - ->>"),
            [T::DotDotPlus, T::DotDot, T::Dot, T::Arrow, T::Minus, T::Arrow, T::Greater]
        );
        assert_eq!(of("1 1.5 1e3 1.5e-3 1E+3"), [T::Int, T::Float, T::Float, T::Float, T::Float]);
        assert_eq!(of("_a1 %a %3 @a"), [T::Ident, T::Value, T::Value, T::Symbol]);
    }

    #[test]
    fn what_is_no_longer_token_is_several() {
        assert_eq!(kinds("16x2"), [(T::Int, "16"), (T::Ident, "x2")]);
        assert_eq!(kinds("1e"), [(T::Int, "1"), (T::Ident, "e")]);
        assert_eq!(kinds("1e+"), [(T::Int, "1"), (T::Ident, "e"), (T::Plus, "+")]);
        assert_eq!(kinds("1..2"), [(T::Int, "1"), (T::DotDot, ".."), (T::Int, "2")]);
        assert_eq!(kinds("1.x"), [(T::Int, "1"), (T::Dot, "."), (T::Ident, "x")]);
    }

    #[test]
    fn comments_end_with_their_line() {
        assert_eq!(kinds("a // b\n c"), [(T::Ident, "a"), (T::Ident, "c")]);
        assert_eq!(kinds("a / b//"), [(T::Ident, "a"), (T::Slash, "/"), (T::Ident, "b")]);
    }

    #[test]
    fn other_characters_are_unknown_one_by_one() {
        assert_eq!(kinds("é%"), [(T::Unknown, "é"), (T::Unknown, "%")]);
        assert_eq!(kinds("\"a\nb"), [(T::Unknown, "\""), (T::Ident, "a"), (T::Ident, "b")]);
        assert_eq!(kinds("\"a b\"@"), [(T::Str, "\"a b\""), (T::Unknown, "@")]);
        assert_eq!(kinds(""), []);
    }
}
