//! Bit operations: logic, shifts, fields, counts, permutations of bytes, moves.

use super::integer::Int;
use super::words::Words;
use super::{AluForm, for_type};
use crate::program::AluFn;
use crate::syntax::ast::Type;

/// Chooses among the untyped widths.
macro_rules! for_bits {
    ($ty:expr, $f:ident) => {
        for_type!($ty, $f: B16 => u16, B32 => u32, B64 => u64)
    };
}

/// Chooses among integers of 32 and 64 bits.
macro_rules! for_wide {
    ($ty:expr, $f:ident) => {
        for_type!($ty, $f: U32 => u32, U64 => u64, S32 => i32, S64 => i64)
    };
}

/// Chooses among the untyped widths of 32 and 64 bits.
macro_rules! for_wide_bits {
    ($ty:expr, $f:ident) => {
        for_type!($ty, $f: B32 => u32, B64 => u64)
    };
}

pub(super) fn lookup(opcode: &str, mut words: Words<'_>) -> Option<AluForm> {
    const U32: Type = Type::U32;
    match opcode {
        "shf" => return funnel(words),
        "prmt" => return permute(words),
        "szext" | "bmsk" => return clamped(opcode, words),
        "slct" => return select(words),
        "bfind" => {
            let amount = words.flag("shiftamt");
            let ty = words.last_ty()?;
            let f = if amount { for_wide!(ty, find_shift) } else { for_wide!(ty, find) };
            return Some(AluForm::new(f?, U32, &[ty]));
        }
        _ => {}
    }
    let ty = words.last_ty()?;
    let (f, dst, src): (_, _, &[Type]) = match opcode {
        "mov" => (moved(ty), ty, &[ty]),
        "and" => (for_bits!(ty, and), ty, &[ty, ty]),
        "or" => (for_bits!(ty, or), ty, &[ty, ty]),
        "xor" => (for_bits!(ty, xor), ty, &[ty, ty]),
        "not" => (for_bits!(ty, not), ty, &[ty]),
        "cnot" => (for_bits!(ty, cnot), ty, &[ty]),
        "lop3" if ty == Type::B32 => (Some(lop3 as AluFn), ty, &[ty, ty, ty, U32]),
        "shl" => (for_bits!(ty, shl), ty, &[ty, U32]),
        "shr" => (shift_right(ty), ty, &[ty, U32]),
        "popc" => (for_wide_bits!(ty, popc), U32, &[ty]),
        "clz" => (for_wide_bits!(ty, clz), U32, &[ty]),
        "brev" => (for_wide_bits!(ty, brev), ty, &[ty]),
        "bfe" => (for_wide!(ty, bfe), ty, &[ty, U32, U32]),
        "bfi" => (for_wide_bits!(ty, bfi), ty, &[ty, ty, U32, U32]),
        "fns" if ty == Type::B32 => (Some(fns as AluFn), ty, &[ty, ty, Type::S32]),
        _ => return None,
    };
    Some(AluForm::new(f?, dst, src))
}

fn moved(ty: Type) -> Option<AluFn> {
    for_type!(ty, copy:
        B16 => u16, U16 => u16, S16 => u16, B32 => u32, U32 => u32, S32 => u32, F32 => u32,
        B64 => u64, U64 => u64, S64 => u64, F64 => u64)
}

fn shift_right(ty: Type) -> Option<AluFn> {
    for_type!(ty, shr:
        B16 => u16, U16 => u16, S16 => i16, B32 => u32, U32 => u32, S32 => i32, B64 => u64, U64 => u64, S64 => i64)
}

fn funnel(mut words: Words<'_>) -> Option<AluForm> {
    let left = words.pick(&[("l", true), ("r", false)])?;
    let wraps = words.pick(&[("wrap", true), ("clamp", false)])?;
    let ty = words.last_ty()?;
    let f: AluFn = match (left, wraps) {
        (true, true) => |a, b, c, _| funnel_left(a, b, c & 31),
        (true, false) => |a, b, c, _| funnel_left(a, b, (c & 0xffff_ffff).min(32)),
        (false, true) => |a, b, c, _| funnel_right(a, b, c & 31),
        (false, false) => |a, b, c, _| funnel_right(a, b, (c & 0xffff_ffff).min(32)),
    };
    (ty == Type::B32).then(|| AluForm::new(f, ty, &[ty, ty, Type::U32]))
}

