//! Element-wise operations of two operands of one type, and comparisons.

use crate::Takes;

/// A row of [`BinaryOp`].
#[derive(Clone, Copy, Debug)]
pub struct Binary {
    /// In messages and in the text forms.
    pub name: &'static str,
    /// As kernels write it: an operator, or a function.
    pub text: &'static str,
    /// The element types that it takes; the result has the operands'.
    pub takes: Takes,
}

const fn row(name: &'static str, text: &'static str, takes: Takes) -> Binary {
    Binary { name, text, takes }
}

table! {
    /// Element-wise operations of two operands of equal type; the result has that type.
    BinaryOp: Binary {
        /// Sum.
        Add = row("add", "+", Takes::Numbers),
        /// Difference.
        Sub = row("sub", "-", Takes::Numbers),
        /// Product.
        Mul = row("mul", "*", Takes::Numbers),
        /// Quotient; integers round toward zero.
        Div = row("div", "/", Takes::Numbers),
        /// Remainder of the truncating quotient.
        Rem = row("rem", "%", Takes::Integers),
        /// The smaller; NaN if either operand is NaN.
        Min = row("min", "min", Takes::Numbers),
        /// The larger; NaN if either operand is NaN.
        Max = row("max", "max", Takes::Numbers),
        /// Logical and.
        And = row("and", "&&", Takes::Bool),
        /// Logical or.
        Or = row("or", "||", Takes::Bool),
        /// The bits that both operands have.
        BitAnd = row("bitand", "&", Takes::Bits),
        /// The bits that either operand has.
        BitOr = row("bitor", "|", Takes::Bits),
        /// The bits that one operand has.
        BitXor = row("bitxor", "^", Takes::Bits),
        /// The bits of the left operand moved up, as [`shift_left`] defines it.
        Shl = row("shl", "<<", Takes::Integers),
        /// The bits of the left operand moved down, as [`shift_right`] defines it.
        Shr = row("shr", ">>", Takes::Integers),
        /// The bits of the left operand moved down with zeros above, as [`shift_right_logical`] defines it.
        ShrLogical = row("shr_logical", "shr_logical", Takes::Integers),
        /// The high half of the product of the operands as unsigned numbers, as [`multiply_high`] defines it.
        MulHi = row("mul_hi", "mul_hi", Takes::Integers),
        /// The left operand to the power of the right one.
        Pow = row("pow", "pow", Takes::Floats),
        /// The angle of the point (x, y) from the axis of x, in radians; y is the left operand.
        Atan2 = row("atan2", "atan2", Takes::Floats),
    }
}

impl BinaryOp {
    /// As kernels write it: the operator, or the name of the function.
    pub const fn text(self) -> &'static str {
        self.row().text
    }

    /// Those that kernels write as functions and methods, besides `min` and `max`, which are also reductions.
    pub fn functions() -> impl Iterator<Item = BinaryOp> {
        [BinaryOp::ShrLogical, BinaryOp::MulHi, BinaryOp::Pow, BinaryOp::Atan2].into_iter()
    }

    /// The function of this name.
    pub fn function(name: &str) -> Option<BinaryOp> {
        BinaryOp::functions().find(|op| op.name() == name)
    }

    /// The names of the operands, as the documentation calls them.
    pub const fn operands(self) -> [&'static str; 2] {
        match self {
            BinaryOp::ShrLogical => ["x", "n"],
            BinaryOp::Atan2 => ["y", "x"],
            _ => ["x", "y"],
        }
    }

    /// True for a function of floats that devices compute with errors of their own.
    pub const fn is_function(self) -> bool {
        matches!(self, BinaryOp::Pow | BinaryOp::Atan2)
    }

    /// The value at two floats that are known when the kernel is built, if it is such a function.
    pub fn of_numbers(self, x: f64, y: f64) -> Option<f64> {
        match self {
            BinaryOp::Pow => Some(x.powf(y)),
            BinaryOp::Atan2 => Some(x.atan2(y)),
            _ => None,
        }
    }

    /// True for arithmetic of numbers, as opposed to that of bits and of truth values.
    pub fn is_arithmetic(self) -> bool {
        self.row().takes == Takes::Numbers || self == BinaryOp::Rem
    }

    /// The inverse of [`BinaryOp::text`].
    pub fn from_text(text: &str) -> Option<BinaryOp> {
        BinaryOp::ALL.iter().copied().find(|op| op.text() == text)
    }
}

