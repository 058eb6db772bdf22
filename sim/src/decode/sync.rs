//! Barriers, fences and hints.

use super::cursor::Cursor;
use super::memory::{ORDERS, SCOPES, SIZES, hints, policy};
use crate::fault::Result;
use crate::program::{Addr, BarOp, BoolOp, FenceKind, Op, Order, Scope, Src};
use crate::syntax::ast::{Space, Type};

/// `bar`, `barrier`.
pub(super) fn bar(c: &mut Cursor<'_>) -> Result<Op> {
    let plain = c.ins.opcode == "bar";
    if plain && c.take("warp") {
        c.need("sync")?;
        return Ok(Op::BarWarp { mask: c.src(Type::B32)? });
    }
    if !plain && c.take("cluster") {
        return cluster(c);
    }
    c.take("cta");
    let aligned = c.take("aligned") || plain;
    match c.word("the kind of barrier")? {
        "sync" => {
            let (id, threads) = barrier(c, 0)?;
            Ok(Op::Bar { op: BarOp::Sync, id, threads, aligned })
        }
        "arrive" => {
            let (id, threads) = barrier(c, 0)?;
            if threads.is_none() {
                return Err(c.error("the number of threads is missing"));
            }
            Ok(Op::Bar { op: BarOp::Arrive, id, threads, aligned })
        }
        "red" => reduction(c, aligned),
        _ => Err(c.unknown()),
    }
}

/// The number of a barrier, and that of its threads if there is another operand before the remaining ones.
fn barrier(c: &mut Cursor<'_>, after: usize) -> Result<(Src, Option<Src>)> {
    let id = c.src(Type::U32)?;
    let threads = if c.remaining() > after { Some(c.src(Type::U32)?) } else { None };
    Ok((id, threads))
}

fn reduction(c: &mut Cursor<'_>, aligned: bool) -> Result<Op> {
    let op = c.word("the operation")?;
    let target = c.next()?;
    if op == "popc" {
        c.need("u32")?;
        let dst = c.reg_of(target, 32)?;
        let (id, threads) = barrier(c, 1)?;
        return Ok(Op::Bar { op: BarOp::RedPopc(dst, c.pred_src()?), id, threads, aligned });
    }
    let fold = match op {
        "and" => BoolOp::And,
        "or" => BoolOp::Or,
        _ => return Err(c.unknown()),
    };
    c.need("pred")?;
    let dst = c.pred_of(target)?;
    let (id, threads) = barrier(c, 1)?;
    Ok(Op::Bar { op: BarOp::RedBool(fold, dst, c.pred_src()?), id, threads, aligned })
}

fn cluster(c: &mut Cursor<'_>) -> Result<Op> {
    let arrive = c.choice("`.arrive` or `.wait`", &[("arrive", true), ("wait", false)])?;
    let aligned = c.take("aligned");
    if arrive {
        let order = c.one_of(&[("release", Order::Release), ("relaxed", Order::Relaxed)]).unwrap_or(Order::Release);
        return Ok(Op::ClusterArrive { order, aligned });
    }
    c.take("acquire");
    Ok(Op::ClusterWait { order: Order::Acquire, aligned })
}

/// `membar`.
pub(super) fn membar(c: &mut Cursor<'_>) -> Result<Op> {
    if c.take("proxy") {
        return proxy(c);
    }
    let scopes = [("cta", Scope::Cta), ("gl", Scope::Gpu), ("sys", Scope::System)];
    Ok(Op::Fence(FenceKind::Thread(Order::AcqRel, c.choice("the scope", &scopes)?)))
}

/// `fence`.
pub(super) fn fence(c: &mut Cursor<'_>) -> Result<Op> {
    if c.take("proxy") {
        return proxy(c);
    }
    if c.take("mbarrier_init") {
        c.need_all(&["release", "cluster"])?;
        return Ok(Op::Fence(FenceKind::MbarrierInit));
    }
    let order = if c.take("sc") { Order::AcqRel } else { c.one_of(ORDERS).unwrap_or(Order::AcqRel) };
    if order == Order::Relaxed {
        return Err(c.unknown());
    }
    Ok(Op::Fence(FenceKind::Thread(order, c.choice("the scope", SCOPES)?)))
}

