//! Element-wise operations of constants.

use crate::op::BinaryOp;

/// The value of an element-wise operation of two constants, in f64; `None` where it has none.
pub fn fold_binary(op: BinaryOp, x: f64, y: f64) -> Option<f64> {
    Some(match op {
        BinaryOp::Add => x + y,
        BinaryOp::Sub => x - y,
        BinaryOp::Mul => x * y,
        BinaryOp::Div => x / y,
        BinaryOp::Min | BinaryOp::Max if x.is_nan() || y.is_nan() => f64::NAN,
        // Of two zeros -0 is the lesser one.
        BinaryOp::Min if x == y => {
            if x.is_sign_negative() {
                x
            } else {
                y
            }
        }
        BinaryOp::Max if x == y => {
            if x.is_sign_negative() {
                y
            } else {
                x
            }
        }
        BinaryOp::Min => x.min(y),
        BinaryOp::Max => x.max(y),
        // Of integers alone.
        BinaryOp::Rem | BinaryOp::And | BinaryOp::Or => return None,
        BinaryOp::BitAnd | BinaryOp::BitOr | BinaryOp::BitXor => return None,
        BinaryOp::Shl | BinaryOp::Shr | BinaryOp::ShrLogical | BinaryOp::MulHi => return None,
        BinaryOp::Pow | BinaryOp::Atan2 => return op.of_numbers(x, y),
    })
}

/// The value of an arithmetic operation of two whole numbers, or why it has none.
///
/// `5 / 2` is 2 in Rust and 2.5 in mathematics, so it is refused.
pub fn fold_whole(op: BinaryOp, x: i64, y: i64) -> Result<i64, String> {
    let value = match op {
        BinaryOp::Add => x.checked_add(y),
        BinaryOp::Sub => x.checked_sub(y),
        BinaryOp::Mul => x.checked_mul(y),
        BinaryOp::Div | BinaryOp::Rem if y == 0 => return Err(format!("{x} is divided by 0")),
        BinaryOp::Div if x.checked_rem(y).is_some_and(|rest| rest != 0) => {
            // Either may be a knob or a const, which is another number elsewhere.
            return Err(format!(
                "{x} / {y} of whole numbers is not a whole number; for a float multiply one of them by 1.0"
            ));
        }
        BinaryOp::Div => x.checked_div(y),
        BinaryOp::Rem => x.checked_rem(y),
        BinaryOp::Min => Some(x.min(y)),
        BinaryOp::Max => Some(x.max(y)),
        BinaryOp::BitAnd => Some(x & y),
        BinaryOp::BitOr => Some(x | y),
        BinaryOp::BitXor => Some(x ^ y),
        // How many bits there are to move is not known yet.
        BinaryOp::Shl | BinaryOp::Shr | BinaryOp::ShrLogical if !(0..64).contains(&y) => {
            return Err(format!("{x} {} {y}: a count of bits is from 0 to 63", op.text()));
        }
        BinaryOp::ShrLogical if x < 0 => {
            return Err(format!("{x} shr_logical {y}: how many bits a number below 0 has is not known yet"));
        }
        BinaryOp::MulHi => {
            return Err(format!("mul_hi of {x} and {y}: how many bits they have is not known yet"));
        }
        BinaryOp::Shl => Some(x << y).filter(|moved| moved >> y == x),
        BinaryOp::Shr | BinaryOp::ShrLogical => Some(x >> y),
        BinaryOp::And | BinaryOp::Or | BinaryOp::Pow | BinaryOp::Atan2 => None,
    };
    value.ok_or_else(|| format!("{x} {} {y} is out of the range of i64", op.text()))
}
