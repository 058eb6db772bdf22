//! `cvt` of pairs of narrow floats, of `tf32`, and `cvt.pack`.

use super::super::AluForm;
use super::super::float::{Clamp, clamp};
use super::super::rounding::{BF16, E4M3, E5M2, F16, F32, Format, Round, Value};
use super::super::words::Words;
use crate::program::AluFn;
use crate::syntax::ast::Type;

/// A form's words before its types, its types, and its function. A pair of singles is two operands. The first one becomes the
/// high part.
type PackedForm = (&'static str, Type, Type, AluFn);

use Round::{Nearest, NearestAway, Zero};
use Type::{Bf16x2, E4m3x2, E5m2x2, F16x2, Tf32};

/// A type has the name of its format.
const SINGLE: Type = Type::F32;

const FORMS: &[PackedForm] = &[
    ("rna", Tf32, SINGLE, |a, _, _, _| away(a)),
    ("rna.satfinite", Tf32, SINGLE, |a, _, _, _| below_infinity(away(a))),
    ("rn", Tf32, SINGLE, |a, _, _, _| tf32(Nearest, false, a)),
    ("rn.relu", Tf32, SINGLE, |a, _, _, _| tf32(Nearest, true, a)),
    ("rz", Tf32, SINGLE, |a, _, _, _| tf32(Zero, false, a)),
    ("rz.relu", Tf32, SINGLE, |a, _, _, _| tf32(Zero, true, a)),
    ("rn", F16x2, SINGLE, |a, b, _, _| pair(F16, Nearest, PLAIN, a, b)),
    ("rn.relu", F16x2, SINGLE, |a, b, _, _| pair(F16, Nearest, RELU, a, b)),
    ("rn.satfinite", F16x2, SINGLE, |a, b, _, _| pair(F16, Nearest, FINITE, a, b)),
    ("rn.satfinite.relu", F16x2, SINGLE, |a, b, _, _| pair(F16, Nearest, BOTH, a, b)),
    ("rz", F16x2, SINGLE, |a, b, _, _| pair(F16, Zero, PLAIN, a, b)),
    ("rz.relu", F16x2, SINGLE, |a, b, _, _| pair(F16, Zero, RELU, a, b)),
    ("rz.satfinite", F16x2, SINGLE, |a, b, _, _| pair(F16, Zero, FINITE, a, b)),
    ("rz.satfinite.relu", F16x2, SINGLE, |a, b, _, _| pair(F16, Zero, BOTH, a, b)),
    ("rn", Bf16x2, SINGLE, |a, b, _, _| pair(BF16, Nearest, PLAIN, a, b)),
    ("rn.relu", Bf16x2, SINGLE, |a, b, _, _| pair(BF16, Nearest, RELU, a, b)),
    ("rn.satfinite", Bf16x2, SINGLE, |a, b, _, _| pair(BF16, Nearest, FINITE, a, b)),
    ("rn.satfinite.relu", Bf16x2, SINGLE, |a, b, _, _| pair(BF16, Nearest, BOTH, a, b)),
    ("rz", Bf16x2, SINGLE, |a, b, _, _| pair(BF16, Zero, PLAIN, a, b)),
    ("rz.relu", Bf16x2, SINGLE, |a, b, _, _| pair(BF16, Zero, RELU, a, b)),
    ("rz.satfinite", Bf16x2, SINGLE, |a, b, _, _| pair(BF16, Zero, FINITE, a, b)),
    ("rz.satfinite.relu", Bf16x2, SINGLE, |a, b, _, _| pair(BF16, Zero, BOTH, a, b)),
    ("rn.satfinite", E4m3x2, SINGLE, |a, b, _, _| bytes(E4M3, F32, FINITE, a, b)),
    ("rn.satfinite.relu", E4m3x2, SINGLE, |a, b, _, _| bytes(E4M3, F32, BOTH, a, b)),
    ("rn.satfinite", E5m2x2, SINGLE, |a, b, _, _| bytes(E5M2, F32, FINITE, a, b)),
    ("rn.satfinite.relu", E5m2x2, SINGLE, |a, b, _, _| bytes(E5M2, F32, BOTH, a, b)),
    ("rn.satfinite", E4m3x2, F16x2, |a, _, _, _| bytes(E4M3, F16, FINITE, a >> 16, a)),
    ("rn.satfinite.relu", E4m3x2, F16x2, |a, _, _, _| bytes(E4M3, F16, BOTH, a >> 16, a)),
    ("rn.satfinite", E5m2x2, F16x2, |a, _, _, _| bytes(E5M2, F16, FINITE, a >> 16, a)),
    ("rn.satfinite.relu", E5m2x2, F16x2, |a, _, _, _| bytes(E5M2, F16, BOTH, a >> 16, a)),
    ("rn", F16x2, E4m3x2, |a, _, _, _| halves(E4M3, PLAIN, a)),
    ("rn.relu", F16x2, E4m3x2, |a, _, _, _| halves(E4M3, RELU, a)),
    ("rn", F16x2, E5m2x2, |a, _, _, _| halves(E5M2, PLAIN, a)),
    ("rn.relu", F16x2, E5m2x2, |a, _, _, _| halves(E5M2, RELU, a)),
];

pub(super) fn lookup(words: Words<'_>) -> Option<AluForm> {
    pack(words).or_else(|| narrow(words))
}

fn narrow(mut words: Words<'_>) -> Option<AluForm> {
    let mut spelling = String::from(words.pick(&[("rn", "rn"), ("rz", "rz"), ("rna", "rna")])?);
    // The ISA writes the two clamps in either order.
    let relu = words.flag("relu");
    if words.flag("satfinite") {
        spelling.push_str(".satfinite");
    }
    if relu || words.flag("relu") {
        spelling.push_str(".relu");
    }
    let (dst, src) = (words.ty()?, words.last_ty()?);
    let (.., f) = FORMS.iter().find(|(w, d, s, _)| *w == spelling && *d == dst && *s == src)?;
    let sources = if src == SINGLE && dst != Tf32 { 2 } else { 1 };
    Some(AluForm::new(*f, dst, &[src; 2][..sources]))
}

/// `cvt.pack`: clamps two integers into the low bits, with a third above them if there is room.
fn pack(mut words: Words<'_>) -> Option<AluForm> {
    if !words.flag("pack") || !words.flag("sat") {
        return None;
    }
    let to = words.ty()?;
    let (from, rest) = (words.ty()?, words.ty());
    let (f, accumulates): (AluFn, _) = match to {
        Type::U16 => (|a, b, _, _| packed(16, [0, 0xffff], a, b, 0), false),
        Type::S16 => (|a, b, _, _| packed(16, [-0x8000, 0x7fff], a, b, 0), false),
        Type::U8 => (|a, b, c, _| packed(8, [0, 0xff], a, b, c), true),
        Type::S8 => (|a, b, c, _| packed(8, [-0x80, 0x7f], a, b, c), true),
        _ => return None,
    };
    let legal = from == Type::S32 && rest == accumulates.then_some(Type::B32) && words.end();
    legal.then(|| AluForm::new(f, Type::B32, &[from, from, Type::B32][..if accumulates { 3 } else { 2 }]))
}

fn packed(width: u32, [least, most]: [i32; 2], a: u64, b: u64, c: u64) -> u64 {
    let part = |x: u64| u64::from((x as i32).clamp(least, most) as u32) & ((1 << width) - 1);
    (c << (2 * width) | part(a) << width | part(b)) & 0xffff_ffff
}

/// The conversion of each part.
type Clamps = &'static [Clamp];
const PLAIN: Clamps = &[];
const RELU: Clamps = &[Clamp::Relu];
const FINITE: Clamps = &[Clamp::Finite];
const BOTH: Clamps = &[Clamp::Finite, Clamp::Relu];

fn part(to: Format, from: Format, round: Round, clamps: Clamps, a: u64) -> u64 {
    // Where there is no infinity, what is too large has a NaN's pattern until it is clamped.
    match Value::of(from, a) {
        Value::Nan => to.nan,
        value => clamps.iter().fold(value.pack(to, round), |bits, c| clamp(to, *c, bits)),
    }
}

/// Single precision with a fraction of ten bits.
const SHORT: Format = Format { exponent_bits: 8, fraction_bits: 10, largest: 0x3fbff, nan: 0x3ffff };

fn tf32(round: Round, relu: bool, a: u64) -> u64 {
    clamp(F32, if relu { Clamp::Relu } else { Clamp::None }, Value::of(F32, a).pack(SHORT, round) << 13)
}

/// `tf32` with ties away from zero. The ISA does not define its NaNs. The hardware implements it by integer instructions that
/// clear the low bits, so a NaN with its whole payload there becomes an infinity.
fn away(a: u64) -> u64 {
    let bits = match Value::of(F32, a) {
        Value::Nan => a >> 13 & (2 * SHORT.sign() - 1),
        value => value.pack(SHORT, NearestAway),
    };
    bits << 13
}

/// The clamp that belongs to it subtracts one from the bits of an infinity, and also from those of a NaN.
fn below_infinity(bits: u64) -> u64 {
    if bits & F32.infinity() == F32.infinity() { bits - (1 << 13) } else { bits }
}

fn pair(format: Format, round: Round, clamps: Clamps, high: u64, low: u64) -> u64 {
    part(format, F32, round, clamps, high) << 16 | part(format, F32, round, clamps, low)
}

fn bytes(to: Format, from: Format, clamps: Clamps, high: u64, low: u64) -> u64 {
    part(to, from, Nearest, clamps, high) << 8 | part(to, from, Nearest, clamps, low)
}

fn halves(from: Format, clamps: Clamps, a: u64) -> u64 {
    let half = |x: u64| part(F16, from, Nearest, clamps, x & 0xff);
    half(a >> 8) << 16 | half(a)
}
