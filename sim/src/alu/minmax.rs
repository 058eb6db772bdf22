//! Minima and maxima of floats.

use super::AluForm;
use super::float::{Brain, Double, Float, Half, Single, pairs};
use super::words::Words;
use crate::program::AluFn;
use crate::syntax::ast::Type;

/// How operands are read and NaNs are handled, as one bit each.
const MAX: u8 = 1;
const FTZ: u8 = 2;
/// `.NaN`: a NaN operand gives a NaN. Without it, the number wins.
const NAN: u8 = 4;
/// `.xorsign.abs`: the magnitudes count, and the result has the product's sign.
const XORSIGN: u8 = 8;

/// Chooses an instance by its flags.
macro_rules! with_flags {
    ($flags:expr, $f:ident::<$float:ty>: $($n:literal)+) => {
        match $flags {
            $($n => $f::<$float, $n> as AluFn,)+
            _ => return None,
        }
    };
}
macro_rules! with_all_flags {
    ($flags:expr, $f:ident::<$float:ty>) => {
        with_flags!($flags, $f::<$float>: 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15)
    };
}

pub(super) fn lookup(opcode: &str, mut words: Words<'_>) -> Option<AluForm> {
    let mut flags = match opcode {
        "min" => 0,
        "max" => MAX,
        _ => return None,
    };
    for (word, flag) in [("ftz", FTZ), ("NaN", NAN), ("xorsign", XORSIGN)] {
        if words.flag(word) {
            flags |= flag;
        }
    }
    if flags & XORSIGN != 0 && !words.flag("abs") {
        return None;
    }
    let ty = words.last_ty()?;
    let f = match ty {
        Type::F32 => with_all_flags!(flags, choose::<Single>),
        Type::F64 if flags <= MAX => with_all_flags!(flags, choose::<Double>),
        Type::F16 => with_all_flags!(flags, choose::<Half>),
        Type::F16x2 => with_all_flags!(flags, choose_pair::<Half>),
        Type::Bf16 if flags & FTZ == 0 => with_all_flags!(flags, choose::<Brain>),
        Type::Bf16x2 if flags & FTZ == 0 => with_all_flags!(flags, choose_pair::<Brain>),
        _ => return None,
    };
    Some(AluForm::new(f, ty, &[ty, ty]))
}

/// The smaller or the larger. Minus zero is below plus zero.
pub(super) fn choose<F: Float, const FLAGS: u8>(a: u64, b: u64, _: u64, _: u64) -> u64 {
    let format = F::FORMAT;
    let sign = format.sign();
    let flush = |x: u64| {
        let x = x & (sign | (sign - 1));
        if FLAGS & FTZ != 0 { format.flush(x) } else { x }
    };
    let (a, b) = (flush(a), flush(b));
    match (format.is_nan(a), format.is_nan(b)) {
        (true, true) => return format.nan,
        (true, _) | (_, true) if FLAGS & NAN != 0 => return format.nan,
        (true, false) if FLAGS & XORSIGN == 0 => return b,
        (false, true) if FLAGS & XORSIGN == 0 => return a,
        _ => {}
    }
    let product_sign = (a ^ b) & sign;
    let (a, b) = if FLAGS & XORSIGN == 0 { (a, b) } else { (a & !sign, b & !sign) };
    // Magnitudes in order, negative ones reversed and below.
    let key = |x: u64| if x & sign != 0 { -1 - i128::from(x & !sign) } else { i128::from(x) };
    let first = match (format.is_nan(a), format.is_nan(b)) {
        (true, _) => false,
        (_, true) => true,
        _ => (key(a) < key(b)) != (FLAGS & MAX != 0),
    };
    let chosen = if first { a } else { b };
    if FLAGS & XORSIGN == 0 { chosen } else { chosen | product_sign }
}

fn choose_pair<F: Float, const FLAGS: u8>(a: u64, b: u64, _: u64, _: u64) -> u64 {
    pairs(a, b, 0, choose::<F, FLAGS>)
}
