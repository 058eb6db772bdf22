//! Loads, stores, atomics, prefetches and addresses.

use super::arith::copy;
use super::cursor::Cursor;
use super::operands::Width;
use crate::alu;
use crate::fault::Result;
use crate::program::{Access, AtomOp, Extend, Op, Order, Reg, Scope, Src};
use crate::syntax::ast::{Operand, Space, Type};

/// Caching and eviction hints, which change nothing that a program may see.
const HINTS: &[&str] = &[
    "L1::evict_normal",
    "L1::evict_unchanged",
    "L1::evict_first",
    "L1::evict_last",
    "L1::no_allocate",
    "L2::evict_normal",
    "L2::evict_first",
    "L2::evict_last",
];
/// How loads and stores are cached.
const LOAD_CACHES: &[&str] = &["ca", "cg", "cs", "lu", "cv", "unified"];
const STORE_CACHES: &[&str] = &["wb", "cg", "cs", "wt"];
/// How much of the second level a load prefetches.
pub(super) const SIZES: &[&str] = &["L2::64B", "L2::128B", "L2::256B"];

/// Scopes by their words.
pub(super) const SCOPES: &[(&str, Scope)] =
    &[("cta", Scope::Cta), ("cluster", Scope::Cluster), ("gpu", Scope::Gpu), ("sys", Scope::System)];

/// Memory orders by their words.
pub(super) const ORDERS: &[(&str, Order)] = &[
    ("relaxed", Order::Relaxed),
    ("acquire", Order::Acquire),
    ("release", Order::Release),
    ("acq_rel", Order::AcqRel),
];

/// Consumes the hints that are present. True if the last operand of the instruction is a cache policy.
pub(super) fn hints(c: &mut Cursor<'_>, tables: &[&[&str]]) -> bool {
    for hint in tables.iter().copied().flatten() {
        c.take(hint);
    }
    c.take("L2::cache_hint")
}

/// The cache policy of `.L2::cache_hint`, whose value changes nothing.
pub(super) fn policy(c: &mut Cursor<'_>, present: bool) -> Result<()> {
    if present {
        c.src(Type::B64)?;
    }
    Ok(())
}

/// Records an access of shared or global memory in the program's tracking granularity.
fn note(c: &mut Cursor<'_>, space: Space, bytes: u32) {
    if matches!(space, Space::Generic | Space::Global | Space::Shared | Space::SharedCluster) {
        c.cx.grain = c.cx.grain.min(bytes.max(1));
    }
}

/// The order and scope of `ld` and `st`.
fn ordering(c: &mut Cursor<'_>, allowed: &[(&str, Order)]) -> Result<(Order, Scope)> {
    if c.take("weak") {
        return Ok((Order::Weak, Scope::Cta));
    }
    if c.take("volatile") {
        return Ok((Order::Relaxed, Scope::System));
    }
    if c.take("mmio") {
        c.need_all(&["relaxed", "sys"])?;
        return Ok((Order::Relaxed, Scope::System));
    }
    match c.one_of(allowed) {
        None => Ok((Order::Weak, Scope::Cta)),
        Some(order) => Ok((order, c.choice("the scope", SCOPES)?)),
    }
}

/// Elements and their type.
fn shape(c: &mut Cursor<'_>) -> Result<(u8, Type)> {
    let count = c.one_of(&[("v2", 2), ("v4", 4), ("v8", 8)]).unwrap_or(1);
    let ty = c.ty()?;
    let scalar = matches!(ty.bits(), 8 | 16 | 32 | 64) && (!ty.is_float() || matches!(ty, Type::F32 | Type::F64));
    if !scalar || ty.bits() * u32::from(count) > 256 {
        return Err(c.error(format!("type `.{}` is not allowed", ty.suffix())));
    }
    Ok((count, ty))
}

/// How wide the registers of loads and stores may be: exact for floats, possibly wider for other types.
fn width(ty: Type) -> Width {
    if ty.is_float() { Width::Exact } else { Width::Wider }
}

