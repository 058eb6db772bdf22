//! Floats as elements of a finite ring, in which the order of a sum does not matter.
//!
//! A single is a pair of residues modulo 2^16, its high and its low half; a 16-bit float is one residue, held as the high one
//! with a low one of 0. Widening and narrowing keep the high residue. A compiled kernel that is executed in the same ring must
//! give the same bits, however it orders its sums. A term that is lost or counted twice changes them.

use crate::error::InterpError;
use crate::rounding::to_narrow;
use atlas_dsl::op::{BinaryOp, Precision, ReduceOp, UnaryOp, Update};
use atlas_dsl::{DType, Kernel, Op, Value};

/// An element of the ring: the bits of an f32.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Word(pub(crate) u32);

impl Word {
    /// The bits of a constant in a type.
    pub(crate) fn of(dtype: DType, x: f64) -> Word {
        // A 16-bit float is its bits, and not what it is as an f32.
        match dtype {
            DType::F16 => Word(u32::from(crate::rounding::to_f16(x).to_bits()) << 16),
            DType::Bf16 => Word(u32::from(crate::rounding::to_bf16(x).to_bits()) << 16),
            _ => Word(to_narrow(dtype, x).to_bits()),
        }
    }

    /// The element in a type.
    pub(crate) fn cast(self, dtype: DType) -> Word {
        if dtype == DType::F32 { self } else { Word(self.0 & 0xffff_0000) }
    }

    fn each(self, other: Word, f: fn(u16, u16) -> u16) -> Word {
        let part = |shift: u32| u32::from(f((self.0 >> shift) as u16, (other.0 >> shift) as u16)) << shift;
        Word(part(16) | part(0))
    }

    pub(crate) fn add(self, other: Word) -> Word {
        self.each(other, u16::wrapping_add)
    }

    pub(crate) fn sub(self, other: Word) -> Word {
        self.each(other, u16::wrapping_sub)
    }

    pub(crate) fn mul(self, other: Word) -> Word {
        self.each(other, u16::wrapping_mul)
    }

    pub(crate) fn neg(self) -> Word {
        Word(0).sub(self)
    }
}

/// Checks that every operation of a kernel means the same in the ring however it is compiled.
///
/// Constants other than 0 may only be selected. A compiler uses identities of floats with the constant 1, which do not hold in
/// the ring. Identities with 0 do not hold either: `-0` is a different number to a compiler and an element of the ring. So only
/// loaded values may be negated. A target without bf16 arithmetic adds by `1 x + y`, which is not allowed for the same reason.
pub fn check_ring(kernel: &Kernel) -> Result<(), InterpError> {
    if let Some(data) = kernel.values.values().find(|data| data.ty.dtype == DType::F64) {
        return Err(InterpError::kernel(format!("{} has no meaning in the ring", data.ty)));
    }
    for block in kernel.blocks.values() {
        for &inst in &block.insts {
            let refuse = |what: &str| {
                Err(InterpError::kernel(format!("`{what}` of floats has no meaning in the ring")).at(kernel.locs[inst]))
            };
            let float = |v: Value| kernel.ty(v).dtype.is_float();
            let bf16 = |v: Value| kernel.ty(v).dtype == DType::Bf16;
            match &kernel.insts[inst] {
                Op::Unary(op, x) if float(*x) && (*op != UnaryOp::Neg || bf16(*x) || !is_loaded(kernel, *x)) => {
                    return refuse(op.name());
                }
                Op::Binary(op, x, _)
                    if float(*x) && (bf16(*x) || !matches!(op, BinaryOp::Add | BinaryOp::Sub | BinaryOp::Mul)) =>
                {
                    return refuse(op.name());
                }
                Op::Fma(x, ..) if bf16(*x) => return refuse("fma"),
                Op::Compare(p, x, _) if float(*x) => return refuse(p.name()),
                Op::Reduce { op, value, .. } if float(*value) && *op != ReduceOp::Sum => return refuse(op.name()),
                Op::Scan { op, value, .. } if float(*value) && *op != ReduceOp::Sum => return refuse(op.scan_name()),
                // A sum of 16-bit floats is rounded each time, and in another order each time.
                Op::Store { value, update, .. }
                    if float(*value)
                        && update.is_atomic()
                        && (*update != Update::Add || kernel.ty(*value).dtype != DType::F32) =>
                {
                    return refuse(update.statement());
                }
                Op::Cast(dtype, x) if float(*x) != dtype.is_float() => return refuse("cast"),
                // Its operands are split by their bits.
                Op::Dot { precision: Precision::Bf16x3 | Precision::Tf32x3, .. } => return refuse("dot"),
                Op::TableGet { .. } => return refuse("table"),
                Op::Other { value, other, .. } if float(*value) && other.to_bits() != 0 => return refuse("or"),
                Op::Splat { value, dtype, .. } if dtype.is_float() && value.to_bits() != 0 => {
                    let only_selected = kernel.results[inst].iter().all(|&v| only_selected(kernel, v));
                    if !only_selected {
                        return refuse("splat");
                    }
                }
                _ => {}
            }
        }
    }
    Ok(())
}

/// True if a value is a loaded tile, which a compiler knows nothing about.
fn is_loaded(kernel: &Kernel, v: Value) -> bool {
    match kernel.def_op(v).map(|(_, op)| op) {
        Some(Op::Load { .. }) => true,
        Some(Op::Cast(_, x) | Op::Transpose(x)) => is_loaded(kernel, *x),
        Some(Op::Reshape { value, .. } | Op::Broadcast { value, .. }) => is_loaded(kernel, *value),
        _ => false,
    }
}

/// True if a value is only used by selects.
fn only_selected(kernel: &Kernel, constant: Value) -> bool {
    let uses = |op: &Op| {
        let mut found = false;
        op.visit_operands(|v| found |= v == constant);
        found
    };
    kernel.insts.values().all(|op| matches!(op, Op::Select { .. }) || !uses(op))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn narrow_floats_are_their_bits() {
        assert_eq!(Word::of(DType::F32, 1.0), Word(0x3f80_0000));
        assert_eq!(Word::of(DType::Bf16, 1.0), Word(0x3f80_0000));
        assert_eq!(Word::of(DType::F16, 1.0), Word(0x3c00_0000));
        assert_eq!(Word(0x1234_5678).cast(DType::F16), Word(0x1234_0000));
    }

    #[test]
    fn residues_do_not_carry() {
        assert_eq!(Word(0x0001_ffff).add(Word(0x0001_0002)), Word(0x0002_0001));
        assert_eq!(Word(0x0003_0005).mul(Word(0xffff_0002)), Word(0xfffd_000a));
        assert_eq!(Word(0x0003_0005).neg().add(Word(0x0003_0005)), Word(0));
    }
}
