//! Arithmetic of one lane. Instruction words select plain functions once, when a program is decoded.

use crate::program::{AluFn, AtomOp};
use crate::syntax::ast::Type;
use rounding::{BF16, F16, F64, Format, Round, Value};
use words::Words;

mod approx;
mod atomics;
mod bits;
mod compare;
mod convert;
mod exact;
mod float;
mod inexact;
mod integer;
mod minmax;
mod rounding;
#[cfg(test)]
mod tests;
mod words;

pub use approx::error_bound;
pub use compare::{compare, testp};
pub use inexact::{Approximation, Bound, Inexact};

/// The bits of a number in f16, rounded once to nearest.
pub(crate) fn f16_bits(x: f64) -> u64 {
    packed(x, F16)
}

/// The bits of a number in bf16, rounded once to nearest.
pub(crate) fn bf16_bits(x: f64) -> u64 {
    packed(x, BF16)
}

fn packed(x: f64, format: Format) -> u64 {
    Value::of(F64, x.to_bits()).pack(format, Round::Nearest)
}

/// The interpretation of floating-point values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arithmetic {
    /// Numbers of IEEE 754 and its narrow relatives, as the hardware has them.
    Ieee,
    /// Elements of a finite ring, where every order of a sum gives the same bits.
    Exact,
}

/// An instruction form: its function, and the types of what it reads and writes.
#[derive(Clone, Copy, Debug)]
pub struct AluForm {
    /// The function for one lane. It gets zero for operands that it does not have.
    pub f: AluFn,
    /// Operands after the destination.
    pub sources: u8,
    /// Type of the result, which is zero above its width. In a wider register, the ISA sign-extends a signed result, which
    /// needs a further conversion.
    pub dst: Type,
    /// Types of the operands. Those from `sources` on have no meaning.
    pub src: [Type; 4],
    /// How far the hardware's result may be from the exact one, if the ISA leaves that open.
    pub inexact: Option<Inexact>,
}

impl AluForm {
    /// A form with as many sources as there are types.
    fn new(f: AluFn, dst: Type, src: &[Type]) -> AluForm {
        let mut all = [Type::B64; 4];
        for (slot, ty) in all.iter_mut().zip(src) {
            *slot = *ty;
        }
        AluForm { f, sources: src.len().min(4) as u8, dst, src: all, inexact: None }
    }
}

/// The function of an opcode with its modifiers; `None` where the ISA has no such instruction.
pub fn lookup(opcode: &str, modifiers: &[&str], arithmetic: Arithmetic) -> Option<AluForm> {
    let words = Words::new(modifiers);
    if arithmetic == Arithmetic::Exact && touches_floats(opcode, modifiers) {
        return exact::lookup(opcode, words);
    }
    ieee(opcode, words)
}

/// The new value of `atom` or `red` from the old one and the operands; `None` where the ISA has no such operation.
pub fn atom(op: AtomOp, ty: Type, arithmetic: Arithmetic) -> Option<AluFn> {
    if arithmetic == Arithmetic::Exact && op == AtomOp::Add && is_float(ty) {
        return exact::add(ty);
    }
    atomics::atom(op, ty)
}

/// The reduction of two values by which `redux.sync` reduces a warp.
pub fn redux(op: &str, ty: Type) -> Option<AluFn> {
    atomics::redux(op, ty)
}

fn ieee(opcode: &str, words: Words<'_>) -> Option<AluForm> {
    let families = [integer::lookup, bits::lookup, float::lookup, minmax::lookup, approx::lookup, convert::lookup];
    families.iter().find_map(|family| family(opcode, words))
}

/// True if the ring changes the meaning of the instruction, that is, if it computes with floats instead of moving or ordering
/// them.
fn touches_floats(opcode: &str, modifiers: &[&str]) -> bool {
    let moves = matches!(opcode, "mov" | "min" | "max" | "copysign" | "slct");
    !moves && modifiers.iter().any(|word| Words::new(&[*word]).ty().is_some_and(is_float))
}

fn is_float(ty: Type) -> bool {
    use Type::*;
    matches!(ty, F16 | F16x2 | Bf16 | Bf16x2 | F32 | F32x2 | F64 | Tf32 | E4m3 | E4m3x2 | E5m2 | E5m2x2)
}

/// Chooses an instance of a generic function by a type: `for_type!(ty, add: U16 => u16, U32 => u32)`.
macro_rules! for_type {
    ($ty:expr, $f:ident: $($variant:ident => $repr:ty),+ $(,)?) => {
        match $ty {
            $(crate::syntax::ast::Type::$variant => Some($f::<$repr> as crate::program::AluFn),)+
            _ => None,
        }
    };
}
use for_type;
