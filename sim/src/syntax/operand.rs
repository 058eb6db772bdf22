//! Operands of instructions.

use super::ast::Operand;
use super::lexer::Token;
use super::parser::Parser;
use crate::fault::Result;

/// Operands up to, and without, the semicolon.
pub(super) fn operands(p: &mut Parser<'_>) -> Result<Vec<Operand>> {
    let mut found = Vec::new();
    if p.peek() == Token::Semicolon {
        return Ok(found);
    }
    loop {
        found.push(operand(p)?);
        if !p.eat(Token::Comma) {
            return Ok(found);
        }
    }
}

fn operand(p: &mut Parser<'_>) -> Result<Operand> {
    match p.peek() {
        Token::LeftBracket => address(p),
        Token::LeftBrace => Ok(Operand::Vector(list(p, Token::LeftBrace, Token::RightBrace)?)),
        // Only `call` has parentheses; the decoder refuses it by name.
        Token::LeftParen => Ok(Operand::Vector(list(p, Token::LeftParen, Token::RightParen)?)),
        _ => {
            let first = element(p)?;
            if p.eat(Token::Bar) {
                return Ok(Operand::Pair(Box::new(first), Box::new(element(p)?)));
            }
            Ok(first)
        }
    }
}

fn list(p: &mut Parser<'_>, open: Token<'_>, close: Token<'_>) -> Result<Vec<Operand>> {
    p.expect(open)?;
    let mut found = Vec::new();
    if p.eat(close) {
        return Ok(found);
    }
    loop {
        found.push(element(p)?);
        if !p.eat(Token::Comma) {
            p.expect(close)?;
            return Ok(found);
        }
    }
}

/// A name, a number or a sink.
fn element(p: &mut Parser<'_>) -> Result<Operand> {
    if p.eat(Token::Bang) {
        return Ok(Operand::Not(name(p)?));
    }
    match p.peek() {
        Token::Word("_") => {
            p.next();
            Ok(Operand::Sink)
        }
        Token::Word(_) => {
            let name = name(p)?;
            let offset = offset(p)?;
            Ok(offset.map_or_else(|| Operand::Name(name.clone()), |o| Operand::Offset(name.clone(), o)))
        }
        _ => number(p),
    }
}

/// A number with an optional sign.
pub(super) fn number(p: &mut Parser<'_>) -> Result<Operand> {
    let negative = p.eat(Token::Minus);
    let value = match p.peek() {
        Token::Int(v) => Operand::Int(if negative { v.wrapping_neg() } else { v }),
        Token::F32(bits) => Operand::F32(if negative { bits ^ (1 << 31) } else { bits }),
        Token::F64(bits) => Operand::F64(if negative { bits ^ (1 << 63) } else { bits }),
        Token::Decimal(text) => {
            let value: f64 = text.parse().map_err(|_| p.wanted("a number"))?;
            Operand::F64(if negative { -value } else { value }.to_bits())
        }
        _ => return Err(p.wanted("an operand")),
    };
    p.next();
    Ok(value)
}

/// A name, with the component of a special register.
fn name(p: &mut Parser<'_>) -> Result<String> {
    let word = p.word("a name")?;
    if let Token::Dot(axis @ ("x" | "y" | "z" | "w")) = p.peek() {
        p.next();
        return Ok(format!("{word}.{axis}"));
    }
    Ok(word.to_owned())
}

/// `+4`, `-4`, `+-4`, several of them added up.
fn offset(p: &mut Parser<'_>) -> Result<Option<i64>> {
    let mut total: Option<i64> = None;
    loop {
        let negative = match p.peek() {
            Token::Plus => {
                p.next();
                p.eat(Token::Minus)
            }
            Token::Minus => {
                p.next();
                true
            }
            _ => return Ok(total),
        };
        let value = p.number()?.cast_signed();
        let value = if negative { value.wrapping_neg() } else { value };
        total = Some(total.unwrap_or(0).wrapping_add(value));
    }
}

fn address(p: &mut Parser<'_>) -> Result<Operand> {
    p.expect(Token::LeftBracket)?;
    let base = Box::new(match p.peek() {
        Token::Word("_") => return Err(p.wanted("an address")),
        Token::Word(_) => Operand::Name(name(p)?),
        _ => number(p)?,
    });
    let shift = offset(p)?;
    if p.eat(Token::Comma) {
        if shift.is_some() {
            return Err(p.error("a tensor map takes no offset"));
        }
        let coordinates = list(p, Token::LeftBrace, Token::RightBrace)?;
        p.expect(Token::RightBracket)?;
        return Ok(Operand::TensorAddress { map: base, coordinates });
    }
    p.expect(Token::RightBracket)?;
    Ok(Operand::Address { base, offset: shift.unwrap_or(0) })
}
