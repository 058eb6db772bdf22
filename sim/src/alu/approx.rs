//! The `.approx` functions, rounded from double precision, and the error that the ISA allows.

use super::AluForm;
use super::float::{Brain, Float, Half, Single, pairs};
use super::inexact::{Bound, Exact, Inexact};
use super::rounding::{F32, F64, Round, Value};
use super::words::Words;
use crate::program::AluFn;
use crate::syntax::ast::Type;

/// Two to a power, for error bounds.
fn power(exponent: f64) -> f64 {
    libm::exp2(exponent)
}

/// An approximate function of one argument: its opcode, the words before the type, the type, the function with and without
/// rounding, and the ISA's bound (a kind of bound, and its power of two or its count).
type ApproximateFunction = (&'static str, &'static str, Type, AluFn, fn(f64) -> f64, fn(f64) -> Bound, f64);

const ULP: fn(f64) -> Bound = Bound::Ulp;
const RELATIVE: fn(f64) -> Bound = |p| Bound::Relative(power(p));
const ABSOLUTE: fn(f64) -> Bound = |p| Bound::Absolute(power(p));
const EITHER: fn(f64) -> Bound = |p| Bound::AbsoluteOrRelative(power(p));

use Type::{Bf16, Bf16x2, F16, F16x2};
const SINGLE: Type = Type::F32;
const DOUBLE: Type = Type::F64;

static FUNCTIONS: &[ApproximateFunction] = &[
    ("rcp", "approx", SINGLE, |a, _, _, _| single::<false>(a, reciprocal), reciprocal, ULP, 1.0),
    ("rcp", "approx.ftz", SINGLE, |a, _, _, _| single::<true>(a, reciprocal), reciprocal, ULP, 1.0),
    ("rcp", "approx.ftz", DOUBLE, |a, _, _, _| upper(a, reciprocal), reciprocal, RELATIVE, -19.0),
    ("sqrt", "approx", SINGLE, |a, _, _, _| single::<false>(a, f64::sqrt), f64::sqrt, RELATIVE, -23.0),
    ("sqrt", "approx.ftz", SINGLE, |a, _, _, _| single::<true>(a, f64::sqrt), f64::sqrt, RELATIVE, -23.0),
    ("rsqrt", "approx", SINGLE, |a, _, _, _| single::<false>(a, reciprocal_root), reciprocal_root, RELATIVE, -22.4),
    ("rsqrt", "approx.ftz", SINGLE, |a, _, _, _| single::<true>(a, reciprocal_root), reciprocal_root, RELATIVE, -22.4),
    ("rsqrt", "approx", DOUBLE, |a, _, _, _| double(reciprocal_root(f64::from_bits(a))), reciprocal_root, ULP, 2.0),
    ("rsqrt", "approx.ftz", DOUBLE, |a, _, _, _| upper(a, reciprocal_root), reciprocal_root, RELATIVE, -19.0),
    ("sin", "approx", SINGLE, |a, _, _, _| single::<false>(a, libm::sin), libm::sin, ABSOLUTE, -20.5),
    ("sin", "approx.ftz", SINGLE, |a, _, _, _| single::<true>(a, libm::sin), libm::sin, ABSOLUTE, -20.5),
    ("cos", "approx", SINGLE, |a, _, _, _| single::<false>(a, libm::cos), libm::cos, ABSOLUTE, -20.5),
    ("cos", "approx.ftz", SINGLE, |a, _, _, _| single::<true>(a, libm::cos), libm::cos, ABSOLUTE, -20.5),
    ("lg2", "approx", SINGLE, |a, _, _, _| single::<false>(a, libm::log2), libm::log2, EITHER, -22.0),
    ("lg2", "approx.ftz", SINGLE, |a, _, _, _| single::<true>(a, libm::log2), libm::log2, EITHER, -22.0),
    ("ex2", "approx", SINGLE, |a, _, _, _| single::<false>(a, libm::exp2), libm::exp2, ULP, 2.0),
    ("ex2", "approx.ftz", SINGLE, |a, _, _, _| single::<true>(a, libm::exp2), libm::exp2, ULP, 2.0),
    ("ex2", "approx", F16, half_exp2, libm::exp2, RELATIVE, -9.9),
    ("ex2", "approx", F16x2, |a, _, _, _| pairs(a, 0, 0, half_exp2), libm::exp2, RELATIVE, -9.9),
    ("ex2", "approx.ftz", Bf16, brain_exp2, libm::exp2, RELATIVE, -7.0),
    ("ex2", "approx.ftz", Bf16x2, |a, _, _, _| pairs(a, 0, 0, brain_exp2), libm::exp2, RELATIVE, -7.0),
    ("tanh", "approx", SINGLE, |a, _, _, _| single::<false>(a, libm::tanh), libm::tanh, RELATIVE, -11.0),
    ("tanh", "approx", F16, half_tanh, libm::tanh, ABSOLUTE, -10.987),
    ("tanh", "approx", F16x2, |a, _, _, _| pairs(a, 0, 0, half_tanh), libm::tanh, ABSOLUTE, -10.987),
    ("tanh", "approx", Bf16, brain_tanh, libm::tanh, ABSOLUTE, -8.0),
    ("tanh", "approx", Bf16x2, |a, _, _, _| pairs(a, 0, 0, brain_tanh), libm::tanh, ABSOLUTE, -8.0),
];

