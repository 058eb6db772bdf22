//! mbarriers: phases of arrivals and bytes in shared memory, and waits for them.

use super::address::{self, Target};
use super::flight::Flight;
use super::strand::Wait;
use super::warp::{LANES, lanes};
use super::{At, Execution, Flow};
use crate::fault::{Fault, FaultKind, Result};
use crate::memory::Actor;
use crate::program::{Addr, MbarrierOp, Order, Pred, Src};
use crate::race::{AgentId, Epoch, Release, ThreadId};
use crate::syntax::ast::Space;
use std::collections::BTreeMap;

/// Arrivals and bytes that a phase can count.
const MOST: i64 = (1 << 20) - 1;

/// An mbarrier: the CTA in whose shared memory it is, by slot, and its offset there.
pub(crate) type Key = (usize, u32);

/// An mbarrier.
#[derive(Debug)]
pub(crate) struct Mbarrier {
    /// Arrivals of a phase.
    expected: i64,
    /// Arrivals still missing in this phase.
    pending: i64,
    /// Bytes still missing.
    bytes: i64,
    /// Phases that are complete.
    phase: u64,
    /// When it was initialised, and at which line.
    since: (Epoch, u32),
    agent: AgentId,
    arriving: Release,
    /// The clocks that the last complete phase released.
    done: Release,
    /// Copies of this phase whose bytes have arrived.
    landed: Vec<Flight>,
    /// Threads that wait for the end of a phase, with the phase.
    waiting: BTreeMap<ThreadId, u64>,
}

impl Mbarrier {
    /// Its state in words.
    pub(crate) fn words(&self) -> String {
        format!("in phase {}, with {} arrivals and {} bytes to come", self.phase, self.pending, self.bytes)
    }
}

/// The result of a wait.
enum Found {
    Done,
    Pending,
}