/// `ld`, `ldu`.
pub(super) fn load(c: &mut Cursor<'_>) -> Result<Op> {
    let (order, scope) = ordering(c, &[("relaxed", Order::Relaxed), ("acquire", Order::Acquire)])?;
    let space = c.space();
    let non_coherent = c.take("nc");
    let has_policy = hints(c, &[LOAD_CACHES, HINTS, SIZES]);
    let (count, ty) = shape(c)?;
    let targets = vector(c, count)?;
    let mut widest = 0;
    let mut dst = Vec::with_capacity(targets.len());
    for target in targets {
        let Operand::Name(name) = target else {
            dst.push(c.reg_or_sink(target, ty.bits())?);
            continue;
        };
        let (reg, bits) = c.register(name, ty.bits(), width(ty))?;
        if widest != 0 && widest != bits {
            return Err(c.error("the registers of a vector differ in width"));
        }
        widest = bits;
        dst.push(Some(reg));
    }
    let addr = c.addr(space)?;
    policy(c, has_policy)?;
    note(c, space, ty.bytes());
    let extend = if ty.is_signed() && widest > ty.bits() { Extend::Sign(bytes(widest / 8)) } else { Extend::Zero };
    let access = Access { space, addr, bytes: bytes(ty.bytes()), count, order, scope, non_coherent };
    Ok(Op::Load { access, dst, extend })
}

fn bytes(n: u32) -> u8 {
    u8::try_from(n).unwrap_or(u8::MAX)
}

/// The next operand, as this many elements.
fn vector<'a>(c: &mut Cursor<'a>, count: u8) -> Result<&'a [Operand]> {
    let operand = c.next()?;
    let list = Cursor::elements(operand);
    let braces = matches!(operand, Operand::Vector(_));
    if list.len() != usize::from(count) || (count > 1 && !braces) {
        return Err(c.error(format!("a vector of {count} is wanted")));
    }
    Ok(list)
}

/// `st`.
pub(super) fn store(c: &mut Cursor<'_>) -> Result<Op> {
    let (order, scope) = ordering(c, &[("relaxed", Order::Relaxed), ("release", Order::Release)])?;
    let space = c.space();
    match space {
        Space::Const => return Err(c.error("this state space may not be written")),
        Space::Param => return Err(c.error("parameters of calls are not supported: functions must be inlined")),
        _ => {}
    }
    let has_policy = hints(c, &[STORE_CACHES, HINTS]);
    let (count, ty) = shape(c)?;
    let addr = c.addr(space)?;
    let src = vector(c, count)?.iter().map(|s| c.src_of(s, ty, width(ty))).collect::<Result<_>>()?;
    policy(c, has_policy)?;
    note(c, space, ty.bytes());
    let access = Access { space, addr, bytes: bytes(ty.bytes()), count, order, scope, non_coherent: false };
    Ok(Op::Store { access, src })
}

/// Operations of atomics by their words.
pub(super) const ATOMS: &[(&str, AtomOp)] = &[
    ("exch", AtomOp::Exch),
    ("cas", AtomOp::Cas),
    ("and", AtomOp::And),
    ("or", AtomOp::Or),
    ("xor", AtomOp::Xor),
    ("add", AtomOp::Add),
    ("inc", AtomOp::Inc),
    ("dec", AtomOp::Dec),
    ("min", AtomOp::Min),
    ("max", AtomOp::Max),
];

/// True if the ISA has an atomic operation on a type.
pub(super) fn has_atom(c: &Cursor<'_>, op: AtomOp, ty: Type) -> bool {
    alu::atom(op, ty, c.cx.arithmetic).is_some()
}

/// `atom`, `red`.
pub(super) fn atom(c: &mut Cursor<'_>) -> Result<Op> {
    let order = c.one_of(ORDERS).unwrap_or(Order::Relaxed);
    let scope = c.one_of(SCOPES).unwrap_or(Scope::Gpu);
    let space = c.space();
    if matches!(space, Space::Const | Space::Param | Space::Local) {
        return Err(c.error("this state space has no atomics"));
    }
    let op = c.choice("the operation", ATOMS)?;
    c.take("noftz");
    let has_policy = hints(c, &[]);
    let count = c.one_of(&[("v2", 2), ("v4", 4), ("v8", 8)]).unwrap_or(1);
    let ty = c.ty()?;
    let returns = c.ins.opcode == "atom";
    let vectors = space == Space::Global && ty.is_float() && ty.bits() * u32::from(count) <= 128;
    if !has_atom(c, op, ty) || (!returns && matches!(op, AtomOp::Exch | AtomOp::Cas)) || (count > 1 && !vectors) {
        return Err(c.unknown());
    }
    let mut dst = Vec::new();
    if returns {
        dst = vector(c, count)?.iter().map(|d| c.reg_or_sink(d, ty.bits())).collect::<Result<_>>()?;
    }
    let addr = c.addr(space)?;
    let b = vector(c, count)?.iter().map(|s| c.src_of(s, ty, Width::Exact)).collect::<Result<Vec<_>>>()?;
    let third = if op == AtomOp::Cas { c.src(ty)? } else { Src::Imm(0) };
    policy(c, has_policy)?;
    note(c, space, ty.bytes());
    let access = Access { space, addr, bytes: bytes(ty.bytes()), count: 1, order, scope, non_coherent: false };
    let old = dst.first().copied().flatten();
    match b[..] {
        [b] => Ok(Op::Atom { access, op, ty, dst: old, b, c: third }),
        _ => Ok(each(c, Op::Atom { access, op, ty, dst: None, b: Src::Imm(0), c: third }, &dst, &b)),
    }
}

