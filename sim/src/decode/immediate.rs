//! Constants as bits of the type that an instruction gives them.

use crate::alu::{bf16_bits, f16_bits};
use crate::syntax::ast::{Operand, Type};

/// The bits of a constant in a type; `None` if the type cannot hold it.
pub(super) fn immediate(operand: &Operand, ty: Type) -> Option<u64> {
    match *operand {
        Operand::Int(value) => integer(value, ty),
        Operand::F32(bits) => match ty {
            Type::F32 | Type::B32 | Type::U32 | Type::S32 | Type::Tf32 => Some(u64::from(bits)),
            _ => float(f64::from(f32::from_bits(bits)), ty),
        },
        Operand::F64(bits) => match ty {
            Type::F64 | Type::B64 | Type::U64 | Type::S64 => Some(bits),
            _ => float(f64::from_bits(bits), ty),
        },
        _ => None,
    }
}

/// An integer must be the zero- or sign-extension of a value that fits the type. Narrow floats take it as their bits.
fn integer(value: u64, ty: Type) -> Option<u64> {
    let bits = ty.bits();
    if matches!(ty, Type::F32 | Type::F64 | Type::F32x2 | Type::Tf32 | Type::Pred) {
        return None;
    }
    if bits >= 64 {
        return Some(value);
    }
    let mask = (1u64 << bits) - 1;
    let extended = value | !mask;
    let negative = extended == value && value >> (bits - 1) & 1 == 1;
    (value <= mask || negative).then_some(value & mask)
}

fn float(value: f64, ty: Type) -> Option<u64> {
    Some(match ty {
        Type::F16 => f16_bits(value),
        Type::Bf16 => bf16_bits(value),
        Type::F32 => u64::from((value as f32).to_bits()),
        Type::F64 => value.to_bits(),
        _ => return None,
    })
}