/// Quotients: the words before the type, and the function.
const QUOTIENTS: &[(&str, AluFn)] = &[
    ("approx", |a, b, _, _| divide(a, b, false, true)),
    ("approx.ftz", |a, b, _, _| divide(a, b, true, true)),
    ("full", |a, b, _, _| divide(a, b, false, false)),
    ("full.ftz", |a, b, _, _| divide(a, b, true, false)),
];

const QUOTIENT: Bound = Bound::Ulp(2.0);

/// A number for each opcode, so that two functions have different errors at equal arguments.
fn salt(opcode: &str) -> u64 {
    opcode.bytes().fold(0, |n, b| n << 8 | u64::from(b))
}

pub(super) fn lookup(opcode: &str, words: Words<'_>) -> Option<AluForm> {
    let (spelling, ty) = split(words)?;
    if opcode == "div" && ty == SINGLE {
        let (words, f) = QUOTIENTS.iter().find(|(w, _)| *w == spelling)?;
        let inexact = Inexact {
            f: Exact::Quotient,
            format: F32,
            flushes: words.ends_with(".ftz"),
            packed: false,
            bound: QUOTIENT,
            salt: salt(opcode),
        };
        return Some(AluForm { inexact: Some(inexact), ..AluForm::new(*f, ty, &[ty, ty]) });
    }
    let &(opcode, words, _, f, exact, bound, size) = row(opcode, &spelling, ty)?;
    // Of double precision only the upper words are computed, by functions that Atlas does not use.
    let format = match ty {
        Type::F64 => None,
        Type::F32 => Some(Single::FORMAT),
        F16 | F16x2 => Some(Half::FORMAT),
        _ => Some(Brain::FORMAT),
    };
    let approximate = format.map(|format| Inexact {
        f: Exact::Function(exact),
        format,
        flushes: words.ends_with(".ftz"),
        packed: matches!(ty, F16x2 | Bf16x2),
        bound: bound(size),
        salt: salt(opcode),
    });
    Some(AluForm { inexact: approximate, ..AluForm::new(f, ty, &[ty]) })
}

