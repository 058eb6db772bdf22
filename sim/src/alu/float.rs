//! Sums, products, quotients and roots of floats of every width, rounded once.

use super::AluForm;
use super::rounding::{BF16, F16, F32, F64, Format, Round, Value};
use super::words::Words;
use crate::program::AluFn;
use crate::syntax::ast::Type;

/// A format as a type, so that a function's instances only have the operands as arguments.
pub(super) trait Float {
    const FORMAT: Format;
    const NATIVE: Native;
}

/// The type of the host with this format, if any.
pub(super) enum Native {
    None,
    Single,
    Double,
}

macro_rules! floats {
    ($($name:ident: $format:ident, $native:ident;)+) => {$(
        pub(super) struct $name;
        impl Float for $name {
            const FORMAT: Format = $format;
            const NATIVE: Native = Native::$native;
        }
    )+};
}
floats! {
    Half: F16, None;
    Brain: BF16, None;
    Single: F32, Single;
    Double: F64, Double;
}

/// The rounding and the treatment of operands and results, as a type for the same reason.
pub(super) trait Mode {
    const ROUND: Round;
    /// Subnormal operands and results become zeros.
    const FTZ: bool;
    const CLAMP: Clamp;
}

/// The treatment of a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Clamp {
    None,
    /// Clamped to 0 to 1; NaN becomes 0.
    Unit,
    /// Not below 0; NaN stays.
    Relu,
    /// Infinities become the largest numbers.
    Finite,
}

macro_rules! modes {
    ($($name:ident: $round:ident, $ftz:literal, $clamp:ident;)+) => {$(
        struct $name;
        impl Mode for $name {
            const ROUND: Round = Round::$round;
            const FTZ: bool = $ftz;
            const CLAMP: Clamp = Clamp::$clamp;
        }
    )+};
}
modes! {
    Rn: Nearest, false, None;
    Rz: Zero, false, None;
    Rm: Down, false, None;
    Rp: Up, false, None;
    RnFtz: Nearest, true, None;
    RzFtz: Zero, true, None;
    RmFtz: Down, true, None;
    RpFtz: Up, true, None;
    RnSat: Nearest, false, Unit;
    RzSat: Zero, false, Unit;
    RmSat: Down, false, Unit;
    RpSat: Up, false, Unit;
    RnFtzSat: Nearest, true, Unit;
    RzFtzSat: Zero, true, Unit;
    RmFtzSat: Down, true, Unit;
    RpFtzSat: Up, true, Unit;
    RnRelu: Nearest, false, Relu;
    RnFtzRelu: Nearest, true, Relu;
}

/// Chooses the instance of a function for an operation, a format and the mode that the words name.
macro_rules! with_mode {
    ($f:ident::<$op:ty, $float:ty>, $mode:expr) => {
        match $mode {
            (Round::Nearest, false, Clamp::None) => $f::<$op, $float, Rn> as AluFn,
            (Round::Zero, false, Clamp::None) => $f::<$op, $float, Rz>,
            (Round::Down, false, Clamp::None) => $f::<$op, $float, Rm>,
            (Round::Up, false, Clamp::None) => $f::<$op, $float, Rp>,
            (Round::Nearest, true, Clamp::None) => $f::<$op, $float, RnFtz>,
            (Round::Zero, true, Clamp::None) => $f::<$op, $float, RzFtz>,
            (Round::Down, true, Clamp::None) => $f::<$op, $float, RmFtz>,
            (Round::Up, true, Clamp::None) => $f::<$op, $float, RpFtz>,
            (Round::Nearest, false, Clamp::Unit) => $f::<$op, $float, RnSat>,
            (Round::Zero, false, Clamp::Unit) => $f::<$op, $float, RzSat>,
            (Round::Down, false, Clamp::Unit) => $f::<$op, $float, RmSat>,
            (Round::Up, false, Clamp::Unit) => $f::<$op, $float, RpSat>,
            (Round::Nearest, true, Clamp::Unit) => $f::<$op, $float, RnFtzSat>,
            (Round::Zero, true, Clamp::Unit) => $f::<$op, $float, RzFtzSat>,
            (Round::Down, true, Clamp::Unit) => $f::<$op, $float, RmFtzSat>,
            (Round::Up, true, Clamp::Unit) => $f::<$op, $float, RpFtzSat>,
            _ => return None,
        }
    };
}

