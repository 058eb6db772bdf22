//! `cp.async`: copies of a thread from global to shared memory, and their groups.

use super::access::region;
use super::address::{self, Target};
use super::flight::{Flight, Home, Landing, Move, bounded};
use super::warp::{LANES, lanes};
use super::{At, Execution, Flow};
use crate::fault::{Fault, FaultKind, Result};
use crate::memory::{Actor, AsyncId, AsyncKind};
use crate::program::{Addr, PredSrc, Src};
use crate::syntax::ast::Space;

/// A copy that its thread has not waited for.
#[derive(Clone, Debug)]
pub(crate) struct PendingCopy {
    lane: usize,
    /// The number of its group among the lane's groups, counted from 0.
    group: u32,
    id: AsyncId,
    shared: Target,
    global: Target,
    bytes: u8,
    /// Bytes that come from global memory. Zeros fill the rest.
    valid: u8,
    /// True if it is postponed to the latest moment.
    late: bool,
}

/// Copies of the lanes of a warp.
#[derive(Clone, Debug, Default)]
pub(crate) struct Copies {
    flying: Vec<PendingCopy>,
    /// Groups that each lane has committed.
    groups: [u32; LANES],
}

impl Execution<'_> {
    /// A number for an asynchronous operation.
    pub(crate) fn next_id(&mut self) -> AsyncId {
        self.operations += 1;
        AsyncId(self.operations)
    }

    /// `cp.async`.
    pub(crate) fn cp_async(
        &mut self,
        at: At,
        exec: u32,
        [shared, global]: [&Addr; 2],
        bytes: u8,
        (valid, ignore): (Option<Src>, Option<PredSrc>),
    ) -> Result<Flow> {
        let line = self.line(at);
        let Some(warp) = self.warp(at) else { return Ok(Flow::Moved) };
        let ignored = ignore.map_or(0, |p| warp.pred(p));
        let (to, from) = (warp.row(shared.base), warp.row(global.base));
        let valid = warp.row(valid.unwrap_or(Src::Imm(u64::from(bytes))));
        let groups = warp.copies.groups;
        let late = self.schedule.late();
        let (mut offsets, mut addresses) = ([None; LANES], [None; LANES]);
        for lane in lanes(exec) {
            let valid = if ignored >> lane & 1 == 1 { 0 } else { valid[lane] as u32 };
            let illegal = |kind, message: String| Err(self.blame_lane(at, lane, Fault::new(kind, message)));
            if valid > u32::from(bytes) {
                return illegal(FaultKind::Illegal, format!("cp.async of {valid} bytes into {bytes}"));
            }
            let (to, from) =
                (to[lane].wrapping_add_signed(shared.offset), from[lane].wrapping_add_signed(global.offset));
            for (name, address) in [("shared", to), ("global", from)] {
                if address % u64::from(bytes) != 0 && (name == "shared" || valid > 0) {
                    let message = format!("cp.async: {name} address {address:#x} is not aligned to {bytes} bytes");
                    return illegal(FaultKind::Misaligned, message);
                }
            }
            let copy = PendingCopy {
                lane,
                group: groups[lane],
                id: self.next_id(),
                shared: address::target(Space::Shared, to),
                global: address::target(Space::Global, from),
                bytes,
                valid: valid as u8,
                late,
            };
            if let Target::Shared(_, offset) = copy.shared {
                offsets[lane] = Some(offset as u32);
            }
            if valid > 0 {
                addresses[lane] = Some(from);
            }
            let by = Actor::weak(self.thread(at, lane), line);
            let sides = [(copy.global, AsyncKind::Read, copy.valid), (copy.shared, AsyncKind::Write, bytes)];
            for (place, kind, len) in sides {
                if len > 0 {
                    self.begin(at, lane, place, (copy.id, kind), u64::from(len), &by)?;
                }
            }
            if !late {
                self.perform_copy(at, &copy)?;
            }
            if let Some(warp) = self.warp_mut(at) {
                bounded(warp.copies.flying.len())?;
                warp.copies.flying.push(copy);
            }
        }
        self.spent.counters.global_access(line, &addresses, u32::from(bytes), false);
        self.spent.counters.shared_access(line, &offsets, u32::from(bytes));
        Ok(Flow::Next)
    }

    /// Begins an asynchronous operation of a lane over a range.
    pub(crate) fn begin(
        &mut self,
        at: At,
        lane: usize,
        place: Target,
        (id, kind): (AsyncId, AsyncKind),
        len: u64,
        by: &Actor,
    ) -> Result<()> {
        let memory = (self.ctas.as_mut_slice(), self.clusters.as_slice(), &mut *self.global);
        let begun = match region(memory, at.cta, place, len) {
            Ok((region, offset, name)) => match region.begin(id, kind, offset, len, by, &self.clocks) {
                Ok(()) => return Ok(()),
                Err(violation) => return Err(self.refuse(at, lane, name, &violation)),
            },
            Err(fault) => fault,
        };
        Err(self.blame_lane(at, lane, begun))
    }

    fn perform_copy(&mut self, at: At, copy: &PendingCopy) -> Result<()> {
        let mut data = [0u8; 16];
        let len = u64::from(copy.valid);
        if len > 0 {
            let memory = (self.ctas.as_mut_slice(), self.clusters.as_slice(), &mut *self.global);
            let (region, offset, _) = region(memory, at.cta, copy.global, len)?;
            if let (Some(from), Some(to)) = (region.read_raw(offset, len), data.get_mut(..len as usize)) {
                to.copy_from_slice(from);
            }
        }
        let memory = (self.ctas.as_mut_slice(), self.clusters.as_slice(), &mut *self.global);
        let (region, offset, _) = region(memory, at.cta, copy.shared, u64::from(copy.bytes))?;
        region.write_raw(offset, data.get(..usize::from(copy.bytes)).unwrap_or_default());
        Ok(())
    }

    /// `cp.async.commit_group`.
    pub(crate) fn cp_async_commit(&mut self, at: At, exec: u32) -> Result<Flow> {
        let Some(warp) = self.warp_mut(at) else { return Ok(Flow::Moved) };
        for lane in lanes(exec) {
            warp.copies.groups[lane] += 1;
        }
        Ok(Flow::Next)
    }

    /// `cp.async.wait_group n`, and `cp.async.wait_all` without `n`.
    pub(crate) fn cp_async_wait(&mut self, at: At, exec: u32, newest: Option<u32>) -> Result<Flow> {
        let Some(warp) = self.warp_mut(at) else { return Ok(Flow::Moved) };
        let groups = warp.copies.groups;
        let done = |copy: &PendingCopy| {
            let complete = newest.is_none_or(|n| copy.group < groups[copy.lane].saturating_sub(n));
            exec >> copy.lane & 1 == 1 && complete
        };
        let flying = std::mem::take(&mut warp.copies.flying);
        let (done, left): (Vec<PendingCopy>, Vec<PendingCopy>) = flying.into_iter().partition(done);
        warp.copies.flying = left;
        for copy in &done {
            self.end_copy(at, copy)?;
        }
        Ok(Flow::Next)
    }

    fn end_copy(&mut self, at: At, copy: &PendingCopy) -> Result<()> {
        if copy.late {
            self.perform_copy(at, copy)?;
        }
        let epoch = self.clocks.now(self.thread(at, copy.lane));
        for (place, len) in [(copy.global, copy.valid), (copy.shared, copy.bytes)] {
            if len > 0 {
                let memory = (self.ctas.as_mut_slice(), self.clusters.as_slice(), &mut *self.global);
                let (region, ..) = region(memory, at.cta, place, u64::from(len))?;
                region.finish(copy.id, epoch, &self.clocks);
            }
        }
        Ok(())
    }

    /// `cp.async.mbarrier.arrive`: an arrival once the lane's copies so far are complete.
    pub(crate) fn cp_async_arrive(&mut self, at: At, exec: u32, addr: &Addr, no_inc: bool) -> Result<Flow> {
        let Some(warp) = self.warp_mut(at) else { return Ok(Flow::Moved) };
        let bases = warp.row(addr.base);
        let flying = std::mem::take(&mut warp.copies.flying);
        let (mut ended, left): (Vec<PendingCopy>, Vec<PendingCopy>) =
            flying.into_iter().partition(|c| exec >> c.lane & 1 == 1);
        warp.copies.flying = left;
        for lane in lanes(exec) {
            let key = self.barrier_key(at, bases[lane].wrapping_add_signed(addr.offset));
            let key = key.map_err(|f| self.blame_lane(at, lane, f))?;
            self.is_ordered(at, lane, key)?;
            if !no_inc {
                self.expect_arrival(key).map_err(|f| self.blame_lane(at, lane, f))?;
            }
            // The copies land with the barrier's phase, together with the arrival.
            let (mine, others): (Vec<PendingCopy>, Vec<PendingCopy>) = ended.into_iter().partition(|c| c.lane == lane);
            ended = others;
            let tells = (key, 0, true);
            let mut landing = Landing { moves: Vec::new(), fill: vec![0], tells, flights: Vec::new() };
            for copy in &mine {
                self.add_copy(at, copy, &mut landing).map_err(|f| self.blame_lane(at, lane, f))?;
            }
            self.launch_landing(landing).map_err(|f| self.blame_lane(at, lane, f))?;
        }
        Ok(Flow::Next)
    }

    /// Adds a copy to those that complete.
    fn add_copy(&self, at: At, copy: &PendingCopy, landing: &mut Landing) -> Result<()> {
        let mut flight = Flight::new(copy.id);
        let (Target::Shared(rank, to), Target::Global(from)) = (copy.shared, copy.global) else {
            return Err(Fault::new(FaultKind::Illegal, "cp.async goes from global to shared memory"));
        };
        let slot = rank.map_or(Ok(at.cta), |rank| self.slot_of(at, rank))?;
        let to = (Home::Shared(slot), to);
        flight.touch(to.0);
        if copy.valid > 0 {
            flight.touch(Home::Global(from));
        }
        if copy.late {
            let (valid, rest) = (u64::from(copy.valid), u64::from(copy.bytes - copy.valid));
            if valid > 0 {
                landing.moves.push(Move { from: Some((Home::Global(from), from)), to, bytes: valid });
            }
            if rest > 0 {
                landing.moves.push(Move { from: None, to: (to.0, to.1 + valid), bytes: rest });
            }
        }
        landing.flights.push(flight);
        Ok(())
    }

    /// When lanes exit, their copies complete.
    pub(super) fn before_exit(&mut self, at: At, exec: u32) -> Result<()> {
        self.outgoing_at_exit(at, exec)?;
        if self.warp(at).is_some_and(|w| !w.copies.flying.is_empty()) {
            self.cp_async_wait(at, exec, None)?;
        }
        Ok(())
    }
}
