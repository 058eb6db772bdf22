//! One instruction that reaches beyond its warp's registers.

use super::converge;
use super::{At, Execution, Flow, exchange};
use crate::fault::{Fault, FaultKind, Result};
use crate::program::{FenceKind, MbarrierOp, Op};
use crate::stats::InstructionClass;

impl Execution<'_> {
    /// Executes the instruction a strand is at.
    pub(super) fn step(&mut self, at: At) -> Result<Flow> {
        let program = self.program;
        let Some(warp) = self.warp(at) else { return Ok(Flow::Moved) };
        let Some(strand) = warp.strands.get(at.strand) else { return Ok(Flow::Moved) };
        let Some(instr) = program.code.get(strand.pc as usize) else {
            // Past the last instruction a thread ends.
            return self.exit(at, strand.mask);
        };
        let exec = warp.guarded(instr, strand.mask);
        if exec == 0 {
            return Ok(Flow::Next);
        }
        if let Some(needs) = converge::needs(&instr.op)
            && let Some(flow) = self.converge(at, needs, exec)?
        {
            return Ok(flow);
        }
        self.spent.add(instr.line, InstructionClass::of(&instr.op), exec);
        let flow = self.perform(at, exec, &instr.op)?;
        // Whatever is not an unmet condition is progress.
        if flow != Flow::Spin && changes(&instr.op) {
            self.futile = 0;
        }
        Ok(flow)
    }

    fn perform(&mut self, at: At, exec: u32, op: &Op) -> Result<Flow> {
        match op {
            Op::Load { access, dst, extend } => self.load(at, exec, access, dst, *extend),
            Op::Store { access, src } => self.store(at, exec, access, src),
            Op::Atom { access, op, ty, dst, b, c } => self.atom(at, exec, access, (*op, *ty, *dst, [*b, *c])),
            Op::Prefetch { access } => self.prefetch(at, exec, access),
            Op::Shfl { .. } | Op::Vote { .. } | Op::Match { .. } | Op::Redux { .. } | Op::Elect { .. } => {
                let Some(warp) = self.warp_mut(at) else { return Ok(Flow::Moved) };
                exchange::exchange(warp, op, exec)?;
                Ok(Flow::Next)
            }
            Op::CpAsync { shared, global, bytes, valid, ignore } => {
                self.cp_async(at, exec, [shared, global], *bytes, (*valid, *ignore))
            }
            Op::CpAsyncCommit => self.cp_async_commit(at, exec),
            Op::CpAsyncWait { n } => self.cp_async_wait(at, exec, Some(*n)),
            Op::CpAsyncWaitAll => self.cp_async_wait(at, exec, None),
            Op::CpAsyncMbarrierArrive { addr, no_inc } => self.cp_async_arrive(at, exec, addr, *no_inc),
            Op::Mbarrier { op, addr, order, .. } => self.mbarrier(at, exec, op, addr, *order),
            Op::Bulk(spec) => self.bulk(at, exec, spec),
            Op::BulkPrefetch { map: Some((map, space)) } => self.prefetch_map(at, exec, map, *space),
            Op::BulkCommit => self.bulk_commit(at, exec),
            Op::BulkWait { n, read } => self.bulk_wait(at, exec, *n, *read),
            Op::Bar { op, id, threads, .. } => self.bar(at, exec, *op, *id, *threads),
            Op::BarWarp { mask } => self.bar_warp(at, exec, *mask),
            Op::ClusterArrive { order, .. } => self.cluster_arrive(at, exec, *order),
            Op::ClusterWait { order, .. } => self.cluster_wait(at, exec, *order),
            Op::Fence(kind) => self.fence(at, exec, *kind),
            Op::Mma(spec) => self.mma(at, exec, spec),
            Op::LdMatrix { dst, addr, space, transposed } => self.ldmatrix(at, exec, dst, (addr, *space), *transposed),
            Op::StMatrix { src, addr, space, transposed } => self.stmatrix(at, exec, src, (addr, *space), *transposed),
            Op::Wgmma(spec) => self.wgmma(at, exec, spec),
            Op::WgmmaFence => self.wgmma_fence(at),
            Op::WgmmaCommit => self.wgmma_commit(at),
            Op::WgmmaWait { n } => self.wgmma_wait(at, *n),
            Op::BranchIndex { index, targets, uniform } => self.branch_index(at, exec, *index, targets, *uniform),
            Op::Exit => self.exit(at, exec),
            Op::Trap => Err(Fault::new(FaultKind::Trap, "the kernel traps")),
            Op::SetMaxNReg { .. } => Ok(Flow::Next),
            _ => Err(Fault::new(FaultKind::Syntax, "an instruction that the simulator does not execute")),
        }
    }

    /// Fences of memory and between proxies.
    fn fence(&mut self, at: At, exec: u32, kind: FenceKind) -> Result<Flow> {
        for lane in super::warp::lanes(exec) {
            let thread = self.thread(at, lane);
            match kind {
                FenceKind::Thread(_, scope) => self.clocks.fence(thread, scope),
                FenceKind::ProxyAsync(space) => self.clocks.proxy_fence_of(thread, space),
                FenceKind::MbarrierInit => self.clocks.init_fence(thread),
                FenceKind::MapRelease(scope) => {
                    self.clocks.release_maps(thread);
                    self.clocks.fence(thread, scope);
                }
                FenceKind::MapAcquire(scope, map) => {
                    self.clocks.fence(thread, scope);
                    self.acquire_map(at, lane, &map)?;
                }
                FenceKind::OtherProxy => {}
            }
        }
        Ok(Flow::Next)
    }
}

/// True if other threads may see that an instruction was executed, so that waiting for them can succeed.
fn changes(op: &Op) -> bool {
    !matches!(
        op,
        Op::Load { .. }
            | Op::Prefetch { .. }
            | Op::Fence(_)
            | Op::Shfl { .. }
            | Op::Vote { .. }
            | Op::Match { .. }
            | Op::Redux { .. }
            | Op::Elect { .. }
            | Op::BarWarp { .. }
            | Op::BranchIndex { .. }
            | Op::Mbarrier {
                op: MbarrierOp::TestState { .. } | MbarrierOp::TestParity { .. } | MbarrierOp::PendingCount { .. },
                ..
            }
    )
}