impl Execution<'_> {
    /// The mbarrier that an address names.
    pub(crate) fn barrier_key(&self, at: At, address: u64) -> Result<Key> {
        let Target::Shared(rank, offset) = address::target(Space::Shared, address) else {
            return Err(Fault::new(FaultKind::NotABarrier, format!("{address:#x} is not in shared memory")));
        };
        let slot = match rank {
            None => at.cta,
            Some(rank) => self.slot_of(at, rank)?,
        };
        Ok((slot, offset as u32))
    }

    /// The slot of the CTA of a rank in the cluster of a strand.
    pub(crate) fn slot_of(&self, at: At, rank: u32) -> Result<usize> {
        let cluster = self.ctas.get(at.cta).and_then(|c| self.clusters.get(c.cluster));
        let slot = cluster.filter(|c| (rank as usize) < c.size).map(|c| c.first + rank as usize);
        let alive = |s: &usize| self.ctas.get(*s).is_some_and(|c| c.live > 0);
        slot.filter(alive).ok_or_else(|| {
            let message = format!("shared memory of rank {rank} of the cluster, which has exited or never was");
            Fault::new(FaultKind::OutOfBounds, message)
        })
    }

    /// An operation of the mbarrier that each lane names.
    pub(crate) fn mbarrier(&mut self, at: At, exec: u32, op: &MbarrierOp, addr: &Addr, order: Order) -> Result<Flow> {
        match op {
            MbarrierOp::TestState { done, state, suspend } => {
                return self.wait_phase(at, exec, addr, (*done, *state, true), (*suspend, order));
            }
            MbarrierOp::TestParity { done, parity, suspend } => {
                return self.wait_phase(at, exec, addr, (*done, *parity, false), (*suspend, order));
            }
            MbarrierOp::PendingCount { dst, state } => {
                let Some(warp) = self.warp_mut(at) else { return Ok(Flow::Moved) };
                let counts = warp.row(*state).map(|s| s & 0xffff_ffff);
                warp.write(*dst, exec, &counts);
                return Ok(Flow::Next);
            }
            _ => {}
        }
        let line = self.line(at);
        let Some(warp) = self.warp(at) else { return Ok(Flow::Moved) };
        let bases = warp.row(addr.base);
        let value = |src: &Src, lane| warp.value(*src, lane) as u32;
        let operands: [(u32, u32); LANES] = std::array::from_fn(|lane| match op {
            MbarrierOp::Init(n) | MbarrierOp::ExpectTx(n) | MbarrierOp::CompleteTx(n) => (value(n, lane), 0),
            MbarrierOp::Arrive { count, expect, .. } => {
                (value(count, lane), expect.as_ref().map_or(0, |e| value(e, lane)))
            }
            _ => (0, 0),
        });
        let mut states = [0; LANES];
        for lane in lanes(exec) {
            let by = Actor::weak(self.thread(at, lane), line);
            let address = bases[lane].wrapping_add_signed(addr.offset);
            let done = self
                .barrier_key(at, address)
                .and_then(|key| self.operate(at, lane, key, (op, operands[lane], order), &by));
            states[lane] = done.map_err(|f| if f.party.is_none() { self.blame_lane(at, lane, f) } else { f })?;
        }
        if let (MbarrierOp::Arrive { state: Some(state), .. }, Some(warp)) = (op, self.warp_mut(at)) {
            warp.write(*state, exec, &states);
        }
        Ok(Flow::Next)
    }

    /// One lane's operation; the state before an arrival.
    fn operate(
        &mut self,
        at: At,
        lane: usize,
        key: Key,
        (op, (n, expect), order): (&MbarrierOp, (u32, u32), Order),
        by: &Actor,
    ) -> Result<u64> {
        let (slot, offset) = (key.0, u64::from(key.1));
        let Some(cta) = self.ctas.get_mut(slot) else { return Ok(0) };
        let used = match op {
            MbarrierOp::Init(_) => cta.shared.set_barrier(offset, by, &self.clocks),
            MbarrierOp::Inval => cta.shared.clear_barrier(offset, by, &self.clocks),
            _ => cta.shared.use_barrier(offset, by, &self.clocks),
        };
        let index = cta.index;
        if let Err(violation) = used {
            return Err(self.refuse(at, lane, "shared memory", &violation));
        }
        match op {
            MbarrierOp::Init(_) => {
                if n == 0 || i64::from(n) > MOST {
                    let message = format!("an mbarrier of {n} arrivals: 1 to {MOST} may be");
                    return Err(Fault::new(FaultKind::Illegal, message));
                }
                let since = self.clocks.now(by.thread);
                let agent = self.clocks.new_agent(index);
                // A fence may release initialisations and nothing else, so they have clocks of their own.
                let epoch = self.clocks.initialise(by.thread, agent);
                let barrier = Mbarrier {
                    expected: i64::from(n),
                    pending: i64::from(n),
                    bytes: 0,
                    phase: 0,
                    since: (since, by.line),
                    agent,
                    arriving: Release::new(),
                    done: Release::new(),
                    landed: Vec::new(),
                    waiting: BTreeMap::new(),
                };
                if let Some(cta) = self.ctas.get_mut(slot) {
                    cta.shared.attribute_barrier(offset, by, epoch, &self.clocks);
                    cta.mbarriers.insert(key.1, barrier);
                }
                Ok(0)
            }
            MbarrierOp::Inval => {
                if let Some(cta) = self.ctas.get_mut(slot) {
                    cta.mbarriers.remove(&key.1);
                }
                Ok(0)
            }
            MbarrierOp::ExpectTx(_) => self.expect_bytes(key, i64::from(n)).map(|()| 0),
            MbarrierOp::CompleteTx(_) => self.expect_bytes(key, -i64::from(n)).map(|()| 0),
            MbarrierOp::Arrive { drop, .. } => {
                self.expect_bytes(key, i64::from(expect))?;
                self.arrive(key, i64::from(n), *drop, Some((by.thread, order)))
            }
            _ => Ok(0),
        }
    }

    fn barrier_mut(&mut self, key: Key) -> Result<&mut Mbarrier> {
        let found = self.ctas.get_mut(key.0).and_then(|c| c.mbarriers.get_mut(&key.1));
        found.ok_or_else(|| {
            Fault::new(FaultKind::NotABarrier, format!("there is no mbarrier at offset {:#x} of shared memory", key.1))
        })
    }

    /// Checks an mbarrier that an asynchronous operation of a lane is going to complete.
    ///
    /// The ISA up to version 9.2 does not say how the engine reads an mbarrier; from 9.3 on, it is by the generic proxy. So no
    /// proxy fence is needed, but that the initialisation is performed: a fence or a barrier must have followed it.
    pub(crate) fn is_ready(&mut self, at: At, lane: usize, key: Key) -> Result<()> {
        let (epoch, line) = self.barrier_mut(key)?.since;
        self.is_ordered(at, lane, key)?;
        if self.clocks.is_settled(self.thread(at, lane), epoch) {
            return Ok(());
        }
        let message = format!(
            "the mbarrier at offset {:#x} was initialised at line {line}, with neither fence.mbarrier_init nor a barrier since",
            key.1
        );
        Err(self.blame_lane(at, lane, Fault::new(FaultKind::MissingProxyFence, message)))
    }

    /// Checks that the initialisation of an mbarrier is ordered before its use by a lane.
    pub(crate) fn is_ordered(&mut self, at: At, lane: usize, key: Key) -> Result<()> {
        let by = Actor::weak(self.thread(at, lane), self.line(at));
        let used = self.ctas.get_mut(key.0).map(|c| c.shared.use_barrier(u64::from(key.1), &by, &self.clocks));
        match used {
            Some(Err(violation)) => Err(self.refuse(at, lane, "shared memory", &violation)),
            _ => Ok(()),
        }
    }

    /// Adds bytes to expect in this phase; negative ones have arrived.
    fn expect_bytes(&mut self, key: Key, bytes: i64) -> Result<()> {
        let barrier = self.barrier_mut(key)?;
        barrier.bytes += bytes;
        if barrier.bytes.abs() > MOST {
            let message = format!("{} bytes are to come in a phase of an mbarrier: {MOST} may be", barrier.bytes);
            return Err(Fault::new(FaultKind::Phase, message));
        }
        if bytes < 0 {
            self.complete_phase(key);
        }
        Ok(())
    }

    /// Arrivals by a thread, or of an asynchronous operation; the state before them.
    pub(crate) fn arrive(&mut self, key: Key, n: i64, drop: bool, by: Option<(ThreadId, Order)>) -> Result<u64> {
        let barrier = self.barrier_mut(key)?;
        let state = barrier.phase << 32 | barrier.pending as u64;
        if n > barrier.pending || n == 0 {
            let message = format!("{n} arrivals at an mbarrier {}", barrier.words());
            return Err(Fault::new(FaultKind::Phase, message));
        }
        barrier.pending -= n;
        if drop {
            barrier.expected -= n;
        }
        if let Some((thread, order)) = by {
            // The token is taken out while the clocks fill it.
            let mut token = std::mem::take(&mut barrier.arriving);
            self.clocks.release_ordered(thread, order, &mut token);
            self.barrier_mut(key)?.arriving = token;
        }
        self.complete_phase(key);
        Ok(state)
    }

    /// Adds an arrival to come to this phase.
    pub(crate) fn expect_arrival(&mut self, key: Key) -> Result<()> {
        self.barrier_mut(key).map(|b| b.pending += 1)
    }

    /// The bytes of a copy have arrived.
    pub(crate) fn land(&mut self, key: Key, bytes: i64, flights: Vec<Flight>) -> Result<()> {
        self.barrier_mut(key)?.landed.extend(flights);
        self.expect_bytes(key, -bytes)
    }

    /// Ends the phase if nothing is missing.
    fn complete_phase(&mut self, key: Key) {
        let Some(cta) = self.ctas.get_mut(key.0) else { return };
        let cluster = cta.cluster;
        let Some(barrier) = cta.mbarriers.get_mut(&key.1) else { return };
        if barrier.pending != 0 || barrier.bytes != 0 {
            return;
        }
        let epoch = self.clocks.complete(barrier.agent, &mut barrier.arriving);
        barrier.done = std::mem::take(&mut barrier.arriving);
        barrier.phase += 1;
        barrier.pending = barrier.expected;
        let landed = std::mem::take(&mut barrier.landed);
        for flight in landed {
            self.finish(&flight, epoch);
        }
        let Some(cluster) = self.clusters.get(cluster) else { return };
        let ctas = self.ctas.get_mut(cluster.first..cluster.first + cluster.size).unwrap_or_default();
        for warp in ctas.iter_mut().flat_map(|c| &mut c.warps) {
            warp.strands.wake(|wait| wait == Wait::Mbarrier { key });
        }
    }

    /// `test_wait`, `try_wait`: on a state token, or on a parity.
    fn wait_phase(
        &mut self,
        at: At,
        exec: u32,
        addr: &Addr,
        (done, operand, token): (Pred, Src, bool),
        (suspend, order): (bool, Order),
    ) -> Result<Flow> {
        let line = self.line(at);
        let Some(warp) = self.warp(at) else { return Ok(Flow::Moved) };
        let Some(strand) = warp.strands.get(at.strand) else { return Ok(Flow::Moved) };
        let (bases, operands) = (warp.row(addr.base), warp.row(operand));
        let spurious = suspend && self.schedule.spurious();
        let (mut bits, mut last) = (0u32, None);
        for lane in lanes(exec) {
            let thread = self.thread(at, lane);
            let by = Actor::weak(thread, line);
            let key = self.barrier_key(at, bases[lane].wrapping_add_signed(addr.offset));
            let key = key.map_err(|f| self.blame_lane(at, lane, f))?;
            let used = self.ctas.get_mut(key.0).map(|c| c.shared.use_barrier(u64::from(key.1), &by, &self.clocks));
            if let Some(Err(violation)) = used {
                return Err(self.refuse(at, lane, "shared memory", &violation));
            }
            let found = self.look(key, thread, operands[lane], token);
            match found.map_err(|f| self.blame_lane(at, lane, f))? {
                Found::Done if !spurious => {
                    bits |= 1 << lane;
                    let barrier = self.ctas.get_mut(key.0).and_then(|c| c.mbarriers.get_mut(&key.1));
                    if let Some(barrier) = barrier {
                        barrier.waiting.remove(&thread);
                        self.clocks.acquire_ordered(thread, order, &barrier.done);
                    }
                }
                _ => last = Some(key),
            }
        }
        if let (0, false, true, Some(key), false) = (bits, spurious, suspend, last, strand.poll)
            && exec == strand.mask
        {
            return Ok(self.block(at, exec, Wait::Mbarrier { key }));
        }
        let Some(warp) = self.warp_mut(at) else { return Ok(Flow::Moved) };
        warp.strands.set_poll(at.strand, false);
        warp.write_pred(done, exec, bits);
        Ok(if bits == exec { Flow::Next } else { Flow::Spin })
    }

    /// True if the phase for which a thread waits is complete.
    fn look(&mut self, key: Key, thread: ThreadId, operand: u64, token: bool) -> Result<Found> {
        let barrier = self.barrier_mut(key)?;
        let phase = barrier.phase;
        // By parity a wait means the phase that was current when it began, or the one before.
        let wanted = match (token, barrier.waiting.get(&thread)) {
            (true, _) => operand >> 32,
            (false, Some(&phase)) if phase & 1 == operand & 1 => phase,
            (false, _) if phase & 1 == operand & 1 => phase,
            (false, _) => return Ok(Found::Done),
        };
        if phase == wanted + 1 {
            return Ok(Found::Done);
        }
        if phase != wanted {
            let message = format!("a thread waits for phase {wanted} of an mbarrier that is in phase {phase}");
            return Err(Fault::new(FaultKind::Phase, message));
        }
        barrier.waiting.insert(thread, phase);
        Ok(Found::Pending)
    }
}
