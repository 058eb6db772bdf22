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
    }
}

impl BinaryOp {
    /// As kernels write it: the operator, or the name of the function.
    pub const fn text(self) -> &'static str {
        self.row().text
    }

    /// The inverse of [`BinaryOp::text`].
    pub fn from_text(text: &str) -> Option<BinaryOp> {
        BinaryOp::ALL.iter().copied().find(|op| op.text() == text)
    }
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
