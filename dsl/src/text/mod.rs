//! Tokens and a cursor over them: the ground under every text form of the compiler.
//!
//! Tile IR and GPU IR use the same tokens, and the same tables at their heads: `head`. A text form is a hand-written recursive descent over
//! [`Cursor`]; words are [`TokenKind::Ident`]s with a meaning by place, so no name is reserved.
//! Dotted mnemonics such as `mma.m16n8k16.bf16` are read with [`Cursor::dotted`].
//!
//! Codes: ATL001 unexpected token, ATL002 number out of range. The parsers add ATL003 to ATL009.

pub mod head;

use crate::diag::Diagnostic;
use crate::ir::Loc;
use std::fmt::{self, Formatter};
use std::ops::Range;
use std::str::FromStr;

/// Declares the kinds of tokens: those that are described, and those with one spelling. Of two spellings that fit, the
/// first is taken.
macro_rules! tokens {
    ($($(#[$doc:meta])* $named:ident: $what:literal,)+; $($spelled:ident = $text:literal,)+) => {
        /// What kind of token it is.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum TokenKind {
            $($(#[$doc])* $named,)+
            $(#[doc = concat!("`", $text, "`")] $spelled,)+
        }

        impl TokenKind {
            /// The kind in messages: its spelling if it has one, or what it is.
            pub const fn describe(self) -> &'static str {
                match self {
                    $(TokenKind::$named => $what,)+
                    $(TokenKind::$spelled => concat!("`", $text, "`"),)+
                }
            }

            /// The token with one spelling that a text starts with, and its length.
            fn spelled(text: &str) -> Option<(TokenKind, usize)> {
                const SPELLED: &[(&str, TokenKind)] = &[$(($text, TokenKind::$spelled)),+];
                SPELLED.iter().find(|(s, _)| text.starts_with(s)).map(|&(s, kind)| (kind, s.len()))
            }
        }
    };
}

tokens! {
    /// A word: `kernel`, `bf16`, `inf`.
    Ident: "a word",
    /// `%name` or `%3`.
    Value: "a `%name`",
    /// `@name`.
    Symbol: "a `@name`",
    /// An unsigned whole number.
    Int: "a whole number",
    /// An unsigned number with a fraction or an exponent.
    Float: "a number with a fraction",
    /// `"text"`, on one line, without escapes.
    Str: "a quoted text",
    /// A character that starts no token.
    Unknown: "a character that starts no token",
    /// The end of the text.
    End: "the end of the text",
    ;
    LParen = "(",
    RParen = ")",
    LBracket = "[",
    RBracket = "]",
    LBrace = "{",
    RBrace = "}",
    Less = "<",
    Greater = ">",
    Comma = ",",
    Colon = ":",
    Semicolon = ";",
    Equals = "=",
    Arrow = "->",
    DotDotPlus = "..+",
    DotDot = "..",
    Dot = ".",
    Question = "?",
    Star = "*",
    Plus = "+",
    Minus = "-",
    Slash = "/",
    Pipe = "|",
}

/// The bytes of white space and comments that a text starts with.
fn blank(text: &str) -> usize {
    let mut rest = text;
    loop {
        rest = rest.trim_start_matches([' ', '\t', '\r', '\n']);
        if !rest.starts_with("//") {
            return text.len() - rest.len();
        }
        rest = rest.find('\n').map_or("", |end| &rest[end..]);
    }
}

/// The token that a text starts with and its length in bytes; `None` at the end.
fn first_token(text: &str) -> Option<(TokenKind, usize)> {
    let bytes = text.as_bytes();
    let letter = |at: usize| bytes.get(at).is_some_and(|b| b.is_ascii_alphabetic() || *b == b'_');
    let word = |from: usize| run(bytes, from, |b| b.is_ascii_alphanumeric() || b == b'_');
    let found = match *bytes.first()? {
        b'0'..=b'9' => Some(number(bytes)),
        b'%' if word(1) > 1 => Some((TokenKind::Value, word(1))),
        b'@' if letter(1) => Some((TokenKind::Symbol, word(1))),
        b'"' => {
            let end = run(bytes, 1, |b| b != b'"' && b != b'\n');
            (bytes.get(end) == Some(&b'"')).then_some((TokenKind::Str, end + 1))
        }
        _ if letter(0) => Some((TokenKind::Ident, word(0))),
        _ => TokenKind::spelled(text),
    };
    found.or_else(|| text.chars().next().map(|c| (TokenKind::Unknown, c.len_utf8())))
}

/// A whole number, or one with a fraction or an exponent.
fn number(bytes: &[u8]) -> (TokenKind, usize) {
    let digits = |from: usize| run(bytes, from, |b| b.is_ascii_digit());
    let whole = digits(0);
    let mut end = whole;
    if bytes.get(end) == Some(&b'.') && digits(end + 1) > end + 1 {
        end = digits(end + 1);
    }
    if matches!(bytes.get(end), Some(b'e' | b'E')) {
        let signed = matches!(bytes.get(end + 1), Some(b'+' | b'-'));
        let exponent = end + 1 + usize::from(signed);
        if digits(exponent) > exponent {
            end = digits(exponent);
        }
    }
    (if end > whole { TokenKind::Float } else { TokenKind::Int }, end)
}

/// Where the run of bytes that belong together ends.
fn run(bytes: &[u8], from: usize, belongs: impl Fn(u8) -> bool) -> usize {
    from + bytes.iter().skip(from).take_while(|&&b| belongs(b)).count()
}

/// A token: its kind, its characters and where they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Token<'s> {
    /// What it is.
    pub kind: TokenKind,
    /// Its characters, with any `%`, `@` or quotes; empty at the end.
    pub text: &'s str,
    /// Byte offset of its first character.
    pub start: usize,
    /// Line and column of its first character; columns count characters.
    pub loc: Loc,
}

impl<'s> Token<'s> {
    /// The characters without the leading `%` or `@`, or without the quotes.
    pub fn name(&self) -> &'s str {
        match self.kind {
            TokenKind::Value | TokenKind::Symbol => self.text.get(1..).unwrap_or_default(),
            TokenKind::Str => self.text.trim_matches('"'),
            _ => self.text,
        }
    }

    /// The token's byte range in the text.
    pub fn range(&self) -> Range<usize> {
        self.start..self.start + self.text.len()
    }
}

impl fmt::Display for Token<'_> {
    /// How messages show the token that was found.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            TokenKind::End => f.write_str(self.kind.describe()),
            _ => write!(f, "`{}`", self.text),
        }
    }
}

