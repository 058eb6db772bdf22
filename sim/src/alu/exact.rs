//! Floats as elements of a finite ring, where sums do not depend on their order.
//!
//! A single is a pair of residues modulo 2^16, its high and its low half, and a half is one residue. Widening a half puts it in
//! the high residue, like the shifts by which compilers widen `bf16`. Narrowing keeps that residue.

use super::AluForm;
use super::words::Words;
use crate::program::AluFn;
use crate::syntax::ast::Type;

/// The forms that have a meaning in the ring. Rounding modifiers are read and ignored.
pub(super) fn lookup(opcode: &str, words: Words<'_>) -> Option<AluForm> {
    if words.names(&["sat", "relu", "satfinite", "rni", "rzi", "rmi", "rpi"]) {
        return None;
    }
    let form = super::ieee(opcode, words)?;
    let f: AluFn = match opcode {
        "add" => |a, b, _, _| each(a, b, 0, |a, b, _| a.wrapping_add(b)),
        "sub" => |a, b, _, _| each(a, b, 0, |a, b, _| a.wrapping_sub(b)),
        "neg" => |a, _, _, _| each(a, 0, 0, |a, _, _| a.wrapping_neg()),
        "mul" => |a, b, _, _| each(a, b, 0, |a, b, _| a.wrapping_mul(b)),
        "fma" | "mad" => |a, b, c, _| each(a, b, c, |a, b, c| a.wrapping_mul(b).wrapping_add(c)),
        "cvt" => return convert(form),
        _ => return None,
    };
    let f = match form.dst {
        Type::F32 if matches!(form.src[0], Type::F16 | Type::Bf16) => mixed(opcode)?,
        Type::F32 | Type::F32x2 | Type::F16x2 | Type::Bf16x2 => f,
        Type::F16 | Type::Bf16 => low(opcode)?,
        _ => return None,
    };
    Some(AluForm { f, ..form })
}

/// The sum of two elements, for atomics.
pub(super) fn add(ty: Type) -> Option<AluFn> {
    match ty {
        Type::F32 | Type::F16x2 | Type::Bf16x2 => Some(|a, b, _, _| each(a, b, 0, |a, b, _| a.wrapping_add(b))),
        Type::F16 | Type::Bf16 => low("add"),
        _ => None,
    }
}

/// The same operations on one residue.
fn low(opcode: &str) -> Option<AluFn> {
    Some(match opcode {
        "add" => |a, b, _, _| a.wrapping_add(b) & 0xffff,
        "sub" => |a, b, _, _| a.wrapping_sub(b) & 0xffff,
        "neg" => |a, _, _, _| a.wrapping_neg() & 0xffff,
        "mul" => |a, b, _, _| a.wrapping_mul(b) & 0xffff,
        "fma" => |a, b, c, _| a.wrapping_mul(b).wrapping_add(c) & 0xffff,
        _ => return None,
    })
}

/// The operations on singles, of which the first, or both factors, are widened.
fn mixed(opcode: &str) -> Option<AluFn> {
    Some(match opcode {
        "add" => |a, b, _, _| each(widen(a), b, 0, |a, b, _| a.wrapping_add(b)),
        "sub" => |a, b, _, _| each(widen(a), b, 0, |a, b, _| a.wrapping_sub(b)),
        "fma" => |a, b, c, _| each(widen(a), widen(b), c, |a, b, c| a.wrapping_mul(b).wrapping_add(c)),
        _ => return None,
    })
}

fn widen(half: u64) -> u64 {
    (half & 0xffff) << 16
}

fn convert(form: AluForm) -> Option<AluForm> {
    use Type::*;
    let f: AluFn = match (form.dst, form.src[0]) {
        (F32, F16 | Bf16) => |a, _, _, _| widen(a),
        (F16 | Bf16, F32) => |a, _, _, _| a >> 16 & 0xffff,
        (F16x2 | Bf16x2, F32) => |a, b, _, _| a & 0xffff_0000 | b >> 16 & 0xffff,
        (Tf32 | F32, F32) => |a, _, _, _| a & 0xffff_ffff,
        (F16 | Bf16, F16 | Bf16) => |a, _, _, _| a & 0xffff,
        _ => return None,
    };
    Some(AluForm { f, ..form })
}

/// An operation on all residues. Those above the width of the operands are zeros, and so are their results.
fn each(a: u64, b: u64, c: u64, f: fn(u16, u16, u16) -> u16) -> u64 {
    let part = |shift: u32| u64::from(f((a >> shift) as u16, (b >> shift) as u16, (c >> shift) as u16)) << shift;
    part(48) | part(32) | part(16) | part(0)
}
