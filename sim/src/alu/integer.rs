//! Integer arithmetic: sums, products, quotients, minima, dot products of bytes.

use super::words::Words;
use super::{AluForm, for_type};
use crate::program::AluFn;
use crate::syntax::ast::Type;

/// Integers of 16, 32 and 64 bits of either sign, in the low bits of a register.
pub(super) trait Int: Copy + Ord {
    const SIGNED: bool;
    const BITS: u32;
    const LEAST: Self;
    const MOST: Self;
    fn of(bits: u64) -> Self;
    fn bits(self) -> u64;
    /// The value. Every type fits.
    fn wide(self) -> i128;
    /// The low bits of a value.
    fn narrow(value: i128) -> Self;
}

macro_rules! ints {
    ($($int:ty as $unsigned:ty, $signed:literal;)+) => {$(
        impl Int for $int {
            const SIGNED: bool = $signed;
            const BITS: u32 = <$int>::BITS;
            const LEAST: Self = <$int>::MIN;
            const MOST: Self = <$int>::MAX;
            fn of(bits: u64) -> Self {
                bits as Self
            }
            fn bits(self) -> u64 {
                u64::from(self as $unsigned)
            }
            fn wide(self) -> i128 {
                i128::from(self)
            }
            fn narrow(value: i128) -> Self {
                value as Self
            }
        }
    )+};
}
ints! {
    u8 as u8, false;
    u16 as u16, false;
    u32 as u32, false;
    u64 as u64, false;
    i8 as u8, true;
    i16 as u16, true;
    i32 as u32, true;
    i64 as u64, true;
}

/// Chooses among the six types of ordinary arithmetic.
macro_rules! for_int {
    ($ty:expr, $f:ident) => {
        for_type!($ty, $f: U16 => u16, U32 => u32, U64 => u64, S16 => i16, S32 => i32, S64 => i64)
    };
}

/// Chooses among the signed ones.
macro_rules! for_signed {
    ($ty:expr, $f:ident) => {
        for_type!($ty, $f: S16 => i16, S32 => i32, S64 => i64)
    };
}

/// Chooses among those with a double-width product.
macro_rules! for_narrow {
    ($ty:expr, $f:ident) => {
        for_type!($ty, $f: U16 => u16, U32 => u32, S16 => i16, S32 => i32)
    };
}

/// Chooses between the two types of 32 bits.
macro_rules! for_word {
    ($ty:expr, $f:ident) => {
        for_type!($ty, $f: U32 => u32, S32 => i32)
    };
}

pub(super) fn lookup(opcode: &str, words: Words<'_>) -> Option<AluForm> {
    match opcode {
        "mul" | "mad" => product(opcode == "mad", words),
        "mul24" | "mad24" => product24(opcode == "mad24", words),
        "dp4a" | "dp2a" => dot(opcode, words),
        _ => paired(opcode, words).or_else(|| saturating(opcode, words)).or_else(|| plain(opcode, words)),
    }
}

fn plain(opcode: &str, mut words: Words<'_>) -> Option<AluForm> {
    let ty = words.last_ty()?;
    let (f, sources) = match opcode {
        "add" => (for_int!(ty, add), 2),
        "sub" => (for_int!(ty, sub), 2),
        "div" => (for_int!(ty, div), 2),
        "rem" => (for_int!(ty, rem), 2),
        "min" => (for_int!(ty, min), 2),
        "max" => (for_int!(ty, max), 2),
        "sad" => (for_int!(ty, sad), 3),
        "abs" => (for_signed!(ty, abs), 1),
        "neg" => (for_signed!(ty, neg), 1),
        _ => return None,
    };
    Some(AluForm::new(f?, ty, &[ty; 3][..sources]))
}

/// Saturating sums, and minima clamped at zero.
fn saturating(opcode: &str, mut words: Words<'_>) -> Option<AluForm> {
    let modifier = words.pick(&[("sat", "sat"), ("relu", "relu")])?;
    if words.last_ty()? != Type::S32 {
        return None;
    }
    let f: AluFn = match (opcode, modifier) {
        ("add", "sat") => add_sat,
        ("sub", "sat") => sub_sat,
        ("min", "relu") => relu::<i32, false>,
        ("max", "relu") => relu::<i32, true>,
        _ => return None,
    };
    Some(AluForm::new(f, Type::S32, &[Type::S32; 2]))
}

