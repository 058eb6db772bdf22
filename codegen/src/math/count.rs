//! [`Arith`] that counts instructions.

use super::{Arith, approximate, precise, precise_of_two};
use atlas_dsl::op::{BinaryOp, UnaryOp};

/// Instructions of a thread, and those of them that the unit for special functions does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InstructionCount {
    /// All of them.
    pub instructions: u32,
    /// Exponentials, reciprocals and roots.
    pub special: u32,
}

impl InstructionCount {
    /// A correctly rounded division or square root: an approximation, steps of Newton's method, and a test for the cases that
    /// these do not reach.
    pub const ROUNDED: InstructionCount = InstructionCount { instructions: 9, special: 1 };

    /// The instructions of a function of f32, in its approximate form if it has one and `shortly` is set; 1 if it needs no
    /// expansion.
    pub fn of(op: UnaryOp, shortly: bool) -> InstructionCount {
        let mut count = InstructionCount::default();
        let short = if shortly { approximate(&mut count, op, ()) } else { None };
        match short.or_else(|| precise(&mut count, op, ())) {
            Some(()) => count,
            None => InstructionCount { instructions: 1, special: 0 },
        }
    }

    /// The instructions of an operation of two operands of f32.
    pub fn of_two(op: BinaryOp) -> InstructionCount {
        let mut count = InstructionCount::default();
        match precise_of_two(&mut count, op, (), ()) {
            Some(()) => count,
            None => ONE,
        }
    }

    fn plus(&mut self, other: InstructionCount) {
        self.instructions += other.instructions;
        self.special += other.special;
    }
}

/// One instruction each, of the kind in the name.
macro_rules! count {
    ($($name:ident($($arg:ident),+) $cost:expr;)+) => {
        $(fn $name(&mut self, $($arg: ()),+) {
            self.plus($cost);
        })+
    };
}

const ONE: InstructionCount = InstructionCount { instructions: 1, special: 0 };
const SPECIAL: InstructionCount = InstructionCount { instructions: 1, special: 1 };
/// A sign that is part of an instruction's operand.
const FREE: InstructionCount = InstructionCount { instructions: 0, special: 0 };

impl Arith for InstructionCount {
    type F = ();
    type I = ();
    type B = ();

    fn f(&mut self, _: f32) {}
    fn i(&mut self, _: i32) {}
    fn shl(&mut self, (): (), _: u32) {
        self.plus(ONE);
    }
    fn ashr(&mut self, (): (), _: u32) {
        self.plus(ONE);
    }
    count! {
        add(_x, _y) ONE;
        sub(_x, _y) ONE;
        mul(_x, _y) ONE;
        fma(_x, _y, _z) ONE;
        div(_x, _y) InstructionCount::ROUNDED;
        sqrt(_x) InstructionCount::ROUNDED;
        neg(_x) FREE;
        abs(_x) FREE;
        copysign(_x, _sign) ONE;
        minimum(_x, _y) ONE;
        maximum(_x, _y) ONE;
        lt(_x, _y) ONE;
        eq(_x, _y) ONE;
        select(_c, _x, _y) ONE;
        bits(_x) FREE;
        from_bits(_x) FREE;
        iadd(_x, _y) ONE;
        isub(_x, _y) ONE;
        ixor(_x, _y) ONE;
        approx_ex2(_x) SPECIAL;
        approx_rcp(_x) SPECIAL;
        approx_rsqrt(_x) SPECIAL;
        approx_sqrt(_x) SPECIAL;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_costs_what_its_expansion_has() {
        let count = |op, shortly| {
            let InstructionCount { instructions, special } = InstructionCount::of(op, shortly);
            (instructions, special)
        };
        assert_eq!(count(UnaryOp::Exp, true), (2, 1));
        assert_eq!(count(UnaryOp::Sigmoid, true), (4, 2));
        assert_eq!(count(UnaryOp::Exp, false), (20, 0));
        assert_eq!(count(UnaryOp::Rsqrt, false), (18, 2));
        // It has no approximate form.
        assert_eq!(count(UnaryOp::Log, true), (28, 0));
        assert_eq!(count(UnaryOp::Neg, false), (1, 0));
    }
}
