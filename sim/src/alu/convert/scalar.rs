//! `cvt` of one value: between integers and floats of every width.

use super::super::float::{Brain, Clamp, Double, Float, Half, Single, clamp};
use super::super::integer::Int;
use super::super::rounding::{BF16, F16, F32, F64, Format, Round, Value};
use crate::program::AluFn;
use crate::syntax::ast::Type;

/// Roundings as constants of functions.
const RN: u8 = 0;
const RZ: u8 = 1;
const RM: u8 = 2;
const RP: u8 = 3;

const fn round_of(code: u8) -> Round {
    match code {
        RN => Round::Nearest,
        RZ => Round::Zero,
        RM => Round::Down,
        _ => Round::Up,
    }
}

/// Chooses an instance by an integer type and what follows it.
macro_rules! with_int {
    ($ty:expr, $next:ident!($($args:tt)*)) => {
        match $ty {
            Type::U8 => $next!($($args)* u8),
            Type::U16 => $next!($($args)* u16),
            Type::U32 => $next!($($args)* u32),
            Type::U64 => $next!($($args)* u64),
            Type::S8 => $next!($($args)* i8),
            Type::S16 => $next!($($args)* i16),
            Type::S32 => $next!($($args)* i32),
            Type::S64 => $next!($($args)* i64),
            _ => return None,
        }
    };
}

pub(super) fn between_integers(dst: Type, src: Type, clamp: Clamp) -> Option<AluFn> {
    macro_rules! plain {
        ($d:ty, $s:ty) => {
            integer::<$d, $s, false> as AluFn
        };
    }
    macro_rules! saturating {
        ($d:ty, $s:ty) => {
            integer::<$d, $s, true> as AluFn
        };
    }
    macro_rules! from_plain {
        ($d:ty) => {
            with_int!(src, plain!($d,))
        };
    }
    macro_rules! from_saturating {
        ($d:ty) => {
            with_int!(src, saturating!($d,))
        };
    }
    match clamp {
        Clamp::None => Some(with_int!(dst, from_plain!())),
        Clamp::Unit => Some(with_int!(dst, from_saturating!())),
        Clamp::Relu | Clamp::Finite => None,
    }
}

pub(super) fn to_integer(dst: Type, src: Type, round: Round, ftz: bool) -> Option<AluFn> {
    macro_rules! rounded {
        ($f:ty, $d:ty) => {
            match (round, ftz) {
                (Round::Nearest, false) => float_to_integer::<$f, $d, RN, false> as AluFn,
                (Round::Zero, false) => float_to_integer::<$f, $d, RZ, false>,
                (Round::Down, false) => float_to_integer::<$f, $d, RM, false>,
                (Round::Up, false) => float_to_integer::<$f, $d, RP, false>,
                (Round::Nearest, true) => float_to_integer::<$f, $d, RN, true>,
                (Round::Zero, true) => float_to_integer::<$f, $d, RZ, true>,
                (Round::Down, true) => float_to_integer::<$f, $d, RM, true>,
                (Round::Up, true) => float_to_integer::<$f, $d, RP, true>,
                _ => return None,
            }
        };
    }
    Some(match src {
        Type::F16 => with_int!(dst, rounded!(Half,)),
        Type::Bf16 => with_int!(dst, rounded!(Brain,)),
        Type::F32 => with_int!(dst, rounded!(Single,)),
        Type::F64 => with_int!(dst, rounded!(Double,)),
        _ => return None,
    })
}

pub(super) fn from_integer(dst: Type, src: Type, round: Round, clamp: Clamp) -> Option<AluFn> {
    macro_rules! rounded {
        ($f:ty, $s:ty) => {
            match (round, clamp) {
                (Round::Nearest, Clamp::None) => integer_to_float::<$f, $s, RN, false> as AluFn,
                (Round::Zero, Clamp::None) => integer_to_float::<$f, $s, RZ, false>,
                (Round::Down, Clamp::None) => integer_to_float::<$f, $s, RM, false>,
                (Round::Up, Clamp::None) => integer_to_float::<$f, $s, RP, false>,
                // In 0 to 1 every integer is exact.
                (_, Clamp::Unit) => integer_to_float::<$f, $s, RN, true>,
                _ => return None,
            }
        };
    }
    Some(match dst {
        Type::F16 => with_int!(src, rounded!(Half,)),
        Type::Bf16 => with_int!(src, rounded!(Brain,)),
        Type::F32 => with_int!(src, rounded!(Single,)),
        Type::F64 => with_int!(src, rounded!(Double,)),
        _ => return None,
    })
}

