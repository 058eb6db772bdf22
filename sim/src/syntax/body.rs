//! Bodies of functions: declarations, labels, instructions, scopes.

use super::ast::{Instruction, Statement, Type};
use super::lexer::Token;
use super::module::{pragma, space, variables};
use super::operand::operands;
use super::parser::Parser;
use crate::fault::Result;

/// How deep scopes may nest.
const DEPTH: u32 = 64;

/// A body with its braces.
pub(super) fn body(p: &mut Parser<'_>) -> Result<Vec<Statement>> {
    block(p, 0)
}

fn block(p: &mut Parser<'_>, depth: u32) -> Result<Vec<Statement>> {
    if depth > DEPTH {
        return Err(p.error("scopes nest too deep"));
    }
    p.expect(Token::LeftBrace)?;
    let mut found = Vec::new();
    while !p.eat(Token::RightBrace) {
        match p.peek() {
            Token::LeftBrace => found.push(Statement::Block(block(p, depth + 1)?)),
            Token::Semicolon => {
                p.next();
            }
            Token::Dot("reg") => registers(p, &mut found)?,
            Token::Dot("loc") => found.push(location(p)?),
            Token::Dot("pragma") => pragma(p)?,
            Token::Dot(word) if space(word).is_some() => {
                let mut declared = Vec::new();
                variables(p, false, &mut declared)?;
                found.extend(declared.into_iter().map(Statement::Variable));
            }
            Token::Word(_) if p.peek_second() == Token::Colon => found.push(label(p)?),
            Token::Word(_) | Token::At => found.push(Statement::Instruction(instruction(p)?)),
            _ => return Err(p.wanted("a statement or `}`")),
        }
    }
    Ok(found)
}

/// `.reg .b32 %r<4>, x;`
fn registers(p: &mut Parser<'_>, found: &mut Vec<Statement>) -> Result<()> {
    p.next();
    let wanted = p.wanted("a type");
    let ty = Type::from_suffix(p.dot("a type")?).ok_or(wanted)?;
    loop {
        let line = p.line();
        let name = p.word("the name of a register")?.to_owned();
        let count = if p.eat(Token::Less) {
            let count = p.number32()?;
            p.expect(Token::Greater)?;
            Some(count)
        } else {
            None
        };
        found.push(Statement::Registers { ty, name, count, line });
        if !p.eat(Token::Comma) {
            return p.expect(Token::Semicolon);
        }
    }
}

/// `.loc 1 20 5, function_name $L__info_string0, inlined_at 1 30 7`. The inlining information is not kept.
fn location(p: &mut Parser<'_>) -> Result<Statement> {
    p.next();
    let (file, line, column) = (p.number32()?, p.number32()?, p.number32()?);
    while p.eat(Token::Comma) {
        match p.word("`function_name` or `inlined_at`")? {
            "function_name" => {
                p.word("a label")?;
                if p.eat(Token::Plus) {
                    p.number()?;
                }
            }
            "inlined_at" => {
                for _ in 0..3 {
                    p.number()?;
                }
            }
            _ => return Err(p.error("`function_name` or `inlined_at` wanted")),
        }
    }
    Ok(Statement::Loc { file, line, column })
}

fn label(p: &mut Parser<'_>) -> Result<Statement> {
    let line = p.line();
    let name = p.word("a label")?.to_owned();
    p.expect(Token::Colon)?;
    match p.peek() {
        Token::Dot("branchtargets") => {
            p.next();
            let mut targets = vec![p.word("a label")?.to_owned()];
            while p.eat(Token::Comma) {
                targets.push(p.word("a label")?.to_owned());
            }
            p.expect(Token::Semicolon)?;
            Ok(Statement::BranchTargets { name, targets, line })
        }
        Token::Dot("callprototype" | "calltargets") => Err(p.error("indirect calls are not supported")),
        _ => Ok(Statement::Label { name, line }),
    }
}

fn instruction(p: &mut Parser<'_>) -> Result<Instruction> {
    let guard = if p.eat(Token::At) {
        let negated = p.eat(Token::Bang);
        Some((p.word("a predicate")?.to_owned(), negated))
    } else {
        None
    };
    let line = p.line();
    let opcode = p.word("an opcode")?.to_owned();
    let mut modifiers = Vec::new();
    while let Token::Dot(word) = p.peek() {
        modifiers.push(word.to_owned());
        p.next();
    }
    let operands = operands(p)?;
    p.expect(Token::Semicolon)?;
    Ok(Instruction { line, guard, opcode, modifiers, operands })
}