/// An atomic on a vector, which is one atomic for each element. Results are written to their registers after the last.
fn each(c: &mut Cursor<'_>, model: Op, results: &[Option<Reg>], sources: &[Src]) -> Op {
    let mut copies = Vec::new();
    let Op::Atom { access, op, ty, c: third, .. } = model else { return model };
    for (i, &b) in sources.iter().enumerate() {
        let mut access = access;
        access.addr.offset = access.addr.offset.wrapping_add((i as i64).wrapping_mul(i64::from(access.bytes)));
        let dst = results.get(i).copied().flatten().map(|result| {
            let old = c.cx.names.temporary();
            copies.push(copy(result, Src::Reg(old)));
            old
        });
        c.cx.before.push(Op::Atom { access, op, ty, dst, b, c: third });
    }
    c.cx.before.append(&mut copies);
    c.cx.before.pop().unwrap_or(Op::Hint)
}

/// `prefetch`, `prefetchu`, `applypriority`, `discard`.
pub(super) fn prefetch(c: &mut Cursor<'_>) -> Result<Op> {
    let space = c.space();
    if c.take("tensormap") {
        return Ok(Op::BulkPrefetch { map: Some((c.addr(space)?, space)) });
    }
    let levels: &[(&str, ())] = match c.ins.opcode.as_str() {
        "prefetch" => &[("L1", ()), ("L2", ()), ("L2::evict_last", ()), ("L2::evict_normal", ())],
        "prefetchu" => &[("L1", ())],
        "discard" => &[("L2", ())],
        _ => &[("L2::evict_normal", ())],
    };
    c.choice("the level", levels)?;
    let addr = c.addr(space)?;
    if matches!(c.ins.opcode.as_str(), "applypriority" | "discard") && c.constant()? != 128 {
        return Err(c.error("the size is 128"));
    }
    let (order, scope) = (Order::Relaxed, Scope::Cta);
    Ok(Op::Prefetch { access: Access { space, addr, bytes: 1, count: 1, order, scope, non_coherent: false } })
}

/// `createpolicy`: a policy is a number that nothing reads.
pub(super) fn createpolicy(c: &mut Cursor<'_>) -> Result<Op> {
    let kind = c.word("the kind")?;
    let space = c.space();
    let range = kind == "range";
    if !range && space != Space::Generic {
        return Err(c.unknown());
    }
    if kind == "cvt" {
        c.need("L2")?;
    }
    while c.word_if(|word| word.starts_with("L2::")) {}
    c.need("b64")?;
    let dst = c.dst(64)?;
    match kind {
        "fractional" => {
            if c.remaining() > 0 {
                c.src(Type::F32)?;
            }
        }
        "range" => {
            c.addr(space)?;
            c.src(Type::U32)?;
            c.src(Type::U32)?;
        }
        "cvt" => drop(c.src(Type::B64)?),
        _ => return Err(c.unknown()),
    }
    Ok(copy(dst, Src::Imm(0)))
}

/// `isspacep`.
pub(super) fn isspacep(c: &mut Cursor<'_>) -> Result<Op> {
    let space = c.space();
    if space == Space::Generic {
        return Err(c.error("the state space is missing"));
    }
    let target = c.next()?;
    Ok(Op::IsSpace { dst: c.pred_of(target)?, src: c.src(Type::U64)?, space })
}

/// `cvta`, `cvta.to`.
pub(super) fn cvta(c: &mut Cursor<'_>) -> Result<Op> {
    let to_generic = !c.take("to");
    let space = c.space();
    if space == Space::Generic {
        return Err(c.error("the state space is missing"));
    }
    let ty = c.ty_of(&[Type::U32, Type::U64])?;
    Ok(Op::Cvta { dst: c.dst(ty.bits())?, src: c.src(ty)?, space, to_generic })
}

/// `mapa`.
pub(super) fn mapa(c: &mut Cursor<'_>) -> Result<Op> {
    let generic = match c.space() {
        Space::Generic => true,
        Space::SharedCluster => false,
        _ => return Err(c.error("the state space is `.shared::cluster` or none")),
    };
    let ty = c.ty_of(&[Type::U32, Type::U64])?;
    Ok(Op::Mapa { dst: c.dst(ty.bits())?, src: c.src(ty)?, rank: c.src(Type::U32)?, generic })
}