/// Chooses among clamps, without and with flushing.
macro_rules! with_clamp {
    ($f:ident::<$($ty:ty),+>, $round:ident, $ftz:expr, $clamp:expr) => {
        match ($ftz, $clamp) {
            (false, Clamp::None) => $f::<$($ty,)+ $round, false, 0> as AluFn,
            (true, Clamp::None) => $f::<$($ty,)+ $round, true, 0>,
            (false, Clamp::Unit) => $f::<$($ty,)+ $round, false, 1>,
            (true, Clamp::Unit) => $f::<$($ty,)+ $round, true, 1>,
            (false, Clamp::Relu) => $f::<$($ty,)+ $round, false, 2>,
            (false, Clamp::Finite) => $f::<$($ty,)+ $round, false, 3>,
            (true, Clamp::Relu | Clamp::Finite) => return None,
        }
    };
}
/// Chooses among roundings too.
macro_rules! with_any_rounding {
    ($f:ident::<$($ty:ty),+>, $round:expr, $ftz:expr, $clamp:expr) => {
        match $round {
            Round::Nearest => with_clamp!($f::<$($ty),+>, RN, $ftz, $clamp),
            Round::Zero => with_clamp!($f::<$($ty),+>, RZ, $ftz, $clamp),
            Round::Down => with_clamp!($f::<$($ty),+>, RM, $ftz, $clamp),
            Round::Up => with_clamp!($f::<$($ty),+>, RP, $ftz, $clamp),
            Round::NearestAway => return None,
        }
    };
}

const fn clamp_of(code: u8) -> Clamp {
    match code {
        0 => Clamp::None,
        1 => Clamp::Unit,
        2 => Clamp::Relu,
        _ => Clamp::Finite,
    }
}

pub(super) fn integral_float(ty: Type, round: Round, ftz: bool, clamp: Clamp) -> Option<AluFn> {
    Some(match ty {
        Type::F16 => with_any_rounding!(to_integral::<Half>, round, ftz, clamp),
        Type::Bf16 => with_any_rounding!(to_integral::<Brain>, round, ftz, clamp),
        Type::F32 => with_any_rounding!(to_integral::<Single>, round, ftz, clamp),
        Type::F64 => with_any_rounding!(to_integral::<Double>, round, ftz, clamp),
        _ => return None,
    })
}

pub(super) fn between_floats(dst: Type, src: Type, round: Round, ftz: bool, clamp: Clamp) -> Option<AluFn> {
    // A move, of NaNs too; of 16 bits it is a sum with zero.
    match dst {
        Type::F32 if src == dst && !ftz && clamp == Clamp::None => return Some(|a, _, _, _| a & 0xffff_ffff),
        Type::F64 if src == dst && clamp == Clamp::None => return Some(|a, _, _, _| a),
        _ => {}
    }
    macro_rules! pair {
        ($($dst:ident $d:ty, $src:ident $s:ty;)+) => {
            match (dst, src) {
                $((Type::$dst, Type::$src) => with_any_rounding!(float_to_float::<$d, $s>, round, ftz, clamp),)+
                _ => return None,
            }
        };
    }
    Some(pair! {
        F16 Half, F16 Half;
        F16 Half, Bf16 Brain;
        F16 Half, F32 Single;
        F16 Half, F64 Double;
        Bf16 Brain, F16 Half;
        Bf16 Brain, Bf16 Brain;
        Bf16 Brain, F32 Single;
        Bf16 Brain, F64 Double;
        F32 Single, F16 Half;
        F32 Single, Bf16 Brain;
        F32 Single, F32 Single;
        F32 Single, F64 Double;
        F64 Double, F16 Half;
        F64 Double, Bf16 Brain;
        F64 Double, F32 Single;
        F64 Double, F64 Double;
    })
}

