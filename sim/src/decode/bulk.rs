//! `cp.async.bulk`, `cp.reduce.async.bulk` and their tensor forms.

use super::cursor::Cursor;
use super::memory::{ATOMS, has_atom, policy};
use crate::fault::Result;
use crate::program::{AtomOp, Bulk, BulkDirection, BulkDone, BulkRemote, Op, Src};
use crate::syntax::ast::{Space, Type};

/// `cp.async.bulk`, after `cp`.
pub(super) fn copy(c: &mut Cursor<'_>) -> Result<Op> {
    c.need_all(&["async", "bulk"])?;
    if c.next_is("commit_group") {
        return Ok(Op::BulkCommit);
    }
    if c.next_is("wait_group") {
        let read = c.take("read");
        return Ok(Op::BulkWait { n: c.constant()?, read });
    }
    if c.next_is("prefetch") {
        return prefetch(c);
    }
    if c.next_is("tensor") { tensor(c, false) } else { flat(c, false) }
}

/// `cp.reduce.async.bulk`, after `cp`.
pub(super) fn reduce(c: &mut Cursor<'_>) -> Result<Op> {
    c.need_all(&["reduce", "async", "bulk"])?;
    if c.next_is("tensor") { tensor(c, true) } else { flat(c, true) }
}

fn prefetch(c: &mut Cursor<'_>) -> Result<Op> {
    if c.next_is("tensor") {
        let rank = rank(c)?;
        c.need_all(&["L2", "global"])?;
        c.take("tile");
        let has_policy = c.take("L2::cache_hint");
        let (map, _) = c.tensor(rank)?;
        policy(c, has_policy)?;
        return Ok(Op::BulkPrefetch { map: Some((map, Space::Generic)) });
    }
    c.need_all(&["L2", "global"])?;
    let has_policy = c.take("L2::cache_hint");
    c.addr(Space::Global)?;
    c.src(Type::U32)?;
    policy(c, has_policy)?;
    Ok(Op::BulkPrefetch { map: None })
}

fn rank(c: &mut Cursor<'_>) -> Result<usize> {
    c.choice("the number of dimensions", &[("1d", 1), ("2d", 2), ("3d", 3), ("4d", 4), ("5d", 5)])
}

/// Destination and source space, in that order.
fn direction(c: &mut Cursor<'_>) -> Result<(BulkDirection, Space)> {
    let to = c.space();
    let from = c.space();
    match (to, from) {
        (Space::Shared | Space::SharedCluster, Space::Global) => Ok((BulkDirection::GlobalToShared, to)),
        (Space::Global, Space::Shared) => Ok((BulkDirection::SharedToGlobal, to)),
        (Space::SharedCluster, Space::Shared) => Ok((BulkDirection::SharedToCluster, to)),
        _ => Err(c.error("no bulk copy goes between these state spaces")),
    }
}

/// The modifier that says how completion is reported; true for an mbarrier.
fn completion(c: &mut Cursor<'_>, direction: BulkDirection) -> Result<bool> {
    let barrier = direction != BulkDirection::SharedToGlobal;
    c.need(if barrier { "mbarrier::complete_tx::bytes" } else { "bulk_group" })?;
    Ok(barrier)
}

/// The operation of a reduction; its type is read by the caller.
fn operation(c: &mut Cursor<'_>, reducing: bool) -> Result<Option<AtomOp>> {
    if !reducing {
        return Ok(None);
    }
    let op = c.choice("the operation", ATOMS)?;
    if matches!(op, AtomOp::Exch | AtomOp::Cas) {
        return Err(c.unknown());
    }
    Ok(Some(op))
}

fn flat(c: &mut Cursor<'_>, reducing: bool) -> Result<Op> {
    let (direction, to) = direction(c)?;
    if reducing && direction == BulkDirection::GlobalToShared {
        return Err(c.unknown());
    }
    let barrier = completion(c, direction)?;
    let multicast = direction == BulkDirection::GlobalToShared && c.take("multicast::cluster");
    let has_policy = direction != BulkDirection::SharedToCluster && c.take("L2::cache_hint");
    let reduce = match operation(c, reducing)? {
        None => None,
        Some(op) => {
            c.take("noftz");
            let ty = c.ty()?;
            if !has_atom(c, op, ty) && !halves(op, ty) {
                return Err(c.unknown());
            }
            Some((op, ty))
        }
    };
    let destination = c.addr(to)?;
    let from = if direction == BulkDirection::GlobalToShared { Space::Global } else { Space::Shared };
    let source = c.addr(from)?;
    let bytes = c.src(Type::U32)?;
    let (shared, addr) =
        if direction == BulkDirection::GlobalToShared { (destination, source) } else { (source, destination) };
    let done = if barrier { BulkDone::Mbarrier(c.addr(to)?) } else { BulkDone::Group };
    let multicast = mask(c, multicast)?;
    policy(c, has_policy)?;
    let remote = BulkRemote::Flat { addr, bytes };
    Ok(Op::Bulk(Box::new(Bulk { direction, shared, multicast, done, remote, reduce })))
}

/// Reductions of bulk copies that atomics do not have.
fn halves(op: AtomOp, ty: Type) -> bool {
    let min_max = matches!(op, AtomOp::Min | AtomOp::Max);
    let logic = matches!(op, AtomOp::And | AtomOp::Or | AtomOp::Xor);
    match ty {
        Type::F16 | Type::Bf16 => min_max || op == AtomOp::Add,
        Type::B32 | Type::B64 => logic,
        Type::S64 => min_max,
        _ => false,
    }
}

fn mask(c: &mut Cursor<'_>, present: bool) -> Result<Option<Src>> {
    if present { Ok(Some(c.src(Type::U16)?)) } else { Ok(None) }
}

fn tensor(c: &mut Cursor<'_>, reducing: bool) -> Result<Op> {
    let rank = rank(c)?;
    let (direction, to) = direction(c)?;
    if direction == BulkDirection::SharedToCluster || (reducing && direction == BulkDirection::GlobalToShared) {
        return Err(c.unknown());
    }
    let reduce = operation(c, reducing)?.map(|op| (op, Type::B8));
    let load = direction == BulkDirection::GlobalToShared;
    let im2col = c.one_of(&[("tile", false), (if load { "im2col" } else { "im2col_no_offs" }, true)]) == Some(true);
    if im2col && rank < 3 {
        return Err(c.error("`.im2col` has 3 dimensions or more"));
    }
    completion(c, direction)?;
    let multicast = load && c.take("multicast::cluster");
    if load {
        c.take("cta_group::1");
    }
    let has_policy = c.take("L2::cache_hint");
    let (shared, (map, coordinates)) = if load {
        (c.addr(to)?, c.tensor(rank)?)
    } else {
        let tensor = c.tensor(rank)?;
        (c.addr(Space::Shared)?, tensor)
    };
    let done = if load { BulkDone::Mbarrier(c.addr(to)?) } else { BulkDone::Group };
    let offsets = match (im2col, load) {
        (true, true) => Some(c.src_list(rank - 2, Type::U16)?),
        (true, false) => Some(Vec::new()),
        _ => None,
    };
    let multicast = mask(c, multicast)?;
    policy(c, has_policy)?;
    let remote = BulkRemote::Tensor { map, coordinates, im2col: offsets };
    Ok(Op::Bulk(Box::new(Bulk { direction, shared, multicast, done, remote, reduce })))
}
