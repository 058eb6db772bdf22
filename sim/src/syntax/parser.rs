//! A stream of tokens with errors that name the line.

use super::lexer::{Token, tokens};
use crate::fault::{Fault, Result};

/// The tokens of a text and a place among them.
pub(super) struct Parser<'s> {
    tokens: Vec<(Token<'s>, u32)>,
    at: usize,
}

impl<'s> Parser<'s> {
    pub(super) fn new(text: &'s str) -> Result<Parser<'s>> {
        Ok(Parser { tokens: tokens(text)?, at: 0 })
    }

    fn entry(&self, ahead: usize) -> (Token<'s>, u32) {
        let last = self.tokens.last().map_or((Token::End, 1), |&(_, line)| (Token::End, line));
        self.tokens.get(self.at.saturating_add(ahead)).copied().unwrap_or(last)
    }

    /// The next token.
    pub(super) fn peek(&self) -> Token<'s> {
        self.entry(0).0
    }

    /// The token after the next.
    pub(super) fn peek_second(&self) -> Token<'s> {
        self.entry(1).0
    }

    /// Line of the next token.
    pub(super) fn line(&self) -> u32 {
        self.entry(0).1
    }

    /// Consumes the next token.
    pub(super) fn next(&mut self) -> Token<'s> {
        let token = self.peek();
        self.at = self.at.saturating_add(1);
        token
    }

    /// Consumes the next token if it is this one.
    pub(super) fn eat(&mut self, token: Token<'_>) -> bool {
        let same = self.peek() == token;
        if same {
            self.next();
        }
        same
    }

    /// Consumes this token or fails.
    pub(super) fn expect(&mut self, token: Token<'_>) -> Result<()> {
        if self.eat(token) { Ok(()) } else { Err(self.wanted(&token.to_string())) }
    }

    /// The error that the next token is not what was wanted.
    pub(super) fn wanted(&self, what: &str) -> Fault {
        Fault::syntax(self.line(), format!("{what} wanted, found {}", self.peek()))
    }

    /// An error at the next token.
    pub(super) fn error(&self, what: &str) -> Fault {
        Fault::syntax(self.line(), what)
    }

    /// A name.
    pub(super) fn word(&mut self, what: &str) -> Result<&'s str> {
        match self.peek() {
            Token::Word(word) => {
                self.next();
                Ok(word)
            }
            _ => Err(self.wanted(what)),
        }
    }

    /// A directive or a modifier, without its dot.
    pub(super) fn dot(&mut self, what: &str) -> Result<&'s str> {
        match self.peek() {
            Token::Dot(word) => {
                self.next();
                Ok(word)
            }
            _ => Err(self.wanted(what)),
        }
    }

    /// An unsigned number.
    pub(super) fn number(&mut self) -> Result<u64> {
        match self.peek() {
            Token::Int(value) => {
                self.next();
                Ok(value)
            }
            _ => Err(self.wanted("a number")),
        }
    }

    /// An unsigned number of 32 bits.
    pub(super) fn number32(&mut self) -> Result<u32> {
        let line = self.line();
        u32::try_from(self.number()?).map_err(|_| Fault::syntax(line, "the number does not fit 32 bits"))
    }

    /// Consumes everything up to the brace that closes the next one.
    pub(super) fn skip_braces(&mut self) -> Result<()> {
        let mut depth = 0u64;
        loop {
            match self.peek() {
                Token::LeftBrace => depth = depth.saturating_add(1),
                Token::RightBrace => depth = depth.saturating_sub(1),
                Token::End => return Err(self.wanted("`}`")),
                _ if depth == 0 => return Err(self.wanted("`{`")),
                _ => {}
            }
            self.next();
            if depth == 0 {
                return Ok(());
            }
        }
    }
}