fn permute(mut words: Words<'_>) -> Option<AluForm> {
    if words.ty()? != Type::B32 {
        return None;
    }
    /// The modes, which choose four of the eight bytes of `{b, a}` by the two low bits of `c`.
    const MODES: &[(&str, AluFn)] = &[
        ("f4e", |a, b, c, _| bytes(a, b, |i| (c & 3) + i)),
        ("b4e", |a, b, c, _| bytes(a, b, |i| (c & 3).wrapping_sub(i))),
        ("rc8", |a, b, c, _| bytes(a, b, |_| c & 3)),
        ("ecl", |a, b, c, _| bytes(a, b, |i| i.max(c & 3))),
        ("ecr", |a, b, c, _| bytes(a, b, |i| i.min(c & 3))),
        ("rc16", |a, b, c, _| bytes(a, b, |i| 2 * (c & 1) + (i & 1))),
    ];
    let f = if words.end() { prmt } else { words.pick(MODES)? };
    words.end().then(|| AluForm::new(f, Type::B32, &[Type::B32; 3]))
}

fn clamped(opcode: &str, mut words: Words<'_>) -> Option<AluForm> {
    let wraps = words.pick(&[("wrap", true), ("clamp", false)])?;
    let ty = words.last_ty()?;
    let (f, src): (AluFn, _) = match (opcode, wraps, ty) {
        ("szext", false, Type::U32) => (|a, b, _, _| zero_extend(a, b & 0xffff_ffff), [ty, Type::U32]),
        ("szext", true, Type::U32) => (|a, b, _, _| zero_extend(a, b & 31), [ty, Type::U32]),
        ("szext", false, Type::S32) => (|a, b, _, _| sign_extend(a, b & 0xffff_ffff), [ty, Type::U32]),
        ("szext", true, Type::S32) => (|a, b, _, _| sign_extend(a, b & 31), [ty, Type::U32]),
        ("bmsk", false, Type::B32) => (|a, b, _, _| mask(a & 0xffff_ffff, b & 0xffff_ffff), [ty, ty]),
        ("bmsk", true, Type::B32) => (|a, b, _, _| mask(a & 31, b & 31), [ty, ty]),
        _ => return None,
    };
    Some(AluForm::new(f, ty, &src))
}

fn select(mut words: Words<'_>) -> Option<AluForm> {
    let ftz = words.flag("ftz");
    let (ty, by) = (words.ty()?, words.last_ty()?);
    moved(ty)?;
    let f: AluFn = match (by, ftz) {
        (Type::S32, false) => |a, b, c, _| if (c as i32) >= 0 { a } else { b },
        // Minus zero is not below zero, and NaN is not at least zero; flushing turns small negatives to minus zero.
        (Type::F32, false) => |a, b, c, _| if f32::from_bits(c as u32) >= 0.0 { a } else { b },
        (Type::F32, true) => |a, b, c, _| if f32::from_bits(c as u32) > -f32::MIN_POSITIVE { a } else { b },
        _ => return None,
    };
    Some(AluForm::new(f, ty, &[ty, ty, by]))
}

fn copy<T: Int>(a: u64, _: u64, _: u64, _: u64) -> u64 {
    T::of(a).bits()
}

fn and<T: Int>(a: u64, b: u64, _: u64, _: u64) -> u64 {
    T::of(a & b).bits()
}

fn or<T: Int>(a: u64, b: u64, _: u64, _: u64) -> u64 {
    T::of(a | b).bits()
}

fn xor<T: Int>(a: u64, b: u64, _: u64, _: u64) -> u64 {
    T::of(a ^ b).bits()
}

fn not<T: Int>(a: u64, _: u64, _: u64, _: u64) -> u64 {
    T::of(!a).bits()
}

fn cnot<T: Int>(a: u64, _: u64, _: u64, _: u64) -> u64 {
    u64::from(T::of(a).bits() == 0)
}

/// The truth table's bit for each position, as a sum of its minterms.
fn lop3(a: u64, b: u64, c: u64, table: u64) -> u64 {
    let minterms = (0..8).filter(|i| table >> i & 1 == 1).map(|i| {
        let pick = |x: u64, bit: u32| if i >> bit & 1 == 1 { x } else { !x };
        pick(a, 2) & pick(b, 1) & pick(c, 0)
    });
    minterms.fold(0, |all, term| all | term) & 0xffff_ffff
}

/// Shift amounts have 32 bits. An amount beyond the width shifts everything out.
fn shl<T: Int>(a: u64, amount: u64, _: u64, _: u64) -> u64 {
    let amount = amount as u32;
    if amount >= T::BITS { 0 } else { T::of(a << amount).bits() }
}

fn shr<T: Int>(a: u64, amount: u64, _: u64, _: u64) -> u64 {
    T::narrow(T::of(a).wide() >> (amount as u32).min(T::BITS)).bits()
}

