//! Strands that cannot continue: lanes released from a meeting point, divergence, deadlock.

use super::mbarrier::Mbarrier;
use super::strand::{Strand, Wait};
use super::{Execution, FUTILE, cta::Cta};
use crate::fault::{Fault, FaultKind, Party, Result};
use crate::program::{MbarrierOp, Op};

/// How often all waits at mbarriers may fail without any change before that counts as a deadlock.
const ANSWERS: u64 = 64;
/// Instructions before a strand's position in which the awaited event is looked for.
const LOOP: usize = 8;
/// Waiting parties that a deadlock names.
const NAMED: usize = 32;

impl Execution<'_> {
    /// Handles a warp in which no strand can run. True if one can run now. With `last`, no other warp runs either.
    pub(super) fn unblock(&mut self, slot: usize, warp: usize, last: bool) -> Result<bool> {
        let Some(of) = self.ctas.get_mut(slot).and_then(|c| c.warps.get_mut(warp)) else { return Ok(false) };
        let list = of.strands.list();
        let any = |which: fn(Wait) -> bool| list.iter().any(|s| which(s.wait));
        if any(|w| w == Wait::Ready) || (list.is_empty() && of.strands.arrived() == 0) {
            return Ok(false);
        }
        // Others may yet let go of lanes that wait at a barrier.
        if !last && any(|w| matches!(w, Wait::Barrier { .. } | Wait::Cluster | Wait::Warpgroup | Wait::Mbarrier { .. }))
        {
            return Ok(false);
        }
        let aligned = any(|w| matches!(w, Wait::Converge { aligned: true, .. }));
        // What is late may yet come, and lanes that wait for it then go on to where others wait for them.
        let hope = !self.late.is_empty() || any(|w| matches!(w, Wait::Mbarrier { .. }));
        if !aligned && of.strands.release_arrived() {
            return Ok(true);
        }
        if hope {
            return Ok(false);
        }
        let apart = |s: &&Strand| matches!(s.wait, Wait::Converge { .. } | Wait::WarpBarrier { .. });
        if list_has(of.strands.list(), apart) { Err(self.divergent(slot, warp)) } else { Ok(false) }
    }

    /// Lets lanes of blocked warps that wait at the end of a divergence continue, while other warps poll in vain.
    pub(super) fn release_waiting(&mut self) {
        for warp in self.ctas.iter_mut().flat_map(|c| &mut c.warps) {
            let apart = |s: &Strand| matches!(s.wait, Wait::Ready | Wait::Converge { .. });
            if !warp.strands.list().iter().any(apart) {
                warp.strands.release_arrived();
            }
        }
    }

    /// Handles the case that no strand of any warp can run.
    pub(super) fn stuck(&mut self) -> Result<()> {
        let mut released = false;
        for slot in 0..self.ctas.len() {
            for warp in 0..self.warps {
                released |= self.unblock(slot, warp, true)?;
            }
        }
        if released || self.land_one()? {
            return Ok(());
        }
        // A wait at an mbarrier may always answer no, and its thread do something else.
        for warp in self.ctas.iter_mut().flat_map(|c| &mut c.warps) {
            released |= warp.strands.wake_polls();
        }
        self.futile += FUTILE / ANSWERS;
        if released { Ok(()) } else { Err(self.deadlock("every thread waits")) }
    }

    fn line_at(&self, pc: u32) -> u32 {
        self.program.code.get(pc as usize).map_or(0, |i| i.line)
    }

    fn strand_party(&self, cta: &Cta, warp: usize, strand: &Strand) -> Party {
        let lane = (strand.mask.count_ones() == 1).then_some(strand.mask.trailing_zeros() as usize);
        self.party(cta.index, warp, lane, self.line_at(strand.pc))
    }

    fn divergent(&self, slot: usize, warp: usize) -> Fault {
        let bare = Fault::new(FaultKind::Divergent, "lanes of a warp wait for each other at different instructions");
        let Some(cta) = self.ctas.get(slot) else { return bare };
        let Some(of) = cta.warps.get(warp) else { return bare };
        let mut fault = bare;
        for strand in of.strands.list() {
            let party = self.strand_party(cta, warp, strand);
            let (needed, apart) = match strand.wait {
                Wait::Converge { needed, .. } | Wait::WarpBarrier { mask: needed } => (needed, true),
                _ => (0, false),
            };
            if apart && fault.party.is_none() {
                fault.message = format!(
                    "lanes {:#010x} of a warp wait for lanes {:#010x}, which do not come to this instruction",
                    strand.mask,
                    needed & !strand.mask
                );
                fault.party = Some(party);
            } else {
                fault.others.push((party, format!("lanes {:#010x} are", strand.mask)));
            }
        }
        if of.strands.arrived() != 0 {
            fault.message += &format!("; lanes {:#010x} are past it", of.strands.arrived());
        }
        fault
    }

    /// Describes which threads wait for what.
    pub(super) fn waiting(&self) -> Vec<(Party, String)> {
        let mut all = Vec::new();
        for cta in &self.ctas {
            for (warp, of) in cta.warps.iter().enumerate() {
                let left = (NAMED - all.len()).min(of.strands.list().len());
                for strand in of.strands.list().iter().take(left) {
                    all.push((self.strand_party(cta, warp, strand), self.waits_for(cta, warp, strand)));
                }
            }
        }
        all
    }

    /// Nobody goes on, and why.
    pub(super) fn deadlock(&self, why: &str) -> Fault {
        let mut fault = Fault::new(FaultKind::Deadlock, format!("deadlock: {why}"));
        let mut waiting = self.waiting();
        if !waiting.is_empty() {
            let (party, words) = waiting.remove(0);
            fault.party = Some(party);
            fault.message += &format!("; {words}");
        }
        fault.others = waiting;
        fault
    }

    fn waits_for(&self, cta: &Cta, warp: usize, strand: &Strand) -> String {
        let lanes = strand.mask;
        match strand.wait {
            Wait::Barrier { id } => {
                let barrier = cta.barriers.get(usize::from(id));
                let came = barrier.map_or(0, |b| b.arrived.values().map(|l| l[0].count_ones()).sum());
                let expected = barrier.and_then(|b| b.expected);
                let expected = expected.map_or("all that have not exited".into(), |n| n.to_string());
                format!("lanes {lanes:#010x} wait at barrier {id}, where {came} threads of {expected} have come")
            }
            Wait::Warpgroup => format!("lanes {lanes:#010x} wait for the other warps of their warpgroup"),
            Wait::Cluster => format!("lanes {lanes:#010x} wait for the cluster"),
            Wait::Converge { needed, .. } | Wait::WarpBarrier { mask: needed } => {
                format!("lanes {lanes:#010x} wait for lanes {:#010x} of their warp", needed & !lanes)
            }
            Wait::Ready | Wait::Mbarrier { .. } => {
                // A loop around a wait goes round within a few instructions.
                let code = self.program.code.get(..=strand.pc as usize).unwrap_or_default();
                let wait = code.iter().rev().take(LOOP).find_map(|i| match &i.op {
                    Op::Mbarrier { op: MbarrierOp::TestParity { parity, .. }, addr, .. } => Some((addr, Some(parity))),
                    Op::Mbarrier { op: MbarrierOp::TestState { .. }, addr, .. } => Some((addr, None)),
                    _ => None,
                });
                let (Some((addr, parity)), Some(of)) = (wait, cta.warps.get(warp)) else {
                    return format!("lanes {lanes:#010x} look for something in vain");
                };
                let lane = lanes.trailing_zeros() as usize;
                let at = of.address(addr, lane);
                let phase =
                    parity.map_or("a phase".into(), |p| format!("the phase of parity {}", of.value(*p, lane) & 1));
                let state = cta.mbarriers.get(&(at as u32 & 0xff_ffff)).map_or("gone".into(), Mbarrier::words);
                format!("lanes {lanes:#010x} wait for {phase} of the mbarrier at {at:#x}, which is {state}")
            }
        }
    }
}

fn list_has(list: &[Strand], which: impl Fn(&&Strand) -> bool) -> bool {
    list.iter().any(|s| which(&s))
}
