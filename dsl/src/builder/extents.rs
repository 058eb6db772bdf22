//! Extents of tiles that depend on a config, on dims and on Rust consts.

use super::Builder;
use crate::ir::Loc;
use crate::op::BinaryOp;

impl Builder {
    /// An arithmetic operation in an extent, which is written `text`. A quotient has to be whole, like that of any two whole
    /// numbers in a kernel.
    pub fn extent_of(&mut self, loc: Loc, text: &str, op: BinaryOp, a: i64, b: i64) -> i64 {
        let whole = match op {
            BinaryOp::Add => a.checked_add(b),
            BinaryOp::Sub => a.checked_sub(b),
            BinaryOp::Mul => a.checked_mul(b),
            _ => a.checked_rem(b).filter(|&rest| rest == 0).and_then(|_| a.checked_div(b)),
        };
        whole.unwrap_or_else(|| {
            let message = format!("the extent `{text}` is {a} {} {b}, which is not a whole number", op.text());
            self.error(117, loc, message);
            1
        })
    }

    /// An extent, written `text`, as a number of elements.
    pub fn extent(&mut self, loc: Loc, text: &str, value: i64) -> u32 {
        match u32::try_from(value) {
            Ok(n) if n > 0 => n,
            _ if value < 1 => {
                self.error(220, loc, format!("the extent `{text}` is {value}; a tile has at least one element"));
                1
            }
            _ => {
                let message = format!("the extent `{text}` is {value}; a tile has at most {} elements", u32::MAX);
                self.error(220, loc, message);
                1
            }
        }
    }
}
