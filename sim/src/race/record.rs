//! A record of past accesses: lanes of a warp that made the same access at the same time.

use super::clocks::State;
use super::vector::{Seat, Vector};
use super::{AgentId, Clocks, Epoch, Reach, ThreadId};
use crate::program::Scope;
use std::cell::Cell;
use std::rc::Rc;

/// The effect of an access on memory, as far as conflicts go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Touch {
    /// `ld` and its relatives.
    Load,
    /// `st` and its relatives.
    Store,
    /// `atom`, `red`.
    Atomic,
    /// An asynchronous operation that reads: a TMA store, an operand of `wgmma`.
    AsyncRead,
    /// An asynchronous operation that writes: `cp.async`, a TMA load.
    AsyncWrite,
    /// An asynchronous reduction.
    AsyncReduce,
}

impl Touch {
    /// True if bytes change.
    pub fn writes(self) -> bool {
        !matches!(self, Touch::Load | Touch::AsyncRead)
    }

    /// The access in words.
    pub fn words(self) -> &'static str {
        match self {
            Touch::Load => "a load",
            Touch::Store => "a store",
            Touch::Atomic => "an atomic",
            Touch::AsyncRead => "an asynchronous read",
            Touch::AsyncWrite => "an asynchronous write",
            Touch::AsyncReduce => "an asynchronous reduction",
        }
    }
}

/// An access that is about to be entered into cells.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    /// The thread whose knowledge must cover earlier accesses.
    pub(crate) thread: ThreadId,
    pub(crate) line: u32,
    pub(crate) touch: Touch,
    /// Relaxed or stronger, so it may race with others of its kind.
    pub(crate) strong: Option<Scope>,
    /// Done through another proxy than the generic one, and to which memory.
    pub(crate) proxy: Option<Reach>,
    /// `.nc`.
    pub(crate) non_coherent: bool,
}

impl Entry {
    #[inline]
    pub(super) fn info(&self) -> Info {
        let touch = match self.touch {
            Touch::Load => 0,
            Touch::Store => 1,
            Touch::Atomic => 2,
            Touch::AsyncRead => 3,
            Touch::AsyncWrite => 4,
            Touch::AsyncReduce => 5,
        };
        let strong = match self.strong {
            None => 0,
            Some(Scope::Cta) => STRONG_CTA,
            Some(_) => STRONG_WIDE,
        };
        let proxy = if self.proxy.is_some() { PROXY } else { 0 };
        Info(self.line.min(LINES) | touch << 24 | strong | proxy)
    }
}

/// Line, kind, strength and proxy of an access in one word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Info(u32);

const LINES: u32 = (1 << 24) - 1;
const PROXY: u32 = 1 << 27;
const STRONG_CTA: u32 = 1 << 28;
const STRONG_WIDE: u32 = 2 << 28;
const STRONG: u32 = 3 << 28;

impl Info {
    pub(super) fn line(self) -> u32 {
        self.0 & LINES
    }

    pub(super) fn touch(self) -> Touch {
        match (self.0 >> 24) & 7 {
            0 => Touch::Load,
            1 => Touch::Store,
            2 => Touch::Atomic,
            3 => Touch::AsyncRead,
            4 => Touch::AsyncWrite,
            _ => Touch::AsyncReduce,
        }
    }

    pub(super) fn writes(self) -> bool {
        self.touch().writes()
    }

    /// Through another proxy than the generic one.
    pub(super) fn proxy(self) -> bool {
        self.0 & PROXY != 0
    }

    pub(super) fn strong(self) -> bool {
        self.0 & STRONG != 0
    }

    /// Strong for threads of other CTAs too.
    pub(super) fn wide(self) -> bool {
        self.0 & STRONG == STRONG_WIDE
    }

    /// True if both are equal except for the line.
    fn alike(self, other: Info) -> bool {
        (self.0 ^ other.0) & !LINES == 0
    }

    /// True if everything that conflicts with `old` also conflicts with this, so that `old`, if ordered before, may be
    /// forgotten.
    fn shadows(self, old: Info) -> bool {
        let no_stronger = self.0 & STRONG == 0 || (old.strong() && (old.wide() || !self.wide()));
        no_stronger && (self.writes() || !old.writes())
    }
}

/// Accesses of some lanes of a warp at one time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Record {
    /// The agent of bit 0 of `lanes`.
    pub(super) owner: u32,
    /// 0 if the record is empty.
    pub(super) time: u32,
    pub(super) lanes: u32,
    pub(super) info: Info,
}

/// The thread of an access, with the data that comparisons need.
pub(super) struct Who<'a> {
    clocks: &'a Clocks,
    thread: ThreadId,
    cta: u32,
    /// The first thread of the CTA.
    first: u32,
    /// The thread's knowledge of its own CTA.
    near: &'a [u32],
    pub(super) record: Record,
    /// The latest records that the access was found to follow. Neighbouring cells often have the same ones.
    followed: Cell<[Record; 2]>,
}

/// Lanes of a warp that are about to make one access each, all of one kind. Their common data is found once.
pub(crate) struct Crew<'a> {
    pub(super) entry: Entry,
    clocks: &'a Clocks,
    info: Info,
    cta: u32,
    /// The first thread of the CTA.
    first: u32,
    /// The clocks of the warp's threads; empty if no thread of the CTA has synchronised.
    states: &'a [State],
    /// The latest lane's knowledge, and the part of it about its own CTA.
    near: Option<(&'a Rc<Vector>, &'a [u32])>,
    /// The latest records that the latest lane was found to follow.
    followed: [Record; 2],
}

