//! Decodes `mbarrier.*`: barriers in shared memory that count arrivals and bytes.

use super::cursor::Cursor;
use super::memory::SCOPES;
use super::sync::NOWHERE;
use crate::fault::Result;
use crate::program::{MbarrierOp, Op, Order, Scope, Src};
use crate::syntax::ast::{Space, Type};

/// Any operation on an mbarrier.
pub(super) fn mbarrier(c: &mut Cursor<'_>) -> Result<Op> {
    let kind = c.word("the operation")?;
    match kind {
        "init" | "inval" => plain(c, kind),
        "arrive" => arrive(c, false),
        "arrive_drop" => arrive(c, true),
        "expect_tx" | "complete_tx" => transaction(c, kind),
        "test_wait" => wait(c, false),
        "try_wait" => wait(c, true),
        "pending_count" => {
            c.need("b64")?;
            let op = MbarrierOp::PendingCount { dst: c.dst(32)?, state: c.src(Type::B64)? };
            Ok(Op::Mbarrier { op, addr: NOWHERE, cluster: false, order: Order::Relaxed, scope: Scope::Cta })
        }
        _ => Err(c.unknown()),
    }
}

/// True for `.shared::cluster`.
fn place(c: &mut Cursor<'_>, remote: bool) -> Result<bool> {
    match c.space() {
        Space::Shared => Ok(false),
        Space::SharedCluster if remote => Ok(true),
        Space::Generic => Err(c.error("generic addresses of an mbarrier are not supported")),
        _ => Err(c.unknown()),
    }
}

fn space(cluster: bool) -> Space {
    if cluster { Space::SharedCluster } else { Space::Shared }
}

fn plain(c: &mut Cursor<'_>, kind: &str) -> Result<Op> {
    place(c, false)?;
    c.need("b64")?;
    let addr = c.addr(Space::Shared)?;
    let op = if kind == "init" { MbarrierOp::Init(c.src(Type::U32)?) } else { MbarrierOp::Inval };
    Ok(Op::Mbarrier { op, addr, cluster: false, order: Order::Weak, scope: Scope::Cta })
}

fn arrive(c: &mut Cursor<'_>, drop: bool) -> Result<Op> {
    let incomplete = c.take("noComplete");
    let expects = c.take("expect_tx");
    let order = c.one_of(&[("release", Order::Release), ("relaxed", Order::Relaxed)]).unwrap_or(Order::Release);
    let cluster = place(c, true)?;
    let scope = c.one_of(&SCOPES[..2]).unwrap_or(Scope::Cta);
    c.need("b64")?;
    let target = c.next()?;
    let state = c.reg_or_sink(target, 64)?;
    if cluster && state.is_some() {
        return Err(c.error("an arrival in `.shared::cluster` returns no state: `_` is wanted"));
    }
    let addr = c.addr(space(cluster))?;
    let one = Src::Imm(1);
    let (count, expect) = if expects {
        (one, Some(c.src(Type::U32)?))
    } else if incomplete || c.remaining() > 0 {
        (c.src(Type::U32)?, None)
    } else {
        (one, None)
    };
    Ok(Op::Mbarrier { op: MbarrierOp::Arrive { state, count, expect, drop }, addr, cluster, order, scope })
}

fn transaction(c: &mut Cursor<'_>, kind: &str) -> Result<Op> {
    c.take("relaxed");
    let cluster = place(c, true)?;
    let scope = c.one_of(&SCOPES[..2]).unwrap_or(Scope::Cta);
    c.need("b64")?;
    let addr = c.addr(space(cluster))?;
    let bytes = c.src(Type::U32)?;
    let op = if kind == "expect_tx" { MbarrierOp::ExpectTx(bytes) } else { MbarrierOp::CompleteTx(bytes) };
    Ok(Op::Mbarrier { op, addr, cluster, order: Order::Relaxed, scope })
}

fn wait(c: &mut Cursor<'_>, suspend: bool) -> Result<Op> {
    let parity = c.take("parity");
    let order = c.one_of(&[("acquire", Order::Acquire), ("relaxed", Order::Relaxed)]).unwrap_or(Order::Acquire);
    place(c, false)?;
    let scope = c.one_of(&SCOPES[..2]).unwrap_or(Scope::Cta);
    c.need("b64")?;
    let target = c.next()?;
    let done = c.pred_of(target)?;
    let addr = c.addr(Space::Shared)?;
    let op = if parity {
        MbarrierOp::TestParity { done, parity: c.src(Type::U32)?, suspend }
    } else {
        MbarrierOp::TestState { done, state: c.src(Type::B64)?, suspend }
    };
    if suspend && c.remaining() > 0 {
        c.src(Type::U32)?;
    }
    Ok(Op::Mbarrier { op, addr, cluster: false, order, scope })
}
