//! Initial values of variables, as bytes.

use super::ast::{Operand, Type};
use super::lexer::Token;
use super::operand::number;
use super::parser::Parser;
use crate::fault::Result;

/// The most bytes that a written initial value may have.
const LIMIT: usize = 1 << 28;

/// The value after `=`, for elements of a type in these dimensions, outermost first.
pub(super) fn initializer(p: &mut Parser<'_>, ty: Type, dimensions: &[u64]) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    value(p, ty, dimensions, &mut bytes)?;
    Ok(bytes)
}

fn value(p: &mut Parser<'_>, ty: Type, dimensions: &[u64], bytes: &mut Vec<u8>) -> Result<()> {
    if !p.eat(Token::LeftBrace) {
        return scalar(p, ty, bytes);
    }
    // One level of braces a dimension, so that the depth of nesting is bounded by the declaration.
    let inner = match dimensions.split_first() {
        Some((_, inner)) => inner,
        None => return Err(p.error("more braces than the variable has dimensions")),
    };
    let row = inner.iter().try_fold(u64::from(ty.bytes()), |n, &d| n.checked_mul(d));
    let row = row.and_then(|n| usize::try_from(n).ok()).filter(|&n| n <= LIMIT);
    let row = row.ok_or_else(|| p.error("the variable is too large"))?;
    while p.peek() != Token::RightBrace {
        let nested = p.peek() == Token::LeftBrace;
        let start = bytes.len();
        value(p, ty, inner, bytes)?;
        if nested {
            if bytes.len() - start > row {
                return Err(p.error("more initial values than the variable has room for"));
            }
            bytes.resize(start.saturating_add(row), 0);
        }
        if bytes.len() > LIMIT {
            return Err(p.error("the initial value is too large"));
        }
        if !p.eat(Token::Comma) {
            break;
        }
    }
    p.expect(Token::RightBrace)
}

fn scalar(p: &mut Parser<'_>, ty: Type, bytes: &mut Vec<u8>) -> Result<()> {
    if let Token::Word(_) = p.peek() {
        return Err(p.error("an address as an initial value is not supported"));
    }
    let wrong = p.error(&format!("the initial value does not fit .{}", ty.suffix()));
    let bits = match (number(p)?, ty) {
        (Operand::Int(v), _) if !matches!(ty, Type::F32 | Type::F64) => v,
        (Operand::F32(v), Type::F32 | Type::B32 | Type::U32 | Type::S32) => u64::from(v),
        (Operand::F32(v), Type::F64) => f64::from(f32::from_bits(v)).to_bits(),
        (Operand::F64(v), Type::F32) => u64::from((f64::from_bits(v) as f32).to_bits()),
        (Operand::F64(v), Type::F64 | Type::B64 | Type::U64 | Type::S64) => v,
        _ => return Err(wrong),
    };
    let size = ty.bytes() as usize;
    bytes.extend(bits.to_le_bytes().get(..size).ok_or(wrong)?);
    Ok(())
}
