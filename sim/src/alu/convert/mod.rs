//! `cvt`: which conversions the ISA has.

mod packed;
mod scalar;

use super::AluForm;
use super::float::{Clamp, ROUNDS};
use super::rounding::Round;
use super::words::Words;
use crate::syntax::ast::Type;
use scalar::{between_floats, between_integers, from_integer, integral_float, to_integer};

/// Roundings to integers.
const INTEGER_ROUNDS: &[(&str, Round)] =
    &[("rni", Round::Nearest), ("rzi", Round::Zero), ("rmi", Round::Down), ("rpi", Round::Up)];

pub(super) fn lookup(opcode: &str, words: Words<'_>) -> Option<AluForm> {
    if opcode != "cvt" {
        return None;
    }
    packed::lookup(words).or_else(|| scalar(words))
}

fn scalar(mut words: Words<'_>) -> Option<AluForm> {
    let integral = words.pick(INTEGER_ROUNDS);
    let round = if integral.is_none() { words.pick(ROUNDS) } else { None };
    let ftz = words.flag("ftz");
    let clamp = words.pick(&[("sat", Clamp::Unit), ("relu", Clamp::Relu), ("satfinite", Clamp::Finite)]);
    let clamp = clamp.unwrap_or(Clamp::None);
    let (dst, src) = (words.ty()?, words.last_ty()?);
    if (ftz && dst != Type::F32 && src != Type::F32) || !clamp_is_legal(clamp, round, ftz, dst, src) {
        return None;
    }
    let f = match (float_width(dst), float_width(src)) {
        (None, None) if integral.is_none() && round.is_none() => between_integers(dst, src, clamp)?,
        (None, Some(_)) => to_integer(dst, src, integral?, ftz)?,
        (Some(_), None) => from_integer(dst, src, round?, clamp)?,
        (Some(d), Some(s)) => match (integral, round) {
            (Some(integral), _) if dst == src => integral_float(dst, integral, ftz, clamp)?,
            (None, Some(round)) if d < s || mixes_halves(dst, src) => between_floats(dst, src, round, ftz, clamp)?,
            (None, None) if d > s || dst == src || mixes_halves(dst, src) => {
                between_floats(dst, src, Round::Nearest, ftz, clamp)?
            }
            _ => return None,
        },
        _ => return None,
    };
    Some(AluForm::new(f, dst, &[src]))
}

/// Width of a float.
fn float_width(ty: Type) -> Option<u32> {
    match ty {
        Type::F16 | Type::Bf16 => Some(16),
        Type::F32 => Some(32),
        Type::F64 => Some(64),
        _ => None,
    }
}

/// Conversions that involve `bf16` and may name a rounding although they do not need one.
fn mixes_halves(dst: Type, src: Type) -> bool {
    (src == Type::Bf16 && dst != Type::Bf16) || (src, dst) == (Type::F16, Type::Bf16)
}

/// `.sat` needs a range to clamp to, `.relu` and `.satfinite` belong to the narrowing of singles, and there is no conversion
/// between 8-bit integers and `bf16`.
fn clamp_is_legal(clamp: Clamp, round: Option<Round>, ftz: bool, dst: Type, src: Type) -> bool {
    let brain = dst == Type::Bf16 || src == Type::Bf16;
    let bytes = |ty| matches!(ty, Type::U8 | Type::S8);
    if brain && (bytes(dst) || bytes(src)) {
        return false;
    }
    match clamp {
        Clamp::None => true,
        Clamp::Unit => !brain && !contains(dst, src),
        Clamp::Relu | Clamp::Finite => {
            let narrows = matches!(dst, Type::F16 | Type::Bf16) && src == Type::F32;
            narrows && !ftz && matches!(round, Some(Round::Nearest | Round::Zero))
        }
    }
}

/// True if one integer type holds every value of the other.
fn contains(wide: Type, narrow: Type) -> bool {
    match (integer(wide), integer(narrow)) {
        (Some((ws, wb)), Some((ns, nb))) if ws == ns => wb >= nb,
        (Some((true, wb)), Some((false, nb))) => wb > nb,
        _ => false,
    }
}

/// Signedness and width.
fn integer(ty: Type) -> Option<(bool, u32)> {
    Some(match ty {
        Type::U8 => (false, 8),
        Type::U16 => (false, 16),
        Type::U32 => (false, 32),
        Type::U64 => (false, 64),
        Type::S8 => (true, 8),
        Type::S16 => (true, 16),
        Type::S32 => (true, 32),
        Type::S64 => (true, 64),
        _ => return None,
    })
}