/// Chooses among the modes of 16-bit formats, which round to nearest.
macro_rules! with_half_mode {
    ($f:ident::<$op:ty, $float:ty>, $mode:expr) => {
        match $mode {
            (Round::Nearest, false, Clamp::None) => $f::<$op, $float, Rn> as AluFn,
            (Round::Nearest, true, Clamp::None) => $f::<$op, $float, RnFtz>,
            (Round::Nearest, false, Clamp::Unit) => $f::<$op, $float, RnSat>,
            (Round::Nearest, true, Clamp::Unit) => $f::<$op, $float, RnFtzSat>,
            (Round::Nearest, false, Clamp::Relu) => $f::<$op, $float, RnRelu>,
            (Round::Nearest, true, Clamp::Relu) => $f::<$op, $float, RnFtzRelu>,
            _ => return None,
        }
    };
}

/// Chooses by type too.
macro_rules! with_type {
    ($op:ty, $ty:expr, $mode:expr) => {
        match $ty {
            Type::F32 => with_mode!(run::<$op, Single>, $mode),
            Type::F32x2 => with_mode!(run_singles::<$op, Single>, $mode),
            Type::F64 => with_mode!(run::<$op, Double>, $mode),
            Type::F16 => with_half_mode!(run::<$op, Half>, $mode),
            Type::Bf16 => with_half_mode!(run::<$op, Brain>, $mode),
            Type::F16x2 => with_half_mode!(run_pair::<$op, Half>, $mode),
            Type::Bf16x2 => with_half_mode!(run_pair::<$op, Brain>, $mode),
            _ => return None,
        }
    };
}

/// Rounding modifiers of floats.
pub(super) const ROUNDS: &[(&str, Round)] =
    &[("rn", Round::Nearest), ("rz", Round::Zero), ("rm", Round::Down), ("rp", Round::Up)];

pub(super) fn lookup(opcode: &str, words: Words<'_>) -> Option<AluForm> {
    match opcode {
        "add" | "sub" | "mul" | "fma" | "mad" => sum_or_product(opcode, words),
        "div" | "rcp" | "sqrt" => quotient(opcode, words),
        "neg" | "abs" => sign(opcode, words),
        "copysign" => copysign(words),
        _ => None,
    }
}

fn sum_or_product(opcode: &str, mut words: Words<'_>) -> Option<AluForm> {
    let fused = matches!(opcode, "fma" | "mad");
    let rounding = words.pick(ROUNDS);
    if fused && rounding.is_none() {
        return None;
    }
    let ftz = words.flag("ftz");
    let clamp = words.pick(&[("sat", Clamp::Unit), ("relu", Clamp::Relu)]).unwrap_or(Clamp::None);
    let ty = words.ty()?;
    let mode = (rounding.unwrap_or(Round::Nearest), ftz, clamp);
    if !words.end() {
        return mixed(opcode, ty, words.last_ty()?, mode);
    }
    let legal = match ty {
        Type::F32 => true,
        Type::F32x2 => opcode != "mad" && clamp == Clamp::None,
        Type::F64 => !ftz && clamp == Clamp::None,
        Type::F16 | Type::F16x2 => opcode != "mad" && (clamp != Clamp::Relu || opcode == "fma"),
        Type::Bf16 | Type::Bf16x2 => {
            opcode != "mad" && !ftz && (clamp == Clamp::None || (clamp == Clamp::Relu && opcode == "fma"))
        }
        _ => false,
    };
    if !legal {
        return None;
    }
    let f = match opcode {
        "add" => with_type!(Add, ty, mode),
        "sub" => with_type!(Sub, ty, mode),
        "mul" => with_type!(Mul, ty, mode),
        _ => with_type!(Fma, ty, mode),
    };
    Some(AluForm::new(f, ty, &[ty; 3][..if fused { 3 } else { 2 }]))
}

/// A sum of singles, of which `a` is widened from 16 bits; in a fused one both factors are.
fn mixed(opcode: &str, ty: Type, narrow: Type, mode: (Round, bool, Clamp)) -> Option<AluForm> {
    if ty != Type::F32 || mode.1 {
        return None;
    }
    let f = match (opcode, narrow) {
        ("add", Type::F16) => with_mode!(run_mixed::<Add, Half>, mode),
        ("add", Type::Bf16) => with_mode!(run_mixed::<Add, Brain>, mode),
        ("sub", Type::F16) => with_mode!(run_mixed::<Sub, Half>, mode),
        ("sub", Type::Bf16) => with_mode!(run_mixed::<Sub, Brain>, mode),
        ("fma", Type::F16) => with_mode!(run_mixed_fused::<Fma, Half>, mode),
        ("fma", Type::Bf16) => with_mode!(run_mixed_fused::<Fma, Brain>, mode),
        _ => return None,
    };
    let sources = [narrow, narrow, ty];
    Some(AluForm::new(f, ty, if opcode == "fma" { &sources } else { &sources[1..] }))
}

