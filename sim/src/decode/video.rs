//! `vabsdiff4`, the one instruction on the bytes of a word that compilers still emit.

use super::cursor::Cursor;
use crate::fault::Result;
use crate::program::{AluFn, Op, Src};
use crate::syntax::ast::Type;

/// The differences of unsigned bytes, or with `.add` their sum plus the third operand.
pub(super) fn vabsdiff4(c: &mut Cursor<'_>) -> Result<Op> {
    for _ in 0..3 {
        c.ty_of(&[Type::U32])?;
    }
    let sums: AluFn = |a, b, c, _| (0..4).fold(c, |sum, at| sum.wrapping_add(difference(a, b, at))) & 0xffff_ffff;
    // All bytes are selected, so that the third operand contributes none.
    let bytes: AluFn = |a, b, _, _| (0..4).fold(0, |word, at| word | difference(a, b, at) << (8 * at));
    let f = if c.take("add") { sums } else { bytes };
    let dst = c.dst(32)?;
    Ok(Op::Alu { f, dst, src: [c.src(Type::U32)?, c.src(Type::U32)?, c.src(Type::U32)?, Src::Imm(0)] })
}

fn difference(a: u64, b: u64, at: u32) -> u64 {
    let byte = |v: u64| v >> (8 * at) & 0xff;
    byte(a).abs_diff(byte(b))
}
