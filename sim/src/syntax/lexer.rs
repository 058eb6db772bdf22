//! PTX text to tokens, each with its line.

use crate::fault::{Fault, Result};
use logos::{Lexer, Logos};
use std::fmt;

/// A token of PTX.
#[derive(Logos, Clone, Copy, Debug, PartialEq)]
#[logos(skip r"[ \t\r\n\f]+")]
#[logos(skip r"/\*[^*]*\*+([^/*][^*]*\*+)*/")]
#[logos(skip(r"(//|@@DWARF)[^\n]*", allow_greedy = true))]
pub(super) enum Token<'s> {
    /// A name, a register or an opcode.
    #[regex(r"[a-zA-Z][a-zA-Z0-9_$]*|[_$%][a-zA-Z0-9_$]*")]
    Word(&'s str),
    /// A directive or a modifier, without its dot.
    #[regex(r"\.[a-zA-Z0-9_]+(::[a-zA-Z0-9_]+)*", |lex| lex.slice().get(1..))]
    Dot(&'s str),
    #[regex(r"0[xX][0-9a-fA-F]+U?", |lex| integer(lex, 2, 16))]
    #[regex(r"0[bB][01]+U?", |lex| integer(lex, 2, 2))]
    #[regex(r"0[0-7]*U?", |lex| integer(lex, 0, 8))]
    #[regex(r"[1-9][0-9]*U?", |lex| integer(lex, 0, 10))]
    Int(u64),
    #[regex(r"0[fF][0-9a-fA-F]{8}", |lex| bits(lex).and_then(|b| u32::try_from(b).ok()))]
    F32(u32),
    #[regex(r"0[dD][0-9a-fA-F]{16}", bits)]
    F64(u64),
    /// A decimal fraction, also the version number.
    #[regex(r"[0-9]+\.[0-9]*([eE][+-]?[0-9]+)?")]
    Decimal(&'s str),
    #[regex(r#""[^"\n]*""#)]
    Text(&'s str),
    #[token(",")]
    Comma,
    #[token(";")]
    Semicolon,
    #[token(":")]
    Colon,
    #[token("(")]
    LeftParen,
    #[token(")")]
    RightParen,
    #[token("{")]
    LeftBrace,
    #[token("}")]
    RightBrace,
    #[token("[")]
    LeftBracket,
    #[token("]")]
    RightBracket,
    #[token("<")]
    Less,
    #[token(">")]
    Greater,
    #[token("+")]
    Plus,
    #[token("-")]
    Minus,
    #[token("!")]
    Bang,
    #[token("|")]
    Bar,
    #[token("=")]
    Equal,
    #[token("@")]
    At,
    #[token("...")]
    Ellipsis,
    /// After the last token.
    End,
}

fn integer<'s>(lex: &Lexer<'s, Token<'s>>, prefix: usize, radix: u32) -> Option<u64> {
    let digits = lex.slice().trim_end_matches('U').get(prefix..)?;
    u64::from_str_radix(digits, radix).ok()
}

fn bits<'s>(lex: &mut Lexer<'s, Token<'s>>) -> Option<u64> {
    u64::from_str_radix(lex.slice().get(2..)?, 16).ok()
}

impl fmt::Display for Token<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Token::Word(s) | Token::Decimal(s) => write!(f, "`{s}`"),
            Token::Dot(s) => write!(f, "`.{s}`"),
            Token::Int(v) => write!(f, "`{v}`"),
            Token::F32(v) => write!(f, "`0f{v:08X}`"),
            Token::F64(v) => write!(f, "`0d{v:016X}`"),
            Token::Text(s) => f.write_str(s),
            Token::Comma => f.write_str("`,`"),
            Token::Semicolon => f.write_str("`;`"),
            Token::Colon => f.write_str("`:`"),
            Token::LeftParen => f.write_str("`(`"),
            Token::RightParen => f.write_str("`)`"),
            Token::LeftBrace => f.write_str("`{`"),
            Token::RightBrace => f.write_str("`}`"),
            Token::LeftBracket => f.write_str("`[`"),
            Token::RightBracket => f.write_str("`]`"),
            Token::Less => f.write_str("`<`"),
            Token::Greater => f.write_str("`>`"),
            Token::Plus => f.write_str("`+`"),
            Token::Minus => f.write_str("`-`"),
            Token::Bang => f.write_str("`!`"),
            Token::Bar => f.write_str("`|`"),
            Token::Equal => f.write_str("`=`"),
            Token::At => f.write_str("`@`"),
            Token::Ellipsis => f.write_str("`...`"),
            Token::End => f.write_str("the end of the text"),
        }
    }
}

/// All tokens with their lines, an [`Token::End`] last.
pub(super) fn tokens(text: &str) -> Result<Vec<(Token<'_>, u32)>> {
    let mut found = Vec::with_capacity(text.len() / 4);
    let mut lex = Token::lexer(text);
    let (mut line, mut counted) = (1u32, 0usize);
    while let Some(token) = lex.next() {
        let span = lex.span();
        line = line.saturating_add(newlines(text, counted, span.start));
        counted = span.start;
        match token {
            Ok(token) => found.push((token, line)),
            Err(()) => {
                let shown: String = lex.slice().chars().take(20).collect();
                return Err(Fault::syntax(line, format!("`{}` is no token of PTX", shown.escape_debug())));
            }
        }
    }
    line = line.saturating_add(newlines(text, counted, text.len()));
    found.push((Token::End, line));
    Ok(found)
}

fn newlines(text: &str, from: usize, to: usize) -> u32 {
    let count = text.as_bytes().get(from..to).unwrap_or_default().iter().filter(|&&b| b == b'\n').count();
    u32::try_from(count).unwrap_or(u32::MAX)
}