fn quotient(opcode: &str, mut words: Words<'_>) -> Option<AluForm> {
    let round = words.pick(ROUNDS)?;
    let ftz = words.flag("ftz");
    let ty = words.last_ty()?;
    let mode = (round, ftz, Clamp::None);
    macro_rules! of_op {
        ($op:ty) => {
            match ty {
                Type::F32 => with_mode!(run::<$op, Single>, mode),
                Type::F64 if !ftz => with_mode!(run::<$op, Double>, mode),
                _ => return None,
            }
        };
    }
    let (f, sources) = match opcode {
        "div" => (of_op!(Div), 2),
        "rcp" => (of_op!(Rcp), 1),
        _ => (of_op!(Sqrt), 1),
    };
    Some(AluForm::new(f, ty, &[ty; 2][..sources]))
}

/// An operation, exactly and by the host's own arithmetic to nearest.
trait Operation {
    fn exact(a: Value, b: Value, c: Value, round: Round) -> Value;
    fn single(a: f32, b: f32, c: f32) -> f32;
    fn double(a: f64, b: f64, c: f64) -> f64;
}

macro_rules! operations {
    ($($name:ident: $exact:expr, $native:expr, $double:expr;)+) => {$(
        struct $name;
        impl Operation for $name {
            fn exact(a: Value, b: Value, c: Value, round: Round) -> Value {
                let f: fn(Value, Value, Value, Round) -> Value = $exact;
                f(a, b, c, round)
            }
            fn single(a: f32, b: f32, c: f32) -> f32 {
                let f: fn(f32, f32, f32) -> f32 = $native;
                f(a, b, c)
            }
            fn double(a: f64, b: f64, c: f64) -> f64 {
                let f: fn(f64, f64, f64) -> f64 = $double;
                f(a, b, c)
            }
        }
    )+};
}
operations! {
    Add: |a, b, _, r| a.add(b, r), |a, b, _| a + b, |a, b, _| a + b;
    Sub: |a, b, _, r| a.add(b.negate(), r), |a, b, _| a - b, |a, b, _| a - b;
    Mul: |a, b, _, _| a.mul(b), |a, b, _| a * b, |a, b, _| a * b;
    Fma: |a, b, c, r| a.mul(b).add(c, r), f32::mul_add, f64::mul_add;
    Div: |a, b, _, _| a.div(b), |a, b, _| a / b, |a, b, _| a / b;
    Rcp: |a, _, _, _| Value::integer(1).div(a), |a, _, _| 1.0 / a, |a, _, _| 1.0 / a;
    Sqrt: |a, _, _, _| a.sqrt(), |a, _, _| a.sqrt(), |a, _, _| a.sqrt();
}

fn run<O: Operation, F: Float, M: Mode>(a: u64, b: u64, c: u64, _: u64) -> u64 {
    let format = F::FORMAT;
    let operands = [a, b, c].map(|x| if M::FTZ { format.flush(x) } else { x });
    let exact = || {
        let [a, b, c] = operands.map(|x| Value::of(format, x));
        O::exact(a, b, c, M::ROUND)
    };
    let result = match (M::ROUND, F::NATIVE) {
        (Round::Nearest, Native::Single) => {
            let [a, b, c] = operands.map(|x| f32::from_bits(x as u32));
            u64::from(O::single(a, b, c).to_bits())
        }
        (Round::Nearest, Native::Double) => {
            let [a, b, c] = operands.map(f64::from_bits);
            O::double(a, b, c).to_bits()
        }
        _ => exact().pack(format, M::ROUND),
    };
    let result = if format.is_nan(result) { format.nan_of(operands) } else { result };
    // Flushing looks at the result before it is rounded: what rounds up to the least normal number is flushed too.
    let least_normal = 1 << format.fraction_bits;
    let result = if !M::FTZ {
        result
    } else if result & !format.sign() == least_normal && exact().is_subnormal(format) {
        result & format.sign()
    } else {
        format.flush(result)
    };
    clamp(format, M::CLAMP, result)
}

fn run_pair<O: Operation, F: Float, M: Mode>(a: u64, b: u64, c: u64, _: u64) -> u64 {
    pairs(a, b, c, run::<O, F, M>)
}

/// Applies it to both halves of 64 bits.
fn run_singles<O: Operation, F: Float, M: Mode>(a: u64, b: u64, c: u64, _: u64) -> u64 {
    let low = |x: u64| x & 0xffff_ffff;
    run::<O, F, M>(a >> 32, b >> 32, c >> 32, 0) << 32 | run::<O, F, M>(low(a), low(b), low(c), 0)
}

/// Singles, the first of them widened.
fn run_mixed<O: Operation, N: Float, M: Mode>(a: u64, b: u64, _: u64, _: u64) -> u64 {
    run::<O, Single, M>(widen::<N>(a), b, 0, 0)
}

