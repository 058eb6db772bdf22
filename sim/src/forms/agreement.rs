//! How close a result must be to the expected one.

use crate::alu::{Bound, error_bound};
use crate::syntax::ast::Type;

/// What counts as agreement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Agreement {
    /// The same bits.
    Bits,
    /// The same bits, but any NaN of the type matches any other.
    Numbers(Type),
    /// Within the ISA's bound on the error of the type. NaNs as above.
    Within(Bound, Type),
}

/// The agreement that the ISA promises of a form.
pub(super) fn of(opcode: &str, modifiers: &[&str], dst: Type, src: &[Type]) -> Agreement {
    if let Some(bound) = error_bound(opcode, modifiers) {
        return Agreement::Within(bound, dst);
    }
    // Of doubles, of signs changed, and of conversions to the same type the ISA leaves a NaN's payload open.
    let double = dst == Type::F64 || src.contains(&Type::F64);
    let open = double || matches!(opcode, "neg" | "abs") || (opcode == "cvt" && src == [dst]);
    let float = layout(dst).is_some();
    if open && float { Agreement::Numbers(dst) } else { Agreement::Bits }
}

/// A float's bits of fraction and exponent, and the number of floats in a register.
fn layout(ty: Type) -> Option<(u32, u32, u32)> {
    Some(match ty {
        Type::F16 => (10, 5, 1),
        Type::F16x2 => (10, 5, 2),
        Type::Bf16 => (7, 8, 1),
        Type::Bf16x2 => (7, 8, 2),
        Type::F32 => (23, 8, 1),
        Type::F64 => (52, 11, 1),
        _ => return None,
    })
}

impl Agreement {
    /// Whether a result agrees with the expected one.
    pub fn holds(self, expected: u64, found: u64) -> bool {
        let (ty, bound) = match self {
            Agreement::Bits => return expected == found,
            Agreement::Numbers(ty) => (ty, None),
            Agreement::Within(bound, ty) => (ty, Some(bound)),
        };
        let Some((fraction, exponent, lanes)) = layout(ty) else { return expected == found };
        let width = 1 + fraction + exponent;
        let lane = |bits: u64, i: u32| bits >> (i * width) & (u64::MAX >> (64 - width));
        (0..lanes).all(|i| agrees(bound, lane(expected, i), lane(found, i), fraction, exponent))
    }
}

fn agrees(bound: Option<Bound>, expected: u64, found: u64, fraction: u32, exponent: u32) -> bool {
    let sign = 1 << (fraction + exponent);
    let infinity = ((1 << exponent) - 1) << fraction;
    let magnitude = |bits: u64| bits & (sign - 1);
    let (e, f) = (magnitude(expected), magnitude(found));
    if e > infinity || f > infinity {
        return e > infinity && f > infinity;
    }
    let Some(bound) = bound else { return expected == found };
    // Neighbouring numbers are neighbouring integers; both zeros are one.
    let order = |bits: u64| if bits & sign != 0 { -(magnitude(bits) as i128) } else { magnitude(bits) as i128 };
    let steps = (order(expected) - order(found)).unsigned_abs();
    let value = |bits: u64| {
        let power = (magnitude(bits) >> fraction) as i32;
        let significand = magnitude(bits) & ((1 << fraction) - 1) | u64::from(power != 0) << fraction;
        let scale = power.max(1) - ((1 << (exponent - 1)) - 1) - fraction as i32;
        let x = significand as f64 * libm::exp2(f64::from(scale));
        if bits & sign != 0 { -x } else { x }
    };
    let error = (value(expected) - value(found)).abs();
    // What is expected is itself rounded, which is worth a step.
    steps <= 1
        || match bound {
            Bound::Ulp(ulps) => steps as f64 <= ulps + 1.0,
            Bound::Relative(relative) => error <= relative * value(expected).abs() * 1.001,
            Bound::Absolute(absolute) => error <= absolute * 1.001,
            Bound::AbsoluteOrRelative(either) => error <= either * value(expected).abs().max(1.0) * 1.001,
        }
}