fn proxy(c: &mut Cursor<'_>) -> Result<Op> {
    match c.word("the proxy")? {
        "async" => {
            let space = c.space();
            if matches!(space, Space::Const | Space::Local | Space::Param) {
                return Err(c.unknown());
            }
            Ok(Op::Fence(FenceKind::ProxyAsync(space)))
        }
        "alias" => Ok(Op::Fence(FenceKind::OtherProxy)),
        "tensormap::generic" => {
            let acquire = c.choice("the order", &[("acquire", true), ("release", false)])?;
            let scope = c.choice("the scope", SCOPES)?;
            if !acquire {
                return Ok(Op::Fence(FenceKind::MapRelease(scope)));
            }
            let map = c.addr(Space::Generic)?;
            if c.constant()? != 128 {
                return Err(c.error("the size is 128"));
            }
            Ok(Op::Fence(FenceKind::MapAcquire(scope, map)))
        }
        _ => Err(c.unknown()),
    }
}

/// `nanosleep`, `griddepcontrol`, `pmevent`: instructions that change no value.
pub(super) fn hint(c: &mut Cursor<'_>) -> Result<Op> {
    match c.ins.opcode.as_str() {
        "nanosleep" => {
            c.need("u32")?;
            c.src(Type::U32)?;
        }
        "griddepcontrol" => c.choice("the action", &[("wait", ()), ("launch_dependents", ())])?,
        _ => {
            c.take("mask");
            c.constant()?;
        }
    }
    Ok(Op::Hint)
}

/// `setmaxnreg`.
pub(super) fn setmaxnreg(c: &mut Cursor<'_>) -> Result<Op> {
    let increase = c.choice("the action", &[("inc", true), ("dec", false)])?;
    c.need_all(&["sync", "aligned", "u32"])?;
    let count = c.constant()?;
    if !(24..=256).contains(&count) || count % 8 != 0 {
        return Err(c.error(format!("{count} is no multiple of 8 from 24 to 256")));
    }
    Ok(Op::SetMaxNReg { count, increase })
}

/// `cp.async` and its relatives. The bulk forms are in `bulk`.
pub(super) fn cp_async(c: &mut Cursor<'_>) -> Result<Op> {
    c.need("async")?;
    if c.next_is("commit_group") {
        return Ok(Op::CpAsyncCommit);
    }
    if c.next_is("wait_group") {
        return Ok(Op::CpAsyncWait { n: c.constant()? });
    }
    if c.next_is("wait_all") {
        return Ok(Op::CpAsyncWaitAll);
    }
    if c.next_is("mbarrier") {
        c.need("arrive")?;
        let no_inc = c.take("noinc");
        let space = shared(c)?;
        c.need("b64")?;
        return Ok(Op::CpAsyncMbarrierArrive { addr: c.addr(space)?, no_inc });
    }
    let through_l1 = c.choice("`.ca` or `.cg`", &[("ca", true), ("cg", false)])?;
    let to = c.space();
    if to != Space::Shared || c.space() != Space::Global {
        return Err(c.error("the state spaces are `.shared.global`"));
    }
    let has_policy = hints(c, &[SIZES]);
    let (shared, global) = (c.addr(Space::Shared)?, c.addr(Space::Global)?);
    let bytes = match c.constant()? {
        16 => 16,
        8 if through_l1 => 8,
        4 if through_l1 => 4,
        n => return Err(c.error(format!("{n} bytes may not be copied"))),
    };
    let (mut valid, mut ignore) = (None, None);
    if c.remaining() > usize::from(has_policy) {
        if c.is_pred() { ignore = Some(c.pred_src()?) } else { valid = Some(c.src(Type::U32)?) }
    }
    policy(c, has_policy)?;
    Ok(Op::CpAsync { shared, global, bytes, valid, ignore })
}

/// The space of an mbarrier in the CTA's own shared memory.
fn shared(c: &mut Cursor<'_>) -> Result<Space> {
    match c.space() {
        Space::Shared => Ok(Space::Shared),
        _ => Err(c.error("only an mbarrier in `.shared` is supported")),
    }
}

/// A dummy address for operations that have none.
pub(super) const NOWHERE: Addr = Addr { base: Src::Imm(0), offset: 0 };
