//! Jumps by a table, exits, traps.

use super::warp::lanes;
use super::{At, Execution, Flow};
use crate::fault::{Fault, FaultKind, Result};
use crate::program::Src;

impl Execution<'_> {
    /// `brx.idx`.
    pub(crate) fn branch_index(
        &mut self,
        at: At,
        exec: u32,
        index: Src,
        targets: &[u32],
        uniform: bool,
    ) -> Result<Flow> {
        let program = self.program;
        let Some(warp) = self.warp_mut(at) else { return Ok(Flow::Moved) };
        let Some(strand) = warp.strands.get(at.strand) else { return Ok(Flow::Moved) };
        let row = warp.row(index);
        let mut parts: Vec<(u32, u32)> = Vec::new();
        if strand.mask & !exec != 0 {
            parts.push((strand.mask & !exec, strand.pc + 1));
        }
        for lane in lanes(exec) {
            let Some(&target) = targets.get(row[lane] as u32 as usize) else {
                let message = format!("index {} of a table of {} targets", row[lane] as u32, targets.len());
                return Err(Fault::new(FaultKind::Illegal, message));
            };
            match parts.iter_mut().find(|p| p.1 == target) {
                Some(part) => part.0 |= 1 << lane,
                None => parts.push((1 << lane, target)),
            }
        }
        if uniform && parts.len() > 1 {
            return Err(Fault::new(FaultKind::Divergent, "lanes of a warp part at a brx.idx.uni"));
        }
        let meet = program.reconverge.get(strand.pc as usize).copied().flatten();
        // One target needs no place to meet, but may be one.
        let meet = if parts.len() > 1 { meet } else { None };
        warp.strands.split(at.strand, &parts, meet);
        Ok(Flow::Moved)
    }

    /// `exit`, and `ret` of an entry.
    pub(crate) fn exit(&mut self, at: At, exec: u32) -> Result<Flow> {
        self.before_exit(at, exec)?;
        let Some(warp) = self.warp_mut(at) else { return Ok(Flow::Moved) };
        warp.strands.exit(at.strand, exec);
        let live = warp.strands.live();
        let Some(cta) = self.ctas.get_mut(at.cta) else { return Ok(Flow::Moved) };
        let (cluster, index) = (cta.cluster, cta.index);
        if live == 0 {
            cta.live -= 1;
        }
        if cta.live > 0 {
            for id in 0..cta.barriers.len() {
                self.complete_barrier(at.cta, id);
            }
            self.complete_cluster(cluster);
        } else {
            if cta.shared.in_flight() {
                let message = "a CTA exits while asynchronous operations on its shared memory are in flight";
                return Err(Fault::new(FaultKind::InFlight, message));
            }
            self.clocks.end_cta(index);
            self.complete_cluster(cluster);
            if let Some(of) = self.clusters.get_mut(cluster) {
                of.live -= 1;
                if of.live == 0 {
                    self.start(cluster);
                }
            }
        }
        // Lanes that a guard keeps here come again, and find the guard false for all of them.
        Ok(Flow::Moved)
    }
}
