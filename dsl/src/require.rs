//! What a kernel requires of the sizes of its dims: `require { H % J == 0, C * L >= N }`. It is checked at the first launch of
//! each problem.

use crate::op::{BinaryOp, Predicate};
use std::fmt;

/// A number computed from the sizes of dims.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quantity {
    /// The size of a dim, as an index into [`KernelDef::dims`](crate::KernelDef::dims).
    Dim(usize),
    /// A number as written.
    Number(u32),
    /// A sum, difference, product, quotient, remainder, or the smaller or larger of two.
    Of(BinaryOp, &'static [Quantity; 2]),
}

/// A condition on the sizes of dims.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Requirement {
    /// What is compared.
    pub left: Quantity,
    /// How the two compare.
    pub is: Predicate,
    /// What it is compared with.
    pub right: Quantity,
}

impl Requirement {
    /// The dim that it makes equal to a quantity of other dims, and its size, if those of the quantity are known. Sizes are in the
    /// signature's order.
    pub fn implied(&self, dims: &[Option<u64>]) -> Option<(usize, u64)> {
        let (Predicate::Eq, Quantity::Dim(dim)) = (self.is, self.left) else { return None };
        let of = self.right.dims();
        if of.contains(&dim) || of.iter().any(|&d| dims[d].is_none()) {
            return None;
        }
        let known: Vec<u64> = dims.iter().map(|size| size.unwrap_or(0)).collect();
        Some((dim, self.right.value(&known)?.try_into().ok()?))
    }

    /// True if it holds for these sizes, in the signature's order. False if a number is divided by 0 or overflows.
    pub fn holds(&self, dims: &[u64]) -> bool {
        let sides = self.left.value(dims).zip(self.right.value(dims));
        sides.is_some_and(|(left, right)| self.is.holds(&left, &right))
    }

    /// The dims that it mentions, in the order written, each once.
    pub fn dims(&self) -> Vec<usize> {
        let mut dims = Vec::new();
        self.left.collect(&mut dims);
        self.right.collect(&mut dims);
        dims
    }

    /// The same with other dims: the n-th becomes `dims[n]`. Lives as long as the program.
    pub(crate) fn renumbered(&self, dims: &[usize]) -> Requirement {
        Requirement { left: self.left.renumbered(dims), is: self.is, right: self.right.renumbered(dims) }
    }

    /// The text as written, with these names of the dims.
    pub fn text<'a>(&'a self, names: &'a [&'a str]) -> impl fmt::Display + 'a {
        RequirementText { what: self, names }
    }
}

impl Quantity {
    /// The dims that it mentions, in the order written, each once.
    pub fn dims(&self) -> Vec<usize> {
        let mut dims = Vec::new();
        self.collect(&mut dims);
        dims
    }

    fn value(&self, dims: &[u64]) -> Option<i128> {
        match *self {
            Quantity::Dim(d) => dims.get(d).map(|&size| i128::from(size)),
            Quantity::Number(n) => Some(i128::from(n)),
            Quantity::Of(op, [a, b]) => {
                let (a, b) = (a.value(dims)?, b.value(dims)?);
                match op {
                    BinaryOp::Add => a.checked_add(b),
                    BinaryOp::Sub => a.checked_sub(b),
                    BinaryOp::Mul => a.checked_mul(b),
                    BinaryOp::Div => a.checked_div(b),
                    BinaryOp::Rem => a.checked_rem(b),
                    BinaryOp::Min => Some(a.min(b)),
                    BinaryOp::Max => Some(a.max(b)),
                    _ => None,
                }
            }
        }
    }

    fn collect(&self, dims: &mut Vec<usize>) {
        match *self {
            Quantity::Dim(d) if !dims.contains(&d) => dims.push(d),
            Quantity::Of(_, [a, b]) => {
                a.collect(dims);
                b.collect(dims);
            }
            _ => {}
        }
    }