/// A position in a text, token by token.
#[derive(Clone, Debug)]
pub struct Cursor<'s> {
    tokens: Vec<Token<'s>>,
    end: Token<'s>,
    at: usize,
}

impl<'s> Cursor<'s> {
    /// A cursor at the first token of `src`. Never fails: what is no token becomes [`TokenKind::Unknown`].
    pub fn new(src: &'s str) -> Cursor<'s> {
        let mut tokens = Vec::new();
        let mut loc = Loc { line: 1, column: 1 };
        let mut seen = 0;
        let mut advance_to = |offset: usize| {
            for c in src.get(seen..offset).unwrap_or_default().chars() {
                loc = match c {
                    '\n' => Loc { line: loc.line + 1, column: 1 },
                    _ => Loc { line: loc.line, column: loc.column + 1 },
                };
            }
            seen = offset;
            loc
        };
        let mut start = blank(src);
        while let Some((kind, length)) = first_token(&src[start..]) {
            let end = start + length;
            tokens.push(Token { kind, text: &src[start..end], start, loc: advance_to(start) });
            start = end + blank(&src[end..]);
        }
        let end = Token { kind: TokenKind::End, text: "", start: src.len(), loc: advance_to(src.len()) };
        Cursor { tokens, end, at: 0 }
    }

    /// The current token, not consumed.
    pub fn peek(&self) -> Token<'s> {
        self.peek_nth(0)
    }

