//! Comparisons, selections and logic of predicates.

use super::cursor::Cursor;
use super::special::special;
use crate::alu;
use crate::fault::Result;
use crate::program::{AluFn, BoolOp, CompareFn, Op, PredOrImm, PredSrc, Special, Src};
use crate::syntax::ast::{Operand, Type};

const BOOLS: &[(&str, BoolOp)] = &[("and", BoolOp::And), ("or", BoolOp::Or), ("xor", BoolOp::Xor)];

/// The comparison of `setp` and `set`, with the operator that combines it.
fn comparison<'a>(c: &mut Cursor<'a>) -> Result<(&'a str, Option<BoolOp>)> {
    let cmp = c.word("the comparison")?;
    Ok((cmp, c.one_of(BOOLS)))
}

fn compare(c: &Cursor<'_>, cmp: &str, ty: Type, ftz: bool) -> Result<CompareFn> {
    let known = alu::compare(cmp, ty, ftz);
    known.ok_or_else(|| c.error(format!("there is no comparison `.{cmp}` of .{}", ty.suffix())))
}

/// The predicate to combine with, if there is an operator.
fn combined(c: &mut Cursor<'_>, op: Option<BoolOp>) -> Result<Option<(BoolOp, PredSrc)>> {
    op.map(|op| Ok((op, c.pred_src()?))).transpose()
}

/// `setp`.
pub(super) fn setp(c: &mut Cursor<'_>) -> Result<Op> {
    let (cmp, combine) = comparison(c)?;
    let ftz = c.take("ftz");
    let ty = c.ty()?;
    let (first, second) = c.pair()?;
    if matches!(ty, Type::F16x2 | Type::Bf16x2) {
        return packed(c, cmp, ty, ftz, (first, second), combine);
    }
    let f = compare(c, cmp, ty, ftz)?;
    let dst = c.pred_or_sink(first)?;
    let complement = second.map(|p| c.pred_or_sink(p)).transpose()?.flatten();
    let (a, b) = (c.src(ty)?, c.src(ty)?);
    let combine = combined(c, combine)?;
    Ok(Op::Setp { f, a, b, dst, complement, combine })
}

/// `setp` of two halves: one predicate for the low and one for the high.
fn packed(
    c: &mut Cursor<'_>,
    cmp: &str,
    ty: Type,
    ftz: bool,
    (low, high): (&Operand, Option<&Operand>),
    combine: Option<BoolOp>,
) -> Result<Op> {
    let half = if ty == Type::F16x2 { Type::F16 } else { Type::Bf16 };
    let f = compare(c, cmp, half, ftz)?;
    let high = high.ok_or_else(|| c.error("a pair of predicates is wanted"))?;
    let (low, high) = (c.pred_or_sink(low)?, c.pred_or_sink(high)?);
    let guard = c.ins.guard.as_ref().map(|(name, _)| Operand::Name(name.clone()));
    let (a, b) = (c.src(ty)?, c.src(ty)?);
    let combine = combined(c, combine)?;
    // The low half is written first, which neither the guard nor the combined predicate may see.
    let guard = guard.map(|g| c.pred_of(&g)).transpose()?;
    if low.is_some() && (low == guard || low == combine.map(|(_, p)| p.pred)) {
        return Err(c.error("a predicate both read and written is not supported here"));
    }
    let ([a0, b0], [a1, b1]) = halves(c, [a, b]);
    c.cx.before.push(Op::Setp { f, a: a0, b: b0, dst: low, complement: None, combine });
    Ok(Op::Setp { f, a: a1, b: b1, dst: high, complement: None, combine })
}

/// The low halves of packed operands, and the high ones.
fn halves(c: &mut Cursor<'_>, packed: [Src; 2]) -> ([Src; 2], [Src; 2]) {
    let mut part = |shift: u64| -> [Src; 2] {
        let f: AluFn = |a, shift, _, _| a >> (shift & 31) & 0xffff;
        packed.map(|value| {
            let dst = c.cx.names.temporary();
            c.cx.before.push(Op::Alu { f, dst, src: [value, Src::Imm(shift), Src::Imm(0), Src::Imm(0)] });
            Src::Reg(dst)
        })
    };
    (part(0), part(16))
}