    fn renumbered(&self, dims: &[usize]) -> Quantity {
        match *self {
            Quantity::Dim(d) => Quantity::Dim(dims.get(d).copied().unwrap_or(d)),
            Quantity::Number(n) => Quantity::Number(n),
            Quantity::Of(op, sides) => {
                let sides: &'static [Quantity; 2] = Box::leak(Box::new(sides.map(|side| side.renumbered(dims))));
                Quantity::Of(op, sides)
            }
        }
    }

    /// Writes the quantity. `tight` is set if it is beside an operator that binds more tightly than a sum.
    fn write(&self, names: &[&str], tight: bool, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (op, [a, b]) = match *self {
            Quantity::Dim(d) => return f.write_str(names.get(d).unwrap_or(&"?")),
            Quantity::Number(n) => return write!(f, "{n}"),
            Quantity::Of(op, sides) => (op, sides),
        };
        match op {
            BinaryOp::Min | BinaryOp::Max => {
                write!(f, "{}(", op.text())?;
                a.write(names, false, f)?;
                f.write_str(", ")?;
                b.write(names, false, f)?;
                f.write_str(")")
            }
            BinaryOp::Add | BinaryOp::Sub => {
                f.write_str(if tight { "(" } else { "" })?;
                a.write(names, false, f)?;
                write!(f, " {} ", op.text())?;
                b.write(names, op == BinaryOp::Sub, f)?;
                f.write_str(if tight { ")" } else { "" })
            }
            _ => {
                a.write(names, true, f)?;
                write!(f, " {} ", op.text())?;
                let nested = matches!(b, Quantity::Of(op, _) if !matches!(op, BinaryOp::Min | BinaryOp::Max));
                f.write_str(if nested { "(" } else { "" })?;
                b.write(names, false, f)?;
                f.write_str(if nested { ")" } else { "" })
            }
        }
    }
}

struct RequirementText<'a> {
    what: &'a Requirement,
    names: &'a [&'a str],
}

impl fmt::Display for RequirementText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.what.left.write(self.names, false, f)?;
        write!(f, " {} ", self.what.is.text())?;
        self.what.right.write(self.names, false, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADS: Requirement = Requirement {
        left: Quantity::Of(BinaryOp::Rem, &[Quantity::Dim(0), Quantity::Dim(1)]),
        is: Predicate::Eq,
        right: Quantity::Number(0),
    };

    #[test]
    fn sizes_meet_it_or_not() {
        assert!(HEADS.holds(&[8, 4]));
        assert!(!HEADS.holds(&[6, 4]));
        assert!(!HEADS.holds(&[6, 0]), "a remainder by 0 is no number");
        assert!(!HEADS.holds(&[6]), "a dim without a size");
        let huge = Quantity::Of(BinaryOp::Mul, &[Quantity::Dim(0), Quantity::Dim(0)]);
        let fits = Requirement { left: huge, is: Predicate::Ge, right: Quantity::Dim(0) };
        assert!(fits.holds(&[u64::from(u32::MAX)]));
    }

    #[test]
    fn it_is_written_as_it_was_and_moves_to_other_dims() {
        let names = ["H", "J", "K"];
        assert_eq!(HEADS.text(&names).to_string(), "H % J == 0");
        assert_eq!(HEADS.renumbered(&[2, 0]).text(&names).to_string(), "K % H == 0");
        let sum = Quantity::Of(BinaryOp::Add, &[Quantity::Dim(0), Quantity::Number(1)]);
        let both: &'static [Quantity; 2] = Box::leak(Box::new([sum, sum]));
        let nested = Requirement {
            left: Quantity::Of(BinaryOp::Mul, both),
            is: Predicate::Lt,
            right: Quantity::Of(BinaryOp::Max, &[Quantity::Dim(1), Quantity::Dim(2)]),
        };
        assert_eq!(nested.text(&names).to_string(), "(H + 1) * (H + 1) < max(J, K)");
        assert_eq!(nested.dims(), [0, 1, 2]);
        let less: &'static [Quantity; 2] = Box::leak(Box::new([Quantity::Dim(2), sum]));
        let less =
            Requirement { left: Quantity::Of(BinaryOp::Sub, less), is: Predicate::Ge, right: Quantity::Number(0) };
        assert_eq!(less.text(&names).to_string(), "K - (H + 1) >= 0");
    }
}