/// `x << by`, before it wraps to the integer type of `x`. A count that is negative, or as large as the type is wide, leaves no
/// bit: the result is 0.
pub const fn shift_left(x: i64, by: i64) -> i64 {
    if by < 0 || by >= 64 { 0 } else { x << by }
}

/// `x >> by` of an integer of any type, filling with the sign. A count that is negative, or as large as the type is wide, leaves
/// the sign alone: the result is 0 or -1.
pub const fn shift_right(x: i64, by: i64) -> i64 {
    x >> if by < 0 || by >= 64 { 63 } else { by }
}

/// The bits of an integer of `bits` bits moved down, with zeros above, before it wraps to that type. A count that is negative, or
/// as large as the type is wide, leaves no bit: the result is 0.
pub const fn shift_right_logical(x: i64, by: i64, bits: u32) -> i64 {
    if by < 0 || by >= bits as i64 {
        return 0;
    }
    ((x as u64 & (u64::MAX >> (64 - bits))) >> by) as i64
}

/// The upper `bits` bits of the product of two integers of `bits` bits, 32 or 64, whose bits are taken as unsigned numbers, before
/// it wraps to their type. The product has twice as many bits, so nothing is lost.
pub const fn multiply_high(x: i64, y: i64, bits: u32) -> i64 {
    if bits == 32 {
        return ((x as u32 as u64 * y as u32 as u64) >> 32) as i64;
    }
    ((x as u64 as u128 * y as u64 as u128) >> 64) as i64
}

/// A row of [`Predicate`].
#[derive(Clone, Copy, Debug)]
pub struct Comparison {
    /// In messages and in the text forms.
    pub name: &'static str,
    /// The operator in kernels.
    pub text: &'static str,
}

const fn operator(name: &'static str, text: &'static str) -> Comparison {
    Comparison { name, text }
}

table! {
    /// Comparison predicates; the result is `bool`. All but `ne` are false if an operand is NaN.
    Predicate: Comparison {
        /// Equal.
        Eq = operator("eq", "=="),
        /// Not equal.
        Ne = operator("ne", "!="),
        /// Less than.
        Lt = operator("lt", "<"),
        /// Less than or equal.
        Le = operator("le", "<="),
        /// Greater than.
        Gt = operator("gt", ">"),
        /// Greater than or equal.
        Ge = operator("ge", ">="),
    }
}

impl Predicate {
    /// The operator in kernels.
    pub const fn text(self) -> &'static str {
        self.row().text
    }

    /// The inverse of [`Predicate::text`].
    pub fn from_text(text: &str) -> Option<Predicate> {
        Predicate::ALL.iter().copied().find(|p| p.text() == text)
    }

    /// True if it holds for two values.
    pub fn holds<T: PartialOrd>(self, x: &T, y: &T) -> bool {
        match self {
            Predicate::Eq => x == y,
            Predicate::Ne => x != y,
            Predicate::Lt => x < y,
            Predicate::Le => x <= y,
            Predicate::Gt => x > y,
            Predicate::Ge => x >= y,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::multiply_high;

    #[test]
    fn high_halves_are_of_unsigned_numbers() {
        assert_eq!(multiply_high(-1, -1, 32), 0xffff_fffe);
        assert_eq!(multiply_high(-1, -1, 64), -2);
        assert_eq!(multiply_high(i64::from(i32::MIN), 2, 32), 1);
        assert_eq!(multiply_high(i64::MIN, 6, 64), 3);
        assert_eq!(multiply_high(65_535, 65_537, 32), 0);
        assert_eq!(multiply_high(-1, 65_536, 32), 65_535);
    }
}