/// Two halves of 16 bits in a word.
fn paired(opcode: &str, mut words: Words<'_>) -> Option<AluForm> {
    let relu = words.flag("relu");
    let signed = words.pick(&[("u16x2", false), ("s16x2", true)])?;
    if !words.end() {
        return None;
    }
    let f: AluFn = match (opcode, relu, signed) {
        ("add", false, _) => |a, b, _, _| pairs(a, b, add::<u16>),
        ("min", false, false) => |a, b, _, _| pairs(a, b, min::<u16>),
        ("max", false, false) => |a, b, _, _| pairs(a, b, max::<u16>),
        ("min", false, true) => |a, b, _, _| pairs(a, b, min::<i16>),
        ("max", false, true) => |a, b, _, _| pairs(a, b, max::<i16>),
        ("min", true, true) => |a, b, _, _| pairs(a, b, self::relu::<i16, false>),
        ("max", true, true) => |a, b, _, _| pairs(a, b, self::relu::<i16, true>),
        _ => return None,
    };
    Some(AluForm::new(f, Type::B32, &[Type::B32; 2]))
}

fn product(accumulates: bool, mut words: Words<'_>) -> Option<AluForm> {
    let part = words.pick(&[("lo", ProductPart::Low), ("hi", ProductPart::High), ("wide", ProductPart::Wide)])?;
    let saturates = words.flag("sat");
    let ty = words.last_ty()?;
    if saturates {
        let legal = accumulates && matches!(part, ProductPart::High) && ty == Type::S32;
        return legal.then(|| AluForm::new(mad_hi_sat, ty, &[ty; 3]));
    }
    let (f, dst) = match part {
        ProductPart::Low => (for_int!(ty, mad_lo), ty),
        ProductPart::High => (for_int!(ty, mad_hi), ty),
        ProductPart::Wide => (for_narrow!(ty, mad_wide), widened(ty)?),
    };
    // A product is a sum with nothing: absent operands are zero.
    Some(AluForm::new(f?, dst, &[ty, ty, dst][..if accumulates { 3 } else { 2 }]))
}

#[derive(Clone, Copy)]
enum ProductPart {
    Low,
    High,
    Wide,
}

fn widened(ty: Type) -> Option<Type> {
    Some(match ty {
        Type::U16 => Type::U32,
        Type::U32 => Type::U64,
        Type::S16 => Type::S32,
        Type::S32 => Type::S64,
        _ => return None,
    })
}

fn product24(accumulates: bool, mut words: Words<'_>) -> Option<AluForm> {
    let high = words.pick(&[("lo", false), ("hi", true)])?;
    let saturates = words.flag("sat");
    let ty = words.last_ty()?;
    let f = match (high, saturates) {
        (false, false) => for_word!(ty, mad24_lo),
        (true, false) => for_word!(ty, mad24_hi),
        (true, true) if accumulates && ty == Type::S32 => Some(mad24_hi_sat as AluFn),
        _ => None,
    };
    Some(AluForm::new(f?, ty, &[ty; 3][..if accumulates { 3 } else { 2 }]))
}

fn dot(opcode: &str, mut words: Words<'_>) -> Option<AluForm> {
    let high = if opcode == "dp2a" { words.pick(&[("lo", false), ("hi", true)])? } else { false };
    let (a, b) = (words.ty()?, words.last_ty()?);
    let f: AluFn = match (opcode, high, a, b) {
        ("dp4a", _, Type::U32, Type::U32) => dp4a::<u8, u8>,
        ("dp4a", _, Type::U32, Type::S32) => dp4a::<u8, i8>,
        ("dp4a", _, Type::S32, Type::U32) => dp4a::<i8, u8>,
        ("dp4a", _, Type::S32, Type::S32) => dp4a::<i8, i8>,
        ("dp2a", false, Type::U32, Type::U32) => dp2a::<u16, u8, 0>,
        ("dp2a", false, Type::U32, Type::S32) => dp2a::<u16, i8, 0>,
        ("dp2a", false, Type::S32, Type::U32) => dp2a::<i16, u8, 0>,
        ("dp2a", false, Type::S32, Type::S32) => dp2a::<i16, i8, 0>,
        ("dp2a", true, Type::U32, Type::U32) => dp2a::<u16, u8, 2>,
        ("dp2a", true, Type::U32, Type::S32) => dp2a::<u16, i8, 2>,
        ("dp2a", true, Type::S32, Type::U32) => dp2a::<i16, u8, 2>,
        ("dp2a", true, Type::S32, Type::S32) => dp2a::<i16, i8, 2>,
        _ => return None,
    };
    let sum = if a == Type::U32 && b == Type::U32 { Type::U32 } else { Type::S32 };
    Some(AluForm::new(f, sum, &[a, b, sum]))
}

pub(super) fn add<T: Int>(a: u64, b: u64, _: u64, _: u64) -> u64 {
    T::of(a.wrapping_add(b)).bits()
}

fn sub<T: Int>(a: u64, b: u64, _: u64, _: u64) -> u64 {
    T::of(a.wrapping_sub(b)).bits()
}

fn add_sat(a: u64, b: u64, _: u64, _: u64) -> u64 {
    (a as i32).saturating_add(b as i32).bits()
}