fn integer<D: Int, S: Int, const SAT: bool>(a: u64, _: u64, _: u64, _: u64) -> u64 {
    let value = S::of(a).wide();
    D::narrow(if SAT { value.clamp(D::LEAST.wide(), D::MOST.wide()) } else { value }).bits()
}

/// Values out of range become the nearest value in range. A NaN becomes zero, or the top bit if 64 bits take part.
fn float_to_integer<F: Float, D: Int, const R: u8, const FTZ: bool>(a: u64, _: u64, _: u64, _: u64) -> u64 {
    let a = if FTZ { F::FORMAT.flush(a) } else { a };
    match Value::of(F::FORMAT, a).to_integer(round_of(R)) {
        Some(value) => D::narrow(value.clamp(D::LEAST.wide(), D::MOST.wide())).bits(),
        None if F::FORMAT == F64 || D::BITS == 64 => 1 << (D::BITS - 1),
        None => 0,
    }
}

fn integer_to_float<F: Float, S: Int, const R: u8, const SAT: bool>(a: u64, _: u64, _: u64, _: u64) -> u64 {
    let bits = Value::integer(S::of(a).wide()).pack(F::FORMAT, round_of(R));
    clamp(F::FORMAT, if SAT { Clamp::Unit } else { Clamp::None }, bits)
}

fn to_integral<F: Float, const R: u8, const FTZ: bool, const C: u8>(a: u64, _: u64, _: u64, _: u64) -> u64 {
    let format = F::FORMAT;
    let a = a & (format.sign() | (format.sign() - 1));
    let a = if FTZ { format.flush(a) } else { a };
    let bits = match Value::of(format, a) {
        Value::Nan => format.nan_of([a]),
        // Past the fraction's width every number is whole.
        Value::Number(n) if n.exponent < format.fraction_bits as i32 => {
            let whole = Value::Number(n).to_integer(round_of(R)).unwrap_or(0);
            Value::integer(whole).pack(format, Round::Nearest) | (a & format.sign())
        }
        _ => a,
    };
    clamp(format, clamp_of(C), bits)
}

fn float_to_float<D: Float, S: Float, const R: u8, const FTZ: bool, const C: u8>(
    a: u64,
    _: u64,
    _: u64,
    _: u64,
) -> u64 {
    clamp(D::FORMAT, clamp_of(C), reformat(D::FORMAT, S::FORMAT, round_of(R), FTZ, a))
}

/// Flushing applies to single precision only, and not in conversions to `f16`. There the assembler drops `.ftz`, so a directed
/// rounding turns a subnormal number into a normal one.
fn reformat(to: Format, from: Format, round: Round, ftz: bool, a: u64) -> u64 {
    let a = a & (from.sign() | (from.sign() - 1));
    let a = if ftz && from == F32 && to != F16 { F32.flush(a) } else { a };
    if from.is_nan(a) {
        return convert_nan(to, from, ftz, a);
    }
    let bits = Value::of(from, a).pack(to, round);
    if ftz && to == F32 { F32.flush(bits) } else { bits }
}

/// If a double takes part, a NaN keeps its sign and the part of its payload that fits, and becomes quiet, unless flushing first
/// made it the canonical one. `bf16` to single is a shift. In all other conversions, a NaN becomes the canonical one.
fn convert_nan(to: Format, from: Format, ftz: bool, a: u64) -> u64 {
    match (from, to) {
        (F32, F64) if ftz => widen(F64, F32, F32.nan) | F64.quiet(),
        (BF16, F32) if !ftz => widen(F32, BF16, a),
        (_, F64) => widen(F64, from, a) | F64.quiet(),
        (F64, _) => {
            let sign = if a & F64.sign() != 0 { to.sign() } else { 0 };
            sign | to.infinity() | to.quiet() | F64.payload(a) >> (F64.fraction_bits - to.fraction_bits)
        }
        _ => to.nan,
    }
}

/// A NaN in a wider format, with its payload at the left end of the fraction.
fn widen(to: Format, from: Format, a: u64) -> u64 {
    let sign = if a & from.sign() != 0 { to.sign() } else { 0 };
    sign | to.infinity() | from.payload(a) << (to.fraction_bits - from.fraction_bits)
}
