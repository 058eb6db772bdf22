//! Decodes `wgmma.*`: products of matrices over a warpgroup.

use super::cursor::Cursor;
use super::matrix::{bits, element, shape};
use crate::fault::Result;
use crate::program::{MmaType, Op, Wgmma, WgmmaA};
use crate::syntax::ast::{Operand, Type};

/// Any `wgmma` instruction.
pub(super) fn wgmma(c: &mut Cursor<'_>) -> Result<Op> {
    let kind = c.word("the operation")?;
    c.need_all(&["sync", "aligned"])?;
    match kind {
        "fence" => Ok(Op::WgmmaFence),
        "commit_group" => Ok(Op::WgmmaCommit),
        "wait_group" => Ok(Op::WgmmaWait { n: c.constant()? }),
        "mma_async" => product(c),
        _ => Err(c.unknown()),
    }
}

/// True if the ISA has a product of these types.
fn known(d: MmaType, a: MmaType, b: MmaType) -> bool {
    use MmaType::{Bf16, E4m3, E5m2, F16, F32, S8, S32, Tf32, U8};
    matches!(
        (a, b, d),
        (F16, F16, F16 | F32)
            | (Bf16, Bf16, F32)
            | (Tf32, Tf32, F32)
            | (E4m3 | E5m2, E4m3 | E5m2, F16 | F32)
            | (S8 | U8, S8 | U8, S32)
    )
}

fn product(c: &mut Cursor<'_>) -> Result<Op> {
    let (m, n, k) = shape(c)?;
    let (d_type, a_type, b_type) = (element(c)?, element(c)?, element(c)?);
    let integer = d_type == MmaType::S32;
    let step = if integer && n > 32 { 16 } else { 8 };
    // All rows of an operand have 32 bytes of k.
    let fits = m == 64 && (8..=256).contains(&n) && n % step == 0 && usize::from(k) * bits(a_type) == 256;
    if !fits || !known(d_type, a_type, b_type) {
        return Err(c.unknown());
    }
    let d = c.dst_list(usize::from(n) * bits(d_type) / 64, 32)?;
    let registers = matches!(c.peek(), Some(Operand::Vector(_)));
    let a = if registers { WgmmaA::Registers(c.src_list(4, Type::B32)?) } else { descriptor(c)? };
    let b = c.src(Type::B64)?;
    let scale_d = c.pred_or_imm()?;
    let (mut negate_a, mut negate_b) = (false, false);
    if !integer {
        negate_a = scale(c)?;
        negate_b = scale(c)?;
    }
    let (mut a, mut b_transposed) = (a, false);
    if matches!(a_type, MmaType::F16 | MmaType::Bf16) {
        if let WgmmaA::Descriptor { transposed, .. } = &mut a {
            *transposed = flag(c)?;
        }
        b_transposed = flag(c)?;
    }
    let wgmma = Wgmma { n, k, a_type, b_type, d_type, d, a, b, b_transposed, scale_d, negate_a, negate_b };
    Ok(Op::Wgmma(Box::new(wgmma)))
}

fn descriptor(c: &mut Cursor<'_>) -> Result<WgmmaA> {
    Ok(WgmmaA::Descriptor { desc: c.src(Type::B64)?, transposed: false })
}

/// `imm-scale`: 1, or -1 to negate.
fn scale(c: &mut Cursor<'_>) -> Result<bool> {
    match c.next()? {
        Operand::Int(1) => Ok(false),
        Operand::Int(value) if *value == u64::MAX || *value == 0xffff_ffff => Ok(true),
        _ => Err(c.error("the scale of an operand is 1 or -1")),
    }
}

/// `imm-trans`: 0 or 1.
fn flag(c: &mut Cursor<'_>) -> Result<bool> {
    match c.constant()? {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(c.error("the transposition of an operand is 0 or 1")),
    }
}
