//! Instructions that lanes of a warp execute together: `.aligned` ones, and those with a member mask.

use super::strand::Wait;
use super::warp::lanes;
use super::{At, Execution, Flow};
use crate::fault::{Fault, FaultKind, Result};
use crate::program::{Op, Src};

/// The lanes that an instruction needs.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Needs {
    /// All lanes that have not exited.
    Aligned,
    /// The lanes of a mask.
    Members(Src),
}

/// The lanes that an instruction needs before it executes, if any.
pub(crate) fn needs(op: &Op) -> Option<Needs> {
    match op {
        Op::Shfl { mask, .. }
        | Op::Vote { mask, .. }
        | Op::Match { mask, .. }
        | Op::Redux { mask, .. }
        | Op::Elect { mask, .. } => Some(Needs::Members(*mask)),
        Op::Bar { aligned: true, .. }
        | Op::ClusterArrive { aligned: true, .. }
        | Op::ClusterWait { aligned: true, .. }
        | Op::SetMaxNReg { .. }
        | Op::Mma(_)
        | Op::LdMatrix { .. }
        | Op::StMatrix { .. }
        | Op::Wgmma(_)
        | Op::WgmmaFence
        | Op::WgmmaCommit
        | Op::WgmmaWait { .. } => Some(Needs::Aligned),
        _ => None,
    }
}

impl Execution<'_> {
    /// The lanes that those of `exec` name. All of them have to name the same.
    pub(crate) fn members(&self, at: At, mask: Src, exec: u32) -> Result<u32> {
        let Some(warp) = self.warp(at) else { return Ok(0) };
        let rows = warp.row(mask);
        let mut needed = 0;
        for lane in lanes(exec) {
            let names = rows[lane] as u32;
            if names >> lane & 1 == 0 {
                let message = format!("lane {lane} is not in its own member mask {names:#010x}");
                return Err(Fault::new(FaultKind::Divergent, message));
            }
            if let Some(other) = lanes(names & exec).find(|&l| rows[l] as u32 != names) {
                let theirs = rows[other] as u32;
                let message = format!("lanes {lane} and {other} name different members: {names:#010x}, {theirs:#010x}");
                return Err(Fault::new(FaultKind::Divergent, message));
            }
            needed |= names & warp.strands.live();
        }
        Ok(needed)
    }

    /// Waits for the lanes that an instruction needs: `None` once all have arrived.
    pub(crate) fn converge(&mut self, at: At, needs: Needs, exec: u32) -> Result<Option<Flow>> {
        let Some(warp) = self.warp(at) else { return Ok(Some(Flow::Moved)) };
        let live = warp.strands.live();
        let Some(strand) = warp.strands.get(at.strand) else { return Ok(Some(Flow::Moved)) };
        let needed = match needs {
            // The usual case first: a whole warp.
            _ if exec == live && exec.count_ones() == 32 && matches!(needs, Needs::Aligned) => return Ok(None),
            Needs::Aligned => live,
            Needs::Members(mask) => self.members(at, mask, exec)?,
        };
        let missing = needed & !exec;
        if missing == 0 {
            return Ok(None);
        }
        if missing & strand.mask != 0 {
            let message = format!(
                "lanes {:#010x} do not execute an instruction that needs {needed:#010x}",
                missing & strand.mask
            );
            return Err(Fault::new(FaultKind::Divergent, message));
        }
        let others = |s: &super::strand::Strand| s.pc == strand.pc && matches!(s.wait, Wait::Converge { .. });
        let Some(warp) = self.warp_mut(at) else { return Ok(Some(Flow::Moved)) };
        if let Some(other) = warp.strands.list().iter().position(others) {
            warp.strands.merge(at.strand, other);
            return Ok(Some(Flow::Moved));
        }
        let aligned = matches!(needs, Needs::Aligned);
        Ok(Some(self.block(at, exec, Wait::Converge { needed, aligned })))
    }

    /// Blocks the lanes of `exec`. Lanes of the strand that a guard excludes continue.
    pub(crate) fn block(&mut self, at: At, exec: u32, wait: Wait) -> Flow {
        let Some(warp) = self.warp_mut(at) else { return Flow::Moved };
        let Some(strand) = warp.strands.get(at.strand) else { return Flow::Moved };
        if exec == strand.mask {
            warp.strands.set_wait(at.strand, wait);
            return Flow::Blocked;
        }
        let parts = [(exec, strand.pc), (strand.mask & !exec, strand.pc + 1)];
        warp.strands.split(at.strand, &parts, Some(strand.pc + 1));
        Flow::Moved
    }
}