fn sub_sat(a: u64, b: u64, _: u64, _: u64) -> u64 {
    (a as i32).saturating_sub(b as i32).bits()
}

/// Division by zero is undefined. The hardware's routines return all ones, for the remainder too.
fn div<T: Int>(a: u64, b: u64, _: u64, _: u64) -> u64 {
    match T::of(b).wide() {
        0 => T::narrow(-1).bits(),
        b => T::narrow(T::of(a).wide() / b).bits(),
    }
}

fn rem<T: Int>(a: u64, b: u64, _: u64, _: u64) -> u64 {
    match T::of(b).wide() {
        0 => T::narrow(-1).bits(),
        b => T::narrow(T::of(a).wide() % b).bits(),
    }
}

pub(super) fn min<T: Int>(a: u64, b: u64, _: u64, _: u64) -> u64 {
    T::of(a).min(T::of(b)).bits()
}

pub(super) fn max<T: Int>(a: u64, b: u64, _: u64, _: u64) -> u64 {
    T::of(a).max(T::of(b)).bits()
}

fn relu<T: Int, const MAX: bool>(a: u64, b: u64, _: u64, _: u64) -> u64 {
    let (a, b) = (T::of(a), T::of(b));
    if MAX { a.max(b) } else { a.min(b) }.max(T::narrow(0)).bits()
}

fn sad<T: Int>(a: u64, b: u64, c: u64, _: u64) -> u64 {
    T::narrow(i128::from(c) + (T::of(a).wide() - T::of(b).wide()).abs()).bits()
}

fn abs<T: Int>(a: u64, _: u64, _: u64, _: u64) -> u64 {
    T::narrow(T::of(a).wide().abs()).bits()
}

fn neg<T: Int>(a: u64, _: u64, _: u64, _: u64) -> u64 {
    T::of(a.wrapping_neg()).bits()
}

fn mad_lo<T: Int>(a: u64, b: u64, c: u64, _: u64) -> u64 {
    T::of(a.wrapping_mul(b).wrapping_add(c)).bits()
}

/// The high half of the product. For 64 unsigned bits the product wraps into the sign, and the shift undoes that.
fn high<T: Int>(a: u64, b: u64) -> i128 {
    T::of(a).wide().wrapping_mul(T::of(b).wide()) >> T::BITS
}

fn mad_hi<T: Int>(a: u64, b: u64, c: u64, _: u64) -> u64 {
    T::narrow(high::<T>(a, b) + i128::from(c)).bits()
}

fn mad_hi_sat(a: u64, b: u64, c: u64, _: u64) -> u64 {
    (high::<i32>(a, b) as i32).saturating_add(c as i32).bits()
}

fn mad_wide<T: Int>(a: u64, b: u64, c: u64, _: u64) -> u64 {
    let sum = T::of(a).wide() * T::of(b).wide() + i128::from(c);
    if T::BITS == 16 { u64::from(sum as u32) } else { sum as u64 }
}

/// The product of the low 24 bits: 48 bits.
fn product_of_24<T: Int>(a: u64, b: u64) -> i128 {
    let low = |x: u64| T::of(x << 8).wide() >> 8;
    low(a) * low(b)
}

fn mad24_lo<T: Int>(a: u64, b: u64, c: u64, _: u64) -> u64 {
    T::narrow(product_of_24::<T>(a, b) + i128::from(c)).bits()
}

fn mad24_hi<T: Int>(a: u64, b: u64, c: u64, _: u64) -> u64 {
    T::narrow((product_of_24::<T>(a, b) >> 16) + i128::from(c)).bits()
}

fn mad24_hi_sat(a: u64, b: u64, c: u64, _: u64) -> u64 {
    ((product_of_24::<i32>(a, b) >> 16) as i32).saturating_add(c as i32).bits()
}

fn dp4a<A: Int, B: Int>(a: u64, b: u64, c: u64, _: u64) -> u64 {
    let terms = (0..4).map(|i| A::of(a >> (8 * i)).wide() * B::of(b >> (8 * i)).wide());
    u64::from((terms.sum::<i128>() + i128::from(c)) as u32)
}

/// Two halves of `a` with the bytes of `b` from `FIRST` on.
fn dp2a<A: Int, B: Int, const FIRST: u32>(a: u64, b: u64, c: u64, _: u64) -> u64 {
    let terms = (0..2).map(|i| A::of(a >> (16 * i)).wide() * B::of(b >> (8 * (FIRST + i))).wide());
    u64::from((terms.sum::<i128>() + i128::from(c)) as u32)
}

/// Applies a function of 16 bits to both halves of 32.
pub(super) fn pairs(a: u64, b: u64, f: AluFn) -> u64 {
    let low = f(a & 0xffff, b & 0xffff, 0, 0);
    let high = f((a >> 16) & 0xffff, (b >> 16) & 0xffff, 0, 0);
    (high << 16) | low
}