/// `set`.
pub(super) fn set(c: &mut Cursor<'_>) -> Result<Op> {
    let (cmp, combine) = comparison(c)?;
    let ftz = c.take("ftz");
    let to = c.ty()?;
    let ty = c.ty()?;
    if to == ty && matches!(ty, Type::F16x2 | Type::Bf16x2) {
        return set_pair(c, cmp, ty, ftz, combine);
    }
    let f = compare(c, cmp, ty, ftz)?;
    let yes = match to {
        Type::U32 | Type::S32 => 0xffff_ffff,
        Type::U16 | Type::S16 => 0xffff,
        Type::F32 => u64::from(1f32.to_bits()),
        Type::F16 => 0x3c00,
        Type::Bf16 => 0x3f80,
        _ => return Err(c.error(format!("type `.{}` is not allowed", to.suffix()))),
    };
    let dst = c.dst(to.bits())?;
    let (a, b) = (c.src(ty)?, c.src(ty)?);
    let combine = combined(c, combine)?;
    Ok(Op::Set { f, a, b, dst, yes, combine })
}

/// `set` of two halves: a half of the result for each.
fn set_pair(c: &mut Cursor<'_>, cmp: &str, ty: Type, ftz: bool, combine: Option<BoolOp>) -> Result<Op> {
    let (half, yes) = if ty == Type::F16x2 { (Type::F16, 0x3c00) } else { (Type::Bf16, 0x3f80) };
    let f = compare(c, cmp, half, ftz)?;
    let dst = c.dst(ty.bits())?;
    let (a, b) = (c.src(ty)?, c.src(ty)?);
    let combine = combined(c, combine)?;
    let (low, high) = halves(c, [a, b]);
    let [low, high] = [low, high].map(|[a, b]| {
        let dst = c.cx.names.temporary();
        c.cx.before.push(Op::Set { f, a, b, dst, yes, combine });
        Src::Reg(dst)
    });
    let f: AluFn = |low, high, _, _| low | high << 16;
    Ok(Op::Alu { f, dst, src: [low, high, Src::Imm(0), Src::Imm(0)] })
}

/// `selp`.
pub(super) fn selp(c: &mut Cursor<'_>) -> Result<Op> {
    let ty = c.ty()?;
    if !matches!(ty.bits(), 16 | 32 | 64) {
        return Err(c.error(format!("type `.{}` is not allowed", ty.suffix())));
    }
    Ok(Op::Selp { dst: c.dst(ty.bits())?, a: c.src(ty)?, b: c.src(ty)?, pred: c.pred_src()? })
}

/// `testp`: the class of a float.
pub(super) fn testp(c: &mut Cursor<'_>) -> Result<Op> {
    let kind = c.word("the class")?;
    let ty = c.ty()?;
    let f = alu::testp(kind, ty).ok_or_else(|| c.unknown())?;
    let target = c.next()?;
    let dst = Some(c.pred_of(target)?);
    Ok(Op::Setp { f, a: c.src(ty)?, b: Src::Imm(0), dst, complement: None, combine: None })
}

/// `mov`, `and`, `or`, `xor`, `not` of predicates.
pub(super) fn logic(c: &mut Cursor<'_>) -> Result<Op> {
    c.need("pred")?;
    let target = c.next()?;
    let dst = c.pred_of(target)?;
    let yes = PredOrImm::Imm(true);
    if c.ins.opcode == "mov"
        && let Some(Operand::Name(name)) = c.peek()
        && name == "%is_explicit_cluster"
    {
        c.next()?;
        let reg = c.cx.names.temporary();
        c.cx.before.push(Op::MovSpecial { dst: reg, special: Special::IsExplicitCluster });
        let f: CompareFn = |a, b| a != b;
        return Ok(Op::Setp { f, a: Src::Reg(reg), b: Src::Imm(0), dst: Some(dst), complement: None, combine: None });
    }
    if let Some(Operand::Name(name)) = c.peek()
        && special(name).is_some()
    {
        return Err(c.error(format!("`{name}` is no predicate")));
    }
    let a = c.pred_or_imm()?;
    let (op, b) = match c.ins.opcode.as_str() {
        "mov" => (BoolOp::And, yes),
        "not" => (BoolOp::Xor, yes),
        "and" => (BoolOp::And, c.pred_or_imm()?),
        "or" => (BoolOp::Or, c.pred_or_imm()?),
        _ => (BoolOp::Xor, c.pred_or_imm()?),
    };
    Ok(Op::PredLogic { dst, a, op, b })
}
