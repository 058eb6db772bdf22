//! The registers that an operation reads and writes.

use crate::program::{Addr, BarOp, BulkDone, BulkRemote, FenceKind, MbarrierOp, Op, Reg, Src, VoteOp, WgmmaA};

/// What an operation does with a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RegisterUse {
    Read,
    Write,
    /// Both, at any time until the product is waited for.
    Accumulate,
}

/// Registers of an instruction, and whether each is written.
///
/// Accumulators of `wgmma` are left out. They may be in flight: a chain of products is in order.
pub(crate) fn registers(op: &Op) -> Vec<(Reg, bool)> {
    let mut found = Vec::new();
    visit(&mut op.clone(), &mut |reg, how| match how {
        RegisterUse::Read => found.push((*reg, false)),
        RegisterUse::Write => found.push((*reg, true)),
        RegisterUse::Accumulate => {}
    });
    found
}

/// Calls a function for each register of an operation.
pub(crate) fn visit(op: &mut Op, f: &mut dyn FnMut(&mut Reg, RegisterUse)) {
    let mut registers = Registers(f);
    match op {
        Op::Alu { dst, src, .. } => registers.read(src).write([dst]),
        Op::Approximate { dst, src, .. } => registers.read(src).write([dst]),
        Op::Setp { a, b, .. } => registers.read([a, b]),
        Op::Set { a, b, dst, .. } | Op::Selp { dst, a, b, .. } => registers.read([a, b]).write([dst]),
        Op::Carry { dst, a, b, c, .. } => registers.read([a, b, c]).write([dst]),
        Op::MovSpecial { dst, .. } | Op::ActiveMask { dst } => registers.write([dst]),
        Op::Pack { dst, parts, .. } => registers.read(parts).write([dst]),
        Op::Unpack { dst, src, .. } => registers.read([src]).write(dst.iter_mut().flatten()),
        Op::Elect { dst, mask, .. } => registers.read([mask]).write(dst),
        Op::Shfl { dst, src, lane, clamp, mask, .. } => registers.read([src, lane, clamp, mask]).write([dst]),
        Op::Vote { op: VoteOp::Ballot(dst), mask, .. } => registers.read([mask]).write([dst]),
        Op::Vote { mask, .. } => registers.read([mask]),
        Op::Match { dst, src, mask, .. } | Op::Redux { dst, src, mask, .. } => registers.read([src, mask]).write([dst]),
        Op::Load { access, dst, .. } => registers.read([&mut access.addr.base]).write(dst.iter_mut().flatten()),
        Op::Store { access, src } => registers.read([&mut access.addr.base]).read(src),
        Op::Atom { access, dst, b, c, .. } => registers.read([&mut access.addr.base, b, c]).write(dst),
        Op::Prefetch { access } => registers.read([&mut access.addr.base]),
        Op::CpAsync { shared, global, valid, .. } => registers.read([&mut shared.base, &mut global.base]).read(valid),
        Op::CpAsyncMbarrierArrive { addr, .. } => registers.read([&mut addr.base]),
        Op::IsSpace { src, .. } => registers.read([src]),
        Op::Mapa { dst, src, rank, .. } => registers.read([src, rank]).write([dst]),
        Op::Cvta { dst, src, .. } => registers.read([src]).write([dst]),
        Op::Bar { op: BarOp::RedPopc(dst, _), id, threads, .. } => registers.read([id]).read(threads).write([dst]),
        Op::Bar { id, threads, .. } => registers.read([id]).read(threads),
        Op::BarWarp { mask } => registers.read([mask]),
        Op::Mbarrier { op, addr, .. } => mbarrier(op, registers.read([&mut addr.base])),
        Op::Mma(m) => registers.read(&mut m.a).read(&mut m.b).read(&mut m.c).write(&mut m.d),
        Op::LdMatrix { dst, addr, .. } => registers.read([&mut addr.base]).write(dst),
        Op::StMatrix { src, addr, .. } => registers.read([&mut addr.base]).read(src),
        Op::Wgmma(w) => {
            let operands = match &mut w.a {
                WgmmaA::Registers(a) => a.as_mut_slice(),
                WgmmaA::Descriptor { desc, .. } => std::slice::from_mut(desc),
            };
            registers.read([&mut w.b]).read(operands).each(&mut w.d, RegisterUse::Accumulate)
        }
        Op::Bulk(b) => {
            let registers = registers.read([&mut b.shared.base]).read(&mut b.multicast);
            let registers = match &mut b.done {
                BulkDone::Mbarrier(addr) => registers.read([&mut addr.base]),
                BulkDone::Group => registers,
            };
            match &mut b.remote {
                BulkRemote::Flat { addr, bytes } => registers.read([&mut addr.base, bytes]),
                BulkRemote::Tensor { map, coordinates, im2col } => {
                    registers.read([&mut map.base]).read(coordinates).read(im2col.iter_mut().flatten())
                }
            }
        }
        Op::BulkPrefetch { map } => registers.read(map.iter_mut().map(|(map, _)| &mut map.base)),
        Op::Fence(FenceKind::MapAcquire(_, Addr { base, .. })) => registers.read([base]),
        Op::BranchIndex { index, .. } => registers.read([index]),
        Op::PredLogic { .. }
        | Op::CpAsyncCommit
        | Op::CpAsyncWait { .. }
        | Op::CpAsyncWaitAll
        | Op::Fence(_)
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
        | Op::Trap => &mut registers,
    };
}

fn mbarrier<'r, 'f>(op: &mut MbarrierOp, registers: &'r mut Registers<'f>) -> &'r mut Registers<'f> {
    match op {
        MbarrierOp::Init(n) | MbarrierOp::ExpectTx(n) | MbarrierOp::CompleteTx(n) => registers.read([n]),
        MbarrierOp::Inval => registers,
        MbarrierOp::Arrive { state, count, expect, .. } => registers.read([count]).read(expect).write(state),
        MbarrierOp::TestState { state, .. } => registers.read([state]),
        MbarrierOp::TestParity { parity, .. } => registers.read([parity]),
        MbarrierOp::PendingCount { dst, state } => registers.read([state]).write([dst]),
    }
}

/// Whom to tell of registers.
struct Registers<'f>(&'f mut dyn FnMut(&mut Reg, RegisterUse));

impl Registers<'_> {
    fn read<'s>(&mut self, sources: impl IntoIterator<Item = &'s mut Src>) -> &mut Self {
        for source in sources {
            if let Src::Reg(reg) = source {
                (self.0)(reg, RegisterUse::Read);
            }
        }
        self
    }

    fn write<'d>(&mut self, targets: impl IntoIterator<Item = &'d mut Reg>) -> &mut Self {
        self.each(targets, RegisterUse::Write)
    }

    fn each<'d>(&mut self, registers: impl IntoIterator<Item = &'d mut Reg>, how: RegisterUse) -> &mut Self {
        registers.into_iter().for_each(|reg| (self.0)(reg, how));
        self
    }
}