    /// The token `n` places after the current one.
    pub fn peek_nth(&self, n: usize) -> Token<'s> {
        self.tokens.get(self.at + n).copied().unwrap_or(self.end)
    }

    /// Consumes and returns the current token; at the end, keeps returning [`TokenKind::End`].
    #[allow(clippy::should_implement_trait, reason = "a cursor does not end: it stays on the last token")]
    pub fn next(&mut self) -> Token<'s> {
        let token = self.peek();
        self.at = (self.at + 1).min(self.tokens.len());
        token
    }

    /// True if the current token is of this kind.
    pub fn at(&self, kind: TokenKind) -> bool {
        self.peek().kind == kind
    }

    /// True if the current token is this word.
    pub fn at_word(&self, word: &str) -> bool {
        self.at(TokenKind::Ident) && self.peek().text == word
    }

    /// Consumes a token of this kind if it is the current one.
    pub fn eat(&mut self, kind: TokenKind) -> bool {
        let found = self.at(kind);
        if found {
            self.next();
        }
        found
    }

    /// Consumes this word if it is the current token.
    pub fn eat_word(&mut self, word: &str) -> bool {
        let found = self.at_word(word);
        if found {
            self.next();
        }
        found
    }

    /// Consumes a token of this kind, or says what was found instead.
    pub fn expect(&mut self, kind: TokenKind) -> Result<Token<'s>, Diagnostic> {
        if self.at(kind) { Ok(self.next()) } else { Err(self.expected(kind.describe())) }
    }

    /// Consumes this word, or says what was found instead.
    pub fn expect_word(&mut self, word: &str) -> Result<(), Diagnostic> {
        if self.eat_word(word) { Ok(()) } else { Err(self.expected(&format!("`{word}`"))) }
    }

    /// Consumes words joined by dots, `mma.m16n8k16.bf16`; the parts after the first may start with digits.
    pub fn dotted(&mut self) -> Result<String, Diagnostic> {
        let mut name = self.expect(TokenKind::Ident)?.text.to_owned();
        while self.eat(TokenKind::Dot) {
            name.push('.');
            let mut end = self.peek().start;
            // `16x256b` is lexed as a number and a word; they belong together if nothing parts them.
            let first = name.len();
            while matches!(self.peek().kind, TokenKind::Ident | TokenKind::Int) && self.peek().start == end {
                end = self.peek().range().end;
                name.push_str(self.next().text);
            }
            if name.len() == first {
                return Err(self.expected("a word"));
            }
        }
        Ok(name)
    }

    /// Items up to and including `close`, parted by commas; a comma may follow the last.
    pub fn list<T>(
        &mut self,
        close: TokenKind,
        mut item: impl FnMut(&mut Cursor<'s>) -> Result<T, Diagnostic>,
    ) -> Result<Vec<T>, Diagnostic> {
        let mut items = Vec::new();
        loop {
            if self.eat(close) {
                return Ok(items);
            }
            items.push(item(self)?);
            if !self.eat(TokenKind::Comma) && !self.at(close) {
                return Err(self.expected(&format!("`,` or {}", close.describe())));
            }
        }
    }

    /// An unsigned whole number.
    pub fn int<T: FromStr>(&mut self) -> Result<T, Diagnostic> {
        if !self.at(TokenKind::Int) {
            return Err(self.expected("a whole number"));
        }
        let value = self.peek().text.parse().map_err(|_| self.out_of_range())?;
        self.next();
        Ok(value)
    }

    /// A whole number that may be negative.
    pub fn signed_int(&mut self) -> Result<i64, Diagnostic> {
        let negative = self.eat(TokenKind::Minus);
        if !self.at(TokenKind::Int) {
            return Err(self.expected("a whole number"));
        }
        let text = self.peek().text;
        let value = if negative { format!("-{text}").parse() } else { text.parse() };
        let value = value.map_err(|_| self.out_of_range())?;
        self.next();
        Ok(value)
    }

    /// A number, `inf`, `-inf` or `nan`, read in the precision of `T` (`f32` or `f64`).
    pub fn float<T: FromStr + std::ops::Neg<Output = T>>(&mut self) -> Result<T, Diagnostic> {
        let negative = self.eat(TokenKind::Minus);
        let token = self.peek();
        let is_number = match token.kind {
            TokenKind::Int | TokenKind::Float => true,
            TokenKind::Ident => matches!(token.text, "inf" | "nan"),
            _ => false,
        };
        if !is_number {
            return Err(self.expected("a number"));
        }
        let value: T = token.text.parse().map_err(|_| self.out_of_range())?;
        self.next();
        Ok(if negative { -value } else { value })
    }

    /// A diagnostic at the current token.
    pub fn error(&self, message: impl Into<String>) -> Diagnostic {
        Diagnostic::new(1, self.peek().loc, message)
    }

    /// A diagnostic at the current token, which is not what was wanted.
    pub fn expected(&self, wanted: &str) -> Diagnostic {
        self.error(format!("found {}, wanted {wanted}", self.peek()))
    }

    fn out_of_range(&self) -> Diagnostic {
        Diagnostic::new(2, self.peek().loc, format!("the number {} is out of range", self.peek()))
    }
}

/// Writes `items` with commas between them.
pub fn commas<T>(
    f: &mut Formatter<'_>,
    items: impl IntoIterator<Item = T>,
    mut each: impl FnMut(&mut Formatter<'_>, T) -> fmt::Result,
) -> fmt::Result {
    for (i, item) in items.into_iter().enumerate() {
        if i > 0 {
            f.write_str(", ")?;
        }
        each(f, item)?;
    }
    Ok(())
}

/// An entity's name, or a mark for one that does not exist, with its number.
pub struct Name<'k>(pub Option<&'k str>, pub usize);

impl fmt::Display for Name<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(name) => f.write_str(name),
            None => write!(f, "missing_{}", self.1),
        }
    }
}

/// Writes a number so that [`Cursor::float`] reads back the same one. Every NaN is `nan`.
pub fn float_text(x: impl fmt::Debug) -> String {
    let text = format!("{x:?}");
    if text == "NaN" { "nan".to_owned() } else { text }
}