/// The ISA's bound on a form's error; `None` for forms whose result it defines exactly.
///
/// The bounds of `sin` and `cos` hold from `-pi` to `pi`. Those of `ex2` and of the quotients hold if neither the operands nor
/// the result are subnormal.
pub fn error_bound(opcode: &str, modifiers: &[&str]) -> Option<Bound> {
    let (spelling, ty) = split(Words::new(modifiers))?;
    if opcode == "div" && ty == SINGLE {
        return QUOTIENTS.iter().any(|(w, _)| *w == spelling).then_some(QUOTIENT);
    }
    let (.., bound, size) = row(opcode, &spelling, ty)?;
    Some(bound(*size))
}

fn row(opcode: &str, spelling: &str, ty: Type) -> Option<&'static ApproximateFunction> {
    FUNCTIONS.iter().find(|(o, w, t, ..)| *o == opcode && *w == spelling && *t == ty)
}

/// The words before the type, and the type.
fn split(mut words: Words<'_>) -> Option<(String, Type)> {
    let mut spelling = String::from(words.pick(&[("approx", "approx"), ("full", "full")])?);
    if words.flag("ftz") {
        spelling.push_str(".ftz");
    }
    Some((spelling, words.last_ty()?))
}

fn reciprocal(x: f64) -> f64 {
    1.0 / x
}

fn reciprocal_root(x: f64) -> f64 {
    1.0 / x.sqrt()
}

/// A function of double precision on a narrower format.
fn narrow<F: Float>(a: u64, f: fn(f64) -> f64) -> u64 {
    let x = f64::from_bits(Value::of(F::FORMAT, a).pack(F64, Round::Nearest));
    Value::of(F64, f(x).to_bits()).pack(F::FORMAT, Round::Nearest)
}

fn single<const FTZ: bool>(a: u64, f: fn(f64) -> f64) -> u64 {
    if FTZ { F32.flush(narrow::<Single>(F32.flush(a), f)) } else { narrow::<Single>(a, f) }
}

fn half_exp2(a: u64, _: u64, _: u64, _: u64) -> u64 {
    narrow::<Half>(a, libm::exp2)
}

fn brain_exp2(a: u64, _: u64, _: u64, _: u64) -> u64 {
    Brain::FORMAT.flush(narrow::<Brain>(Brain::FORMAT.flush(a), libm::exp2))
}

fn half_tanh(a: u64, _: u64, _: u64, _: u64) -> u64 {
    narrow::<Half>(a, libm::tanh)
}

fn brain_tanh(a: u64, _: u64, _: u64, _: u64) -> u64 {
    narrow::<Brain>(a, libm::tanh)
}

fn double(y: f64) -> u64 {
    if y.is_nan() { F64.nan } else { y.to_bits() }
}

/// Functions that read and write only the upper words of doubles, and flush subnormal ones. Their NaN has the single-precision
/// NaN in the upper word.
fn upper(a: u64, f: fn(f64) -> f64) -> u64 {
    const UPPER: u64 = 0xffff_ffff_0000_0000;
    let x = f64::from_bits(F64.flush(a & UPPER));
    let y = f(x);
    if y.is_nan() { F32.nan << 32 } else { F64.flush(y.to_bits()) & UPPER }
}

/// The fast quotient multiplies by a reciprocal, which is zero past 2^126.
fn divide(a: u64, b: u64, ftz: bool, quick: bool) -> u64 {
    let flush = |x: u64| if ftz { F32.flush(x) } else { x };
    let (a, b) = (flush(a), flush(b));
    let divisor = Value::of(F32, b);
    let beyond = b & !F32.sign() > 0x7e80_0000 && matches!(divisor, Value::Number(_));
    let quotient = if quick && beyond {
        Value::of(F32, a).mul(Value::Zero { negative: b & F32.sign() != 0 })
    } else {
        Value::of(F32, a).div(divisor)
    };
    // As in a product, what is flushed is the quotient before it is rounded.
    let quotient =
        if ftz && quotient.is_subnormal(F32) { quotient.mul(Value::Zero { negative: false }) } else { quotient };
    quotient.pack(F32, Round::Nearest)
}
