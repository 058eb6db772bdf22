//! Derivatives of functions of tiles, which are element-wise: an element of the result depends on one element of each argument.
//!
//! | file | mode |
//! |---|---|
//! | `reverse` | partial derivatives by all arguments at once |
//! | `forward` | the derivative along a direction |
//! | `slopes` | the derivative of each operation |
//! | `edges` | where a derivative is valid |
//!
//! An argument of extent 1 is repeated, and has one derivative for each repetition. Where a function has no derivative, a
//! one-sided one is taken: that of `abs` is 0 at 0, `max(x, y)` and `min(x, y)` follow `y` where both are equal (a ReLU is flat
//! at 0), and `floor` and `round` are flat.

mod edges;
mod forward;
mod reverse;
mod slopes;

use super::{Builder, Operand};
use crate::entity::Value;
use crate::ir::{Kernel, Loc};

impl Builder {
    /// The arguments. A tile that is given twice counts as two.
    fn distinct<const N: usize>(&mut self, loc: Loc, args: [Operand; N]) -> [Operand; N] {
        let mut given: Vec<Value> = Vec::new();
        args.map(|arg| match arg {
            Operand::Value(v) if given.contains(&v) => {
                let axes: Vec<Option<u8>> = (0..self.kernel.ty(v).rank() as u8).map(Some).collect();
                self.reshape(loc, arg, &axes)
            }
            Operand::Value(v) => {
                given.push(v);
                arg
            }
            number => number,
        })
    }

    /// What `f` gives for `args`, if it is a tile, and the operations that it appended.
    fn traced<const N: usize>(
        &mut self,
        loc: Loc,
        args: [Operand; N],
        f: impl FnOnce(&mut Builder, [Operand; N]) -> Operand,
    ) -> Option<(Value, std::ops::Range<usize>)> {
        let first = self.kernel.insts.len();
        let result = f(self, args);
        let end = self.kernel.insts.len();
        match result {
            Operand::Value(out) => Some((out, first..end)),
            Operand::Poison => None,
            _ => {
                self.error(121, loc, "the derivative of a number; what is differentiated gives a tile");
                None
            }
        }
    }
}

/// True for a reshape that changes nothing, such as one of a tile that is given twice.
fn is_identity(kernel: &Kernel, value: Value, axes: &[Option<u8>]) -> bool {
    (0..kernel.ty(value).rank() as u8).map(Some).eq(axes.iter().copied())
}
