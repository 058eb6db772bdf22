//! Barriers of a CTA (`bar`, `barrier`), of lanes (`bar.warp`) and of a cluster.

use super::strand::Wait;
use super::warp::{LANES, lanes};
use super::{At, Execution, Flow, cta::BARRIERS};
use crate::fault::{Fault, FaultKind, Result};
use crate::program::{BarOp, BoolOp, Op, Order, Src};
use crate::race::{Release, ThreadId};
use std::collections::BTreeMap;

/// A named barrier and its arrivals so far.
#[derive(Debug, Default)]
pub(crate) struct Barrier {
    /// The number of threads that the participants expect.
    pub(crate) expected: Option<u32>,
    /// By warp: lanes that arrived, and those of them that wait.
    pub(crate) arrived: BTreeMap<usize, [u32; 2]>,
    /// Threads that arrived. A warp counts in full.
    weight: u32,
    /// The clocks that the participants which do not wait have released.
    token: Option<Release>,
    /// For the predicates so far: how many are true, and their number.
    votes: [u32; 2],
    /// A line of PTX at which some thread arrived.
    pub(crate) line: u32,
}

impl Execution<'_> {
    /// `bar`, `barrier`.
    pub(crate) fn bar(&mut self, at: At, exec: u32, op: BarOp, id: Src, count: Option<Src>) -> Result<Flow> {
        let line = self.line(at);
        let illegal = |message: String| Err(Fault::new(FaultKind::Illegal, message));
        let Some(cta) = self.ctas.get_mut(at.cta) else { return Ok(Flow::Moved) };
        let thread = |lane: usize| ThreadId(cta.index * cta.threads + (at.warp * LANES + lane) as u32);
        let threads: [ThreadId; LANES] = std::array::from_fn(thread);
        let Some(warp) = cta.warps.get(at.warp) else { return Ok(Flow::Moved) };
        let Some(strand) = warp.strands.get(at.strand) else { return Ok(Flow::Moved) };
        let waits = !matches!(op, BarOp::Arrive);
        if waits && exec != strand.mask {
            // The part that waits comes here again by itself.
            return Ok(self.block(at, exec, Wait::Ready));
        }
        let first = exec.trailing_zeros() as usize;
        let number = warp.value(id, first);
        let expected = count.map(|c| warp.value(c, first));
        let same = |src: Src, value: u64| lanes(exec).all(|l| warp.value(src, l) == value);
        if !same(id, number) || count.is_some_and(|c| !same(c, expected.unwrap_or(0))) {
            return illegal("lanes of a warp come to different barriers at once".into());
        }
        let whole = exec == warp.strands.live();
        let votes = match op {
            BarOp::RedPopc(_, p) | BarOp::RedBool(_, _, p) => (warp.pred(p) & exec).count_ones(),
            _ => 0,
        };
        let Some(barrier) = cta.barriers.get_mut(number as usize) else {
            return illegal(format!("barrier {number}: there are {BARRIERS}"));
        };
        if let Some(n) = expected
            && (n == 0 || n % 32 != 0 || n > 1024)
        {
            return illegal(format!("barrier {number} of {n} threads: whole warps take part"));
        }
        let expected = expected.map(|n| n as u32);
        if barrier.arrived.is_empty() {
            barrier.expected = expected;
        } else if barrier.expected != expected {
            let words = |n: Option<u32>| n.map_or("all".into(), |n| n.to_string());
            return illegal(format!(
                "barrier {number} is to be of {} threads here, of {} at line {}",
                words(expected),
                words(barrier.expected),
                barrier.line
            ));
        }
        let came = barrier.arrived.entry(at.warp).or_default();
        if came[0] & exec != 0 {
            return illegal(format!("lanes {:#010x} come to barrier {number} twice", came[0] & exec));
        }
        came[0] |= exec;
        if waits {
            came[1] |= exec;
        }
        barrier.weight += if whole { 32 } else { exec.count_ones() };
        barrier.votes[0] += votes;
        barrier.votes[1] += exec.count_ones();
        barrier.line = line;
        if let Some(most) = barrier.expected
            && barrier.weight > most
        {
            return illegal(format!("{} threads come to barrier {number} of {most}", barrier.weight));
        }
        if !waits {
            let token = barrier.token.get_or_insert_default();
            for lane in lanes(exec) {
                self.clocks.release(threads[lane], token);
            }
        }
        let flow = if waits { self.block(at, exec, Wait::Barrier { id: number as u8 }) } else { Flow::Next };
        let done = self.complete_barrier(at.cta, number as usize);
        match flow {
            // The strand's place in the list may have changed.
            Flow::Next if done => {
                self.advance_lanes(at, strand.pc, strand.mask);
                Ok(Flow::Moved)
            }
            flow => Ok(if done { Flow::Moved } else { flow }),
        }
    }

    /// Releases a barrier's waiting threads if all have arrived.
    pub(crate) fn complete_barrier(&mut self, slot: usize, id: usize) -> bool {
        let Some(cta) = self.ctas.get_mut(slot) else { return false };
        let Some(barrier) = cta.barriers.get_mut(id) else { return false };
        let complete = match barrier.expected {
            _ if barrier.arrived.is_empty() => false,
            Some(n) => barrier.weight >= n,
            None => cta
                .warps
                .iter()
                .enumerate()
                .all(|(w, warp)| warp.strands.live() & !barrier.arrived.get(&w).map_or(0, |lanes| lanes[0]) == 0),
        };
        if !complete {
            return false;
        }
        let Barrier { arrived, token, votes, .. } = std::mem::take(barrier);
        let (index, count) = (cta.index, cta.threads);
        let waiting: Vec<ThreadId> = arrived
            .iter()
            .flat_map(|(&w, came)| lanes(came[1]).map(move |l| ThreadId(index * count + (w * LANES + l) as u32)))
            .collect();
        self.clocks.barrier(&waiting);
        if let Some(token) = token {
            for &thread in &waiting {
                self.clocks.acquire(thread, &token);
            }
        }
        for &w in arrived.keys() {
            let code = &self.program.code;
            let Some(warp) = self.ctas.get_mut(slot).and_then(|c| c.warps.get_mut(w)) else { continue };
            let waits = |s: &super::strand::Strand| s.wait == Wait::Barrier { id: id as u8 };
            while let Some(s) = warp.strands.list().iter().position(waits) {
                let Some(strand) = warp.strands.get(s) else { break };
                match code.get(strand.pc as usize).map(|i| &i.op) {
                    Some(Op::Bar { op: BarOp::RedPopc(dst, _), .. }) => {
                        warp.write(*dst, strand.mask, &[u64::from(votes[0]); LANES]);
                    }
                    Some(Op::Bar { op: BarOp::RedBool(op, dst, _), .. }) => {
                        let holds = if *op == BoolOp::And { votes[0] == votes[1] } else { votes[0] > 0 };
                        warp.write_pred(*dst, strand.mask, if holds { u32::MAX } else { 0 });
                    }
                    _ => {}
                }
                warp.strands.advance(s);
            }
        }
        true
    }

    /// Advances the strand that holds these lanes at an instruction, wherever it is in the list now.
    fn advance_lanes(&mut self, at: At, pc: u32, mask: u32) {
        if let Some(warp) = self.warp_mut(at)
            && let Some(s) = warp.strands.list().iter().position(|s| s.pc == pc && s.mask & mask != 0)
        {
            warp.strands.advance(s);
        }
    }

    /// `bar.warp.sync`: lanes may wait at different instructions.
    pub(crate) fn bar_warp(&mut self, at: At, exec: u32, members: Src) -> Result<Flow> {
        let needed = self.members(at, members, exec)?;
        let Some(cta) = self.ctas.get_mut(at.cta) else { return Ok(Flow::Moved) };
        let Some(warp) = cta.warps.get(at.warp) else { return Ok(Flow::Moved) };
        let Some(strand) = warp.strands.get(at.strand) else { return Ok(Flow::Moved) };
        let base = ThreadId(cta.index * cta.threads + (at.warp * LANES) as u32);
        let join = |execution: &mut Self, mask: u32| {
            let threads: Vec<ThreadId> = lanes(mask).map(|l| ThreadId(base.0 + l as u32)).collect();
            execution.clocks.warp_barrier(&threads);
        };
        if needed & !exec == 0 {
            let masks = warp.row(members);
            let mut left = exec;
            while left != 0 {
                let group = masks[left.trailing_zeros() as usize] as u32 & exec;
                join(self, group);
                left &= !group;
            }
            return Ok(Flow::Next);
        }
        if exec != strand.mask {
            return Ok(self.block(at, exec, Wait::Ready));
        }
        let wait = Wait::WarpBarrier { mask: needed };
        let here = warp.strands.list().iter().filter(|s| s.wait == wait).fold(exec, |all, s| all | s.mask);
        let flow = self.block(at, exec, wait);
        if needed & !here != 0 {
            return Ok(flow);
        }
        join(self, here);
        if let Some(warp) = self.warp_mut(at) {
            while let Some(s) = warp.strands.list().iter().position(|s| s.wait == wait) {
                warp.strands.advance(s);
            }
        }
        Ok(Flow::Moved)
    }

    /// `barrier.cluster.arrive`.
    pub(crate) fn cluster_arrive(&mut self, at: At, exec: u32, order: Order) -> Result<Flow> {
        let Some(cta) = self.ctas.get_mut(at.cta) else { return Ok(Flow::Moved) };
        let base = ThreadId(cta.index * cta.threads + (at.warp * LANES) as u32);
        let of = cta.cluster;
        let Some(warp) = cta.warps.get_mut(at.warp) else { return Ok(Flow::Moved) };
        if let twice @ 1.. = (warp.cluster[0] | warp.cluster[1]) & exec {
            let message = format!("lanes {twice:#010x} arrive at the cluster's barrier twice without a wait");
            return Err(Fault::new(FaultKind::Illegal, message));
        }
        warp.cluster[0] |= exec;
        if let Some(cluster) = self.clusters.get_mut(of) {
            for lane in lanes(exec) {
                let thread = ThreadId(base.0 + lane as u32);
                self.clocks.release_ordered(thread, order, &mut cluster.arriving);
                if order != Order::Relaxed {
                    self.clocks.settle(thread);
                }
            }
        }
        self.complete_cluster(of);
        Ok(Flow::Next)
    }

    /// Releases the waiting threads of a cluster if all have arrived.
    pub(crate) fn complete_cluster(&mut self, of: usize) {
        let Some(cluster) = self.clusters.get_mut(of) else { return };
        let slots = cluster.first..cluster.first + cluster.size;
        let Some(ctas) = self.ctas.get_mut(slots) else { return };
        let mut warps = ctas.iter().flat_map(|c| &c.warps);
        let missing = warps.clone().any(|w| w.strands.live() & !w.cluster[0] != 0);
        if missing || warps.all(|w| w.cluster[0] == 0) {
            return;
        }
        for warp in ctas.iter_mut().flat_map(|c| &mut c.warps) {
            warp.cluster = [0, warp.cluster[0] | warp.cluster[1]];
            warp.strands.wake(|wait| wait == Wait::Cluster);
        }
        cluster.arrived = std::mem::take(&mut cluster.arriving);
    }

    /// `barrier.cluster.wait`.
    pub(crate) fn cluster_wait(&mut self, at: At, exec: u32, order: Order) -> Result<Flow> {
        let Some(cta) = self.ctas.get_mut(at.cta) else { return Ok(Flow::Moved) };
        let base = ThreadId(cta.index * cta.threads + (at.warp * LANES) as u32);
        let of = cta.cluster;
        let Some(warp) = cta.warps.get_mut(at.warp) else { return Ok(Flow::Moved) };
        if let early @ 1.. = exec & !(warp.cluster[0] | warp.cluster[1]) {
            let message = format!("lanes {early:#010x} wait at the cluster's barrier without having arrived");
            return Err(Fault::new(FaultKind::Illegal, message));
        }
        if exec & !warp.cluster[1] != 0 {
            return Ok(self.block(at, exec, Wait::Cluster));
        }
        warp.cluster[1] &= !exec;
        if let Some(cluster) = self.clusters.get(of) {
            for lane in lanes(exec) {
                self.clocks.acquire_ordered(ThreadId(base.0 + lane as u32), order, &cluster.arrived);
            }
        }
        Ok(Flow::Next)
    }
}
