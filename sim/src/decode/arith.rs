//! Arithmetic, comparisons, moves: what each lane computes by itself.

use super::cursor::Cursor;
use super::operands::Width;
use super::special::special;
use crate::alu;
use crate::fault::Result;
use crate::program::{AluFn, CarryOp, Op, Reg, Src};
use crate::syntax::ast::{Operand, Type};

const ZERO: Src = Src::Imm(0);

/// The operation that copies a value.
pub(super) fn copy(dst: Reg, src: Src) -> Op {
    Op::Alu { f: |a, _, _, _| a, dst, src: [src, ZERO, ZERO, ZERO] }
}

/// Everything that the table of arithmetic knows.
pub(super) fn table(c: &mut Cursor<'_>) -> Result<Op> {
    let words: Vec<&str> = c.ins.modifiers.iter().map(String::as_str).collect();
    let form = alu::lookup(&c.ins.opcode, &words, c.cx.arithmetic).ok_or_else(|| c.unknown())?;
    c.take_all();
    let wanted = usize::from(form.sources) + 1;
    if c.remaining() != wanted {
        return Err(c.error(format!("{wanted} operands are wanted, found {}", c.remaining())));
    }
    let width = if c.ins.opcode == "cvt" { Width::Wider } else { Width::Exact };
    let target = c.next()?;
    let (dst, bits) = match target {
        Operand::Name(name) => c.register(name, form.dst.bits(), width)?,
        other => (c.reg_of(other, form.dst.bits())?, form.dst.bits()),
    };
    let mut src = [ZERO; 4];
    for (slot, &ty) in src.iter_mut().zip(&form.src).take(form.sources.into()) {
        let operand = c.next()?;
        *slot = c.src_of(operand, ty, width)?;
    }
    let op = match form.inexact {
        Some(inexact) => Op::Approximate { f: form.f, inexact: Box::new(inexact), dst, src: [src[0], src[1]] },
        None => Op::Alu { f: form.f, dst, src },
    };
    match extension(form.dst, bits) {
        None => Ok(op),
        Some(f) => {
            c.cx.before.push(op);
            Ok(Op::Alu { f, dst, src: [Src::Reg(dst), ZERO, ZERO, ZERO] })
        }
    }
}

/// Fills a wider register with the sign of a result.
fn extension(ty: Type, bits: u32) -> Option<AluFn> {
    Some(match (ty, bits) {
        (Type::S8, 16) => |a, _, _, _| u64::from((a as i8 as i16).cast_unsigned()),
        (Type::S8, 32) => |a, _, _, _| u64::from((a as i8 as i32).cast_unsigned()),
        (Type::S16, 32) => |a, _, _, _| u64::from((a as i16 as i32).cast_unsigned()),
        (Type::S8, 64) => |a, _, _, _| (a as i8 as i64).cast_unsigned(),
        (Type::S16, 64) => |a, _, _, _| (a as i16 as i64).cast_unsigned(),
        (Type::S32, 64) => |a, _, _, _| (a as i32 as i64).cast_unsigned(),
        _ => return None,
    })
}

/// `add.cc`, `addc`, `sub.cc`, `subc`, `mad.cc`, `madc`.
pub(super) fn carry(c: &mut Cursor<'_>) -> Result<Op> {
    let opcode = c.ins.opcode.as_str();
    let reads = opcode.ends_with('c');
    let writes = c.take("cc");
    let high = c.take("hi");
    let op = match opcode.trim_end_matches('c') {
        "add" => CarryOp::Add,
        "sub" => CarryOp::Sub,
        _ if high => CarryOp::MadHi,
        _ => {
            c.need("lo")?;
            CarryOp::MadLo
        }
    };
    let ty = c.ty_of(&[Type::U32, Type::S32, Type::U64, Type::S64])?;
    if op == CarryOp::MadHi && ty.is_signed() {
        return Err(c.error("the high half of a signed product with carry is not supported"));
    }
    let dst = c.dst(ty.bits())?;
    let (a, b) = (c.src(ty)?, c.src(ty)?);
    let third = if matches!(op, CarryOp::MadLo | CarryOp::MadHi) { c.src(ty)? } else { ZERO };
    Ok(Op::Carry { dst, a, b, c: third, op, bits: if ty.bits() == 64 { 64 } else { 32 }, reads, writes })
}

/// `mov`: registers, constants, special registers, addresses, packing and unpacking.
pub(super) fn mov(c: &mut Cursor<'_>) -> Result<Op> {
    let ty = c.ty()?;
    let bits = ty.bits();
    if !matches!(bits, 16 | 32 | 64) || matches!(ty, Type::Tf32 | Type::E4m3x2 | Type::E5m2x2) {
        return Err(c.error(format!("type `.{}` is not allowed", ty.suffix())));
    }
    let target = c.next()?;
    if let Operand::Vector(parts) = target {
        return unpack(c, parts, ty);
    }
    let dst = c.reg_of(target, bits)?;
    let source = c.next()?;
    if let Operand::Vector(parts) = source {
        let (part, width) = part_type(c, parts.len(), ty)?;
        let parts = parts.iter().map(|p| c.src_of(p, part, Width::Exact)).collect::<Result<_>>()?;
        return Ok(Op::Pack { dst, parts, bits: width });
    }
    if let Operand::Name(name) = source
        && let Some((special, wanted)) = special(name)
    {
        if bits != wanted {
            return Err(c.error(format!("`{name}` has {wanted} bits")));
        }
        return Ok(Op::MovSpecial { dst, special });
    }
    let src = c.src_of(source, ty, Width::Exact)?;
    Ok(copy(dst, src))
}

fn unpack(c: &mut Cursor<'_>, parts: &[Operand], ty: Type) -> Result<Op> {
    let (part, bits) = part_type(c, parts.len(), ty)?;
    let dst = parts.iter().map(|p| c.reg_or_sink(p, part.bits())).collect::<Result<_>>()?;
    Ok(Op::Unpack { dst, src: c.src(ty)?, bits })
}

/// The type, and the bits, of one part of a value with this many parts.
fn part_type(c: &Cursor<'_>, parts: usize, ty: Type) -> Result<(Type, u8)> {
    match (ty.bits() as usize, parts) {
        (16, 2) | (32, 4) => Ok((Type::B8, 8)),
        (32, 2) | (64, 4) => Ok((Type::B16, 16)),
        (64, 2) => Ok((Type::B32, 32)),
        (bits, n) => Err(c.error(format!("{n} parts do not make {bits} bits"))),
    }
}
