//! Tokens and a cursor over them, for every text form of the compiler.
//!
//! Tile IR and GPU IR use the same tokens, and begin with the same tables (`head`). Their bodies
//! are written by the same code (`bodies`). The parsers are written by hand, as
//! recursive descent over [`Cursor`]. A word is a [`TokenKind::Ident`] whose meaning depends on its position, so no name is
//! reserved. Dotted mnemonics such as `mma.m16n8k16.bf16` are read with [`Cursor::dotted`].
//!
//! Codes: ATL001 unexpected token, ATL002 number out of range. The parsers add ATL003 to ATL009.

pub mod bodies;
pub mod head;
mod lexer;

use crate::diag::Diagnostic;
use crate::ir::Loc;
use std::fmt::{self, Formatter};
use std::ops::Range;
use std::str::FromStr;

/// What kind of token it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TokenKind {
    /// A word: `kernel`, `bf16`, `inf`.
    Ident,
    /// `%name` or `%3`.
    Value,
    /// `@name`.
    Symbol,
    /// An unsigned whole number.
    Int,
    /// An unsigned number with a fraction or an exponent.
    Float,
    /// `"text"`, on one line, without escapes.
    Str,
    /// `(`
    LParen,
    /// `)`
    RParen,
    /// `[`
    LBracket,
    /// `]`
    RBracket,
    /// `{`
    LBrace,
    /// `}`
    RBrace,
    /// `<`
    Less,
    /// `>`
    Greater,
    /// `,`
    Comma,
    /// `:`
    Colon,
    /// `;`
    Semicolon,
    /// `=`
    Equals,
    /// `->`
    Arrow,
    /// `.`
    Dot,
    /// `..`
    DotDot,
    /// `..+`
    DotDotPlus,
    /// `?`
    Question,
    /// `*`
    Star,
    /// `+`
    Plus,
    /// `-`
    Minus,
    /// `/`
    Slash,
    /// `|`
    Pipe,
    /// Characters that belong to no token.
    Unknown,
    /// The end of the text.
    End,
}

impl TokenKind {
    /// The kind in messages: its spelling if it has one, or what it is.
    pub const fn describe(self) -> &'static str {
        match self {
            TokenKind::Ident => "a word",
            TokenKind::Value => "a `%name`",
            TokenKind::Symbol => "a `@name`",
            TokenKind::Int => "a whole number",
            TokenKind::Float => "a number with a fraction",
            TokenKind::Str => "a quoted text",
            TokenKind::LParen => "`(`",
            TokenKind::RParen => "`)`",
            TokenKind::LBracket => "`[`",
            TokenKind::RBracket => "`]`",
            TokenKind::LBrace => "`{`",
            TokenKind::RBrace => "`}`",
            TokenKind::Less => "`<`",
            TokenKind::Greater => "`>`",
            TokenKind::Comma => "`,`",
            TokenKind::Colon => "`:`",
            TokenKind::Semicolon => "`;`",
            TokenKind::Equals => "`=`",
            TokenKind::Arrow => "`->`",
            TokenKind::Dot => "`.`",
            TokenKind::DotDot => "`..`",
            TokenKind::DotDotPlus => "`..+`",
            TokenKind::Question => "`?`",
            TokenKind::Star => "`*`",
            TokenKind::Plus => "`+`",
            TokenKind::Minus => "`-`",
            TokenKind::Slash => "`/`",
            TokenKind::Pipe => "`|`",
            TokenKind::Unknown => "a character that starts no token",
            TokenKind::End => "the end of the text",
        }
    }
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
    /// A cursor at the first token of `src`. Never fails: text that is no token becomes [`TokenKind::Unknown`].
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
        for (kind, range) in lexer::tokens(src) {
            let text = src.get(range.clone()).unwrap_or_default();
            let loc = advance_to(range.start);
            tokens.push(Token { kind, text, start: range.start, loc });
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

    /// Items up to and including `close`, separated by commas. A comma may follow the last.
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
            self.comma_or(close)?;
        }
    }

    /// Consumes a comma, or says what is wrong unless `close` follows.
    pub fn comma_or(&mut self, close: TokenKind) -> Result<(), Diagnostic> {
        if self.eat(TokenKind::Comma) || self.at(close) {
            return Ok(());
        }
        Err(self.expected(&format!("`,` or {}", close.describe())))
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

/// An entity's name, or a mark with its number if it does not exist.
pub struct Name<'k>(pub Option<&'k str>, pub usize);

impl fmt::Display for Name<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(name) => f.write_str(name),
            None => write!(f, "missing_{}", self.1),
        }
    }
}

/// Writes a number so that [`Cursor::float`] reads back the same one. Every NaN is written as `nan`.
pub fn float_text(x: impl fmt::Debug) -> String {
    let text = format!("{x:?}");
    if text == "NaN" { "nan".to_owned() } else { text }
}