impl<'a> Crew<'a> {
    /// A warp whose first lane is the thread of the entry.
    pub(crate) fn new(entry: Entry, clocks: &'a Clocks) -> Crew<'a> {
        let Seat { block: cta, slot, .. } = clocks.seat(entry.thread.into());
        let (first, states) = (entry.thread.0 - slot, clocks.states_from(entry.thread));
        Crew { entry, clocks, info: entry.info(), cta, first, states, near: None, followed: [Record::default(); 2] }
    }

    /// One of the lanes.
    #[inline]
    pub(super) fn who(&mut self, lane: usize) -> Who<'a> {
        let owner = self.entry.thread.0;
        let (time, near) = match self.states.get(lane) {
            None => (1, &[] as &[u32]),
            Some(state) => {
                let near = match self.near {
                    Some((base, near)) if Rc::ptr_eq(base, &state.base) => near,
                    _ => {
                        // What one lane knows, another may not know.
                        self.followed = [Record::default(); 2];
                        state.base.block(self.cta)
                    }
                };
                self.near = Some((&state.base, near));
                (state.now, near)
            }
        };
        let record = Record { owner, time, lanes: 1 << lane, info: self.info };
        let thread = ThreadId(owner + lane as u32);
        // Lanes that know the same of other warps do not know the same of their own one, or of what other proxies see.
        let is_common = |old: &Record| old.owner != owner && self.entry.proxy.is_none();
        let followed = self.followed.map(|old| if is_common(&old) { old } else { Record::default() });
        Who {
            clocks: self.clocks,
            thread,
            cta: self.cta,
            first: self.first,
            near,
            record,
            followed: Cell::new(followed),
        }
    }

    /// Lets later lanes know what one of them followed.
    #[inline]
    pub(super) fn keep(&mut self, who: &Who<'_>) {
        self.followed = who.followed.get();
    }
}

impl<'a> Who<'a> {
    #[inline]
    pub(super) fn new(entry: &Entry, clocks: &'a Clocks) -> Who<'a> {
        let thread = entry.thread;
        let Seat { block: cta, slot, .. } = clocks.seat(thread.into());
        let (time, near) = clocks.state(thread).map_or((1, &[] as &[u32]), |s| (s.now, s.base.block(cta)));
        let lane = slot % 32;
        let record = Record { owner: thread.0 - lane, time, lanes: 1 << lane, info: entry.info() };
        Who { clocks, thread, cta, first: thread.0 - slot, near, record, followed: Cell::default() }
    }

    /// True if the access was found to follow an equal record.
    #[inline]
    pub(super) fn has_followed(&self, old: &Record) -> bool {
        self.followed.get().contains(old)
    }

    /// Remembers that the access follows a record.
    #[inline]
    pub(super) fn follow(&self, old: &Record) {
        let [latest, _] = self.followed.get();
        self.followed.set([*old, latest]);
    }

    /// The first agent of a record whose access is not ordered before this thread.
    #[inline]
    pub(super) fn unordered(&self, old: &Record) -> Option<AgentId> {
        let own = if old.owner == self.record.owner { self.record.lanes } else { 0 };
        let mut lanes = old.lanes & !own;
        if lanes == 0 {
            return None;
        }
        let (times, start) = match self.near.get((old.owner.wrapping_sub(self.first)) as usize..) {
            Some(times) if old.owner >= self.first && !times.is_empty() => (times, 0),
            _ => {
                let seat = self.clocks.seat(AgentId(old.owner));
                (self.clocks.known(self.thread, seat.block), seat.slot)
            }
        };
        while lanes != 0 {
            let lane = lanes.trailing_zeros();
            lanes &= lanes - 1;
            if times.get((start + lane) as usize).is_none_or(|&known| known < old.time) {
                return Some(AgentId(old.owner + lane));
            }
        }
        None
    }

    /// The first agent of a record of generic writes to some memory that are not visible to its other proxies, and whether
    /// they would be if they were writes to other memory.
    pub(super) fn invisible(&self, old: &Record, memory: Reach) -> Option<(AgentId, bool)> {
        let agents = (0..32).filter(|lane| old.lanes >> lane & 1 != 0).map(|lane| AgentId(old.owner + lane));
        let epochs = agents.map(|agent| Epoch { agent, time: old.time });
        let first = { epochs }.find(|&epoch| !self.clocks.proxy_ordered(self.thread, epoch, memory))?;
        Some((first.agent, self.clocks.proxy_ordered_elsewhere(self.thread, first)))
    }

    /// True if two strong accesses may race: each is strong for the other's thread.
    #[inline]
    pub(super) fn tolerates(&self, old: &Record) -> bool {
        let new = self.record.info;
        if !new.strong() || !old.info.strong() {
            return false;
        }
        (new.wide() && old.info.wide()) || self.near(old)
    }

    /// True if a record belongs to the same CTA.
    fn near(&self, old: &Record) -> bool {
        self.clocks.seat(AgentId(old.owner)).block == self.cta
    }
}

impl Record {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.time == 0
    }

    /// Adds the lanes of another record that is equal in everything else.
    #[inline]
    pub(super) fn absorb(&mut self, new: &Record) -> bool {
        let same = self.owner == new.owner && self.time == new.time && self.info.alike(new.info);
        if same {
            self.lanes |= new.lanes;
            self.info = new.info;
        }
        same
    }

    /// True if a later access of the same lanes makes this record unnecessary.
    pub(super) fn precedes(&self, new: &Record) -> bool {
        let same = self.owner == new.owner && self.info.alike(new.info);
        same && self.time <= new.time && self.lanes & !new.lanes == 0
    }

    /// True if the new access makes this record unnecessary.
    pub(super) fn obsolete(&self, who: &Who<'_>) -> bool {
        let new = who.record.info;
        self.is_empty()
            || (new.shadows(self.info) && (!new.strong() || who.near(self)) && who.unordered(self).is_none())
    }
}
