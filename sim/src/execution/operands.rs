//! The registers that an instruction reads and writes.

use crate::program::{Addr, BarOp, BulkDone, BulkRemote, FenceKind, MbarrierOp, Op, Reg, Src, VoteOp, WgmmaA};

/// Registers of an instruction, and whether each is written.
pub(crate) fn registers(op: &Op) -> Vec<(Reg, bool)> {
    let (mut src, mut dst) = (Vec::new(), Vec::new());
    collect(op, &mut src, &mut dst);
    let read = src.iter().filter_map(|s| if let Src::Reg(r) = s { Some((*r, false)) } else { None });
    read.chain(dst.iter().map(|r| (*r, true))).collect()
}

fn collect(op: &Op, src: &mut Vec<Src>, dst: &mut Vec<Reg>) {
    let base = |a: &Addr| a.base;
    match op {
        Op::Alu { dst: d, src: s, .. } => {
            src.extend(s);
            dst.push(*d);
        }
        Op::Approximate { dst: d, src: s, .. } => {
            src.extend(s);
            dst.push(*d);
        }
        Op::Setp { a, b, .. } => src.extend([a, b]),
        Op::Set { a, b, dst: d, .. } | Op::Selp { dst: d, a, b, .. } => {
            src.extend([a, b]);
            dst.push(*d);
        }
        Op::Carry { dst: d, a, b, c, .. } => {
            src.extend([a, b, c]);
            dst.push(*d);
        }
        Op::MovSpecial { dst: d, .. } | Op::ActiveMask { dst: d } => dst.push(*d),
        Op::Pack { dst: d, parts, .. } => {
            src.extend(parts);
            dst.push(*d);
        }
        Op::Unpack { dst: d, src: s, .. } => {
            src.push(*s);
            dst.extend(d.iter().flatten());
        }
        Op::Elect { dst: d, mask, .. } => {
            src.push(*mask);
            dst.extend(d);
        }
        Op::Shfl { dst: d, src: s, lane, clamp, mask, .. } => {
            src.extend([s, lane, clamp, mask]);
            dst.push(*d);
        }
        Op::Vote { op, mask, .. } => {
            src.push(*mask);
            if let VoteOp::Ballot(d) = op {
                dst.push(*d);
            }
        }
        Op::Match { dst: d, src: s, mask, .. } | Op::Redux { dst: d, src: s, mask, .. } => {
            src.extend([s, mask]);
            dst.push(*d);
        }
        Op::Load { access, dst: d, .. } => {
            src.push(base(&access.addr));
            dst.extend(d.iter().flatten());
        }
        Op::Store { access, src: s } => {
            src.push(base(&access.addr));
            src.extend(s);
        }
        Op::Atom { access, dst: d, b, c, .. } => {
            src.extend([base(&access.addr), *b, *c]);
            dst.extend(d);
        }
        Op::Prefetch { access } => src.push(base(&access.addr)),
        Op::CpAsync { shared, global, valid, .. } => {
            src.extend([base(shared), base(global)]);
            src.extend(valid);
        }
        Op::CpAsyncMbarrierArrive { addr, .. } => src.push(base(addr)),
        Op::IsSpace { src: s, .. } => src.push(*s),
        Op::Mapa { dst: d, src: s, rank, .. } => {
            src.extend([s, rank]);
            dst.push(*d);
        }
        Op::Cvta { dst: d, src: s, .. } => {
            src.push(*s);
            dst.push(*d);
        }
        Op::Bar { op, id, threads, .. } => {
            src.push(*id);
            src.extend(threads);
            if let BarOp::RedPopc(d, _) = op {
                dst.push(*d);
            }
        }
        Op::BarWarp { mask } => src.push(*mask),
        Op::Mbarrier { op, addr, .. } => {
            src.push(base(addr));
            mbarrier(op, src, dst);
        }
        Op::Mma(m) => {
            src.extend(m.a.iter().chain(&m.b).chain(&m.c));
            dst.extend(&m.d);
        }
        Op::LdMatrix { dst: d, addr, .. } => {
            src.push(base(addr));
            dst.extend(d);
        }
        Op::StMatrix { src: s, addr, .. } => {
            src.push(base(addr));
            src.extend(s);
        }
        // The accumulators of a product may be in flight: a chain of products is in order.
        Op::Wgmma(w) => {
            src.push(w.b);
            match &w.a {
                WgmmaA::Registers(a) => src.extend(a),
                WgmmaA::Descriptor { desc, .. } => src.push(*desc),
            }
        }
        Op::Bulk(b) => {
            src.push(base(&b.shared));
            src.extend(b.multicast);
            if let BulkDone::Mbarrier(addr) = &b.done {
                src.push(base(addr));
            }
            match &b.remote {
                BulkRemote::Flat { addr, bytes } => src.extend([base(addr), *bytes]),
                BulkRemote::Tensor { map, coordinates, im2col } => {
                    src.push(base(map));
                    src.extend(coordinates.iter().chain(im2col.iter().flatten()));
                }
            }
        }
        Op::BulkPrefetch { map } => src.extend(map.iter().map(|(map, _)| base(map))),
        Op::Fence(kind) => {
            if let FenceKind::MapAcquire(_, map) = kind {
                src.push(base(map));
            }
        }
        Op::BranchIndex { index, .. } => src.push(*index),
        Op::PredLogic { .. }
        | Op::CpAsyncCommit
        | Op::CpAsyncWait { .. }
        | Op::CpAsyncWaitAll
        | Op::ClusterArrive { .. }
        | Op::ClusterWait { .. }
        | Op::Hint
        | Op::SetMaxNReg { .. }
        | Op::WgmmaFence
        | Op::WgmmaCommit
        | Op::WgmmaWait { .. }
        | Op::BulkCommit
        | Op::BulkWait { .. }
        | Op::Branch { .. }
        | Op::Exit
        | Op::Trap => {}
    }
}

fn mbarrier(op: &MbarrierOp, src: &mut Vec<Src>, dst: &mut Vec<Reg>) {
    match op {
        MbarrierOp::Init(n) | MbarrierOp::ExpectTx(n) | MbarrierOp::CompleteTx(n) => src.push(*n),
        MbarrierOp::Inval => {}
        MbarrierOp::Arrive { state, count, expect, .. } => {
            src.push(*count);
            src.extend(expect);
            dst.extend(state);
        }
        MbarrierOp::TestState { state, .. } => src.push(*state),
        MbarrierOp::TestParity { parity, .. } => src.push(*parity),
        MbarrierOp::PendingCount { dst: d, state } => {
            src.push(*state);
            dst.push(*d);
        }
    }
}