fn funnel_left(a: u64, b: u64, amount: u64) -> u64 {
    let both = (b << 32) | (a & 0xffff_ffff);
    (both << amount) >> 32
}

fn funnel_right(a: u64, b: u64, amount: u64) -> u64 {
    let both = (b << 32) | (a & 0xffff_ffff);
    (both >> amount) & 0xffff_ffff
}

fn popc<T: Int>(a: u64, _: u64, _: u64, _: u64) -> u64 {
    u64::from(T::of(a).bits().count_ones())
}

fn clz<T: Int>(a: u64, _: u64, _: u64, _: u64) -> u64 {
    u64::from(T::of(a).bits().leading_zeros() - (64 - T::BITS))
}

fn brev<T: Int>(a: u64, _: u64, _: u64, _: u64) -> u64 {
    a.reverse_bits() >> (64 - T::BITS)
}

/// The position of the highest bit that differs from the sign; all ones if there is none.
fn find<T: Int>(a: u64, _: u64, _: u64, _: u64) -> u64 {
    let value = T::of(a).wide();
    let magnitude = if value < 0 { !value } else { value };
    u64::from(magnitude.checked_ilog2().unwrap_or(u32::MAX))
}

fn find_shift<T: Int>(a: u64, _: u64, _: u64, _: u64) -> u64 {
    match find::<T>(a, 0, 0, 0) {
        0xffff_ffff => 0xffff_ffff,
        position => u64::from(T::BITS - 1) - position,
    }
}

/// Position and length are 8 bits each. For a signed type, bits past the top are copies of the sign.
fn bfe<T: Int>(a: u64, position: u64, length: u64, _: u64) -> u64 {
    let (position, length) = (position as u32 & 0xff, length as u32 & 0xff);
    if length == 0 {
        return 0;
    }
    // The value's own extension supplies what lies past its top.
    let field = T::of(a).wide() >> position.min(T::BITS);
    let above = 128 - length.min(T::BITS);
    T::narrow(if T::SIGNED { field << above >> above } else { ((field as u128) << above >> above) as i128 }).bits()
}

fn bfi<T: Int>(a: u64, b: u64, position: u64, length: u64) -> u64 {
    let (position, length) = (position as u32 & 0xff, length as u32 & 0xff);
    let ones = u64::MAX.checked_shr(64 - length.min(64)).unwrap_or(0);
    let place = |x: u64| x.checked_shl(position).unwrap_or(0);
    T::of((b & !place(ones)) | place(a & ones)).bits()
}

/// The n-th set bit counted from a base, upwards or downwards.
fn fns(value: u64, base: u64, offset: u64, _: u64) -> u64 {
    let (base, offset) = (base as u32, offset as i32);
    let set = |bit: &u32| value >> bit & 1 == 1;
    let found = match offset {
        0 => Some(base).filter(|b| *b < 32 && set(b)),
        1.. => (base.min(32)..32).filter(set).nth(offset as usize - 1),
        _ => (0..=base.min(31)).rev().filter(set).nth(offset.unsigned_abs() as usize - 1),
    };
    u64::from(found.unwrap_or(u32::MAX))
}

/// The bytes of `{b, a}` at four positions.
fn bytes(a: u64, b: u64, position: impl Fn(u64) -> u64) -> u64 {
    let both = (b << 32) | (a & 0xffff_ffff);
    (0..4).fold(0, |all, i| all | (both >> (8 * (position(i) & 7)) & 0xff) << (8 * i))
}

/// Each nibble of `c` names a byte. Its top bit asks for eight copies of that byte's sign instead.
fn prmt(a: u64, b: u64, c: u64, _: u64) -> u64 {
    let chosen = bytes(a, b, |i| c >> (4 * i) & 7);
    (0..4).fold(0, |all, i| {
        let byte = chosen >> (8 * i) & 0xff;
        let sign = if byte >= 0x80 { 0xff } else { 0 };
        all | if c >> (4 * i + 3) & 1 == 1 { sign } else { byte } << (8 * i)
    })
}

fn zero_extend(a: u64, length: u64) -> u64 {
    if length >= 32 { a & 0xffff_ffff } else { a & ((1 << length) - 1) }
}

fn sign_extend(a: u64, length: u64) -> u64 {
    match length {
        0 => 0,
        1..32 => (((a << (64 - length)) as i64 >> (64 - length)) as i32).bits(),
        _ => a & 0xffff_ffff,
    }
}

/// A run of ones, from a position on.
fn mask(position: u64, length: u64) -> u64 {
    let ones = if length >= 32 { 0xffff_ffff } else { (1 << length) - 1 };
    if position >= 32 { 0 } else { ones << position & 0xffff_ffff }
}