/// Singles, the first two of them widened.
fn run_mixed_fused<O: Operation, N: Float, M: Mode>(a: u64, b: u64, c: u64, _: u64) -> u64 {
    run::<O, Single, M>(widen::<N>(a), widen::<N>(b), c, 0)
}

/// The single of the same value.
fn widen<N: Float>(narrow: u64) -> u64 {
    Value::of(N::FORMAT, narrow).pack(F32, Round::Nearest)
}

/// Applies a function of 16 bits to both halves of 32.
pub(super) fn pairs(a: u64, b: u64, c: u64, f: AluFn) -> u64 {
    let low = f(a & 0xffff, b & 0xffff, c & 0xffff, 0);
    let high = f(a >> 16 & 0xffff, b >> 16 & 0xffff, c >> 16 & 0xffff, 0);
    high << 16 | low
}

/// Clamps a result.
pub(super) fn clamp(format: Format, clamp: Clamp, bits: u64) -> u64 {
    let negative = bits & format.sign() != 0;
    match clamp {
        Clamp::None => bits,
        Clamp::Unit if negative || format.is_nan(bits) => 0,
        Clamp::Unit => bits.min(format.one()),
        Clamp::Relu if negative && !format.is_nan(bits) => 0,
        Clamp::Relu => bits,
        Clamp::Finite if bits & !format.sign() == format.infinity() => bits - 1,
        Clamp::Finite => bits,
    }
}

fn sign(opcode: &str, mut words: Words<'_>) -> Option<AluForm> {
    let ftz = words.flag("ftz");
    let ty = words.last_ty()?;
    let negates = opcode == "neg";
    let f: AluFn = match (ty, ftz, negates) {
        (Type::F32, false, true) => sign_of::<Single, true, false>,
        (Type::F32, true, true) => sign_of::<Single, true, true>,
        (Type::F32, false, false) => sign_of::<Single, false, false>,
        (Type::F32, true, false) => sign_of::<Single, false, true>,
        // NaNs of double precision pass through, signs and all.
        (Type::F64, false, true) => |a, _, _, _| if F64.is_nan(a) { a | F64.quiet() } else { a ^ F64.sign() },
        (Type::F64, false, false) => |a, _, _, _| if F64.is_nan(a) { a | F64.quiet() } else { a & !F64.sign() },
        (Type::F16, false, true) => sign_of::<Half, true, false>,
        (Type::F16, true, true) => sign_of::<Half, true, true>,
        (Type::F16, false, false) => sign_of::<Half, false, false>,
        (Type::F16, true, false) => sign_of::<Half, false, true>,
        (Type::Bf16, false, true) => sign_of::<Brain, true, false>,
        (Type::Bf16, false, false) => sign_of::<Brain, false, false>,
        (Type::F16x2, false, true) => |a, _, _, _| pairs(a, 0, 0, sign_of::<Half, true, false>),
        (Type::F16x2, true, true) => |a, _, _, _| pairs(a, 0, 0, sign_of::<Half, true, true>),
        (Type::F16x2, false, false) => |a, _, _, _| pairs(a, 0, 0, sign_of::<Half, false, false>),
        (Type::F16x2, true, false) => |a, _, _, _| pairs(a, 0, 0, sign_of::<Half, false, true>),
        (Type::Bf16x2, false, true) => |a, _, _, _| pairs(a, 0, 0, sign_of::<Brain, true, false>),
        (Type::Bf16x2, false, false) => |a, _, _, _| pairs(a, 0, 0, sign_of::<Brain, false, false>),
        _ => return None,
    };
    Some(AluForm::new(f, ty, &[ty]))
}

/// Negation or magnitude. The hardware computes it by an addition, so NaNs become the canonical one.
fn sign_of<F: Float, const NEGATE: bool, const FTZ: bool>(a: u64, _: u64, _: u64, _: u64) -> u64 {
    let format = F::FORMAT;
    let a = a & (2 * format.sign() - 1);
    let a = if FTZ { format.flush(a) } else { a };
    match a {
        _ if format.is_nan(a) => format.nan,
        _ if NEGATE => a ^ format.sign(),
        _ => a & !format.sign(),
    }
}

/// The magnitude of the second operand with the sign of the first.
fn copysign(mut words: Words<'_>) -> Option<AluForm> {
    let ty = words.last_ty()?;
    let f: AluFn = match ty {
        Type::F32 => |a, b, _, _| a & F32.sign() | b & (F32.sign() - 1),
        Type::F64 => |a, b, _, _| a & F64.sign() | b & !F64.sign(),
        _ => return None,
    };
    Some(AluForm::new(f, ty, &[ty, ty]))
}
