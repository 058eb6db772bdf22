//! Instructions that the lanes of a warp execute together: shuffles, votes, matches, reductions.

use super::cursor::Cursor;
use crate::alu;
use crate::fault::Result;
use crate::program::{Op, ShflMode, VoteOp};
use crate::syntax::ast::Type;

/// `shfl.sync`.
pub(super) fn shfl(c: &mut Cursor<'_>) -> Result<Op> {
    c.need("sync")?;
    let modes = [("up", ShflMode::Up), ("down", ShflMode::Down), ("bfly", ShflMode::Bfly), ("idx", ShflMode::Idx)];
    let mode = c.choice("the mode", &modes)?;
    c.need("b32")?;
    let (first, second) = c.pair()?;
    let dst = c.reg_of(first, 32)?;
    let pred = second.map(|p| c.pred_or_sink(p)).transpose()?.flatten();
    let (src, lane) = (c.src(Type::B32)?, c.src(Type::B32)?);
    Ok(Op::Shfl { mode, dst, pred, src, lane, clamp: c.src(Type::B32)?, mask: c.src(Type::B32)? })
}

/// `vote.sync`.
pub(super) fn vote(c: &mut Cursor<'_>) -> Result<Op> {
    c.need("sync")?;
    let kind = c.word("the mode")?;
    let target = c.peek();
    let op = if kind == "ballot" {
        c.need("b32")?;
        VoteOp::Ballot(c.dst(32)?)
    } else {
        c.need("pred")?;
        c.next()?;
        let dst = target.map(|t| c.pred_of(t)).transpose()?;
        match (kind, dst) {
            ("all", Some(dst)) => VoteOp::All(dst),
            ("any", Some(dst)) => VoteOp::Any(dst),
            ("uni", Some(dst)) => VoteOp::Uni(dst),
            _ => return Err(c.unknown()),
        }
    };
    Ok(Op::Vote { op, src: c.pred_src()?, mask: c.src(Type::B32)? })
}

/// `match.any.sync`, `match.all.sync`.
pub(super) fn matching(c: &mut Cursor<'_>) -> Result<Op> {
    let all = c.choice("the mode", &[("any", false), ("all", true)])?;
    c.need("sync")?;
    let ty = c.ty_of(&[Type::B32, Type::B64])?;
    let (first, second) = c.pair()?;
    if second.is_some() && !all {
        return Err(c.error("only `.all` has a predicate"));
    }
    let dst = c.reg_of(first, 32)?;
    let pred = second.map(|p| c.pred_or_sink(p)).transpose()?.flatten();
    let bits = if ty == Type::B64 { 64 } else { 32 };
    Ok(Op::Match { all, dst, pred, src: c.src(ty)?, mask: c.src(Type::B32)?, bits })
}

/// `redux.sync`.
pub(super) fn redux(c: &mut Cursor<'_>) -> Result<Op> {
    c.need("sync")?;
    let op = c.word("the operation")?;
    let ty = c.ty()?;
    let f = alu::redux(op, ty).ok_or_else(|| c.unknown())?;
    Ok(Op::Redux { f, dst: c.dst(32)?, src: c.src(ty)?, mask: c.src(Type::B32)? })
}

/// `elect.sync`.
pub(super) fn elect(c: &mut Cursor<'_>) -> Result<Op> {
    c.need("sync")?;
    let (first, second) = c.pair()?;
    let dst = c.reg_or_sink(first, 32)?;
    let second = second.ok_or_else(|| c.error("a pair of a register and a predicate is wanted"))?;
    let pred = c.pred_or_sink(second)?;
    Ok(Op::Elect { dst, pred, mask: c.src(Type::B32)? })
}

/// `activemask`.
pub(super) fn activemask(c: &mut Cursor<'_>) -> Result<Op> {
    c.need("b32")?;
    Ok(Op::ActiveMask { dst: c.dst(32)? })
}
