//! Ordering by strong accesses and fences: the knowledge that a thread releases into memory and acquires from there.

use super::release::Release;
use super::{AgentId, Clocks, Epoch, ThreadId};
use crate::program::{Order, Scope};
use std::collections::BTreeMap;
use std::ops::Range;

/// The knowledge that strong writes of a location have released.
#[derive(Clone, Debug, Default)]
pub(super) struct Flag {
    /// To readers of the same CTA, by CTA.
    near: BTreeMap<u32, Release>,
    /// To all, with a scope wider than a CTA.
    far: Release,
}

impl Clocks {
    /// An arrival with the given order. A relaxed arrival releases only what was known at the last fence.
    pub fn release_ordered(&mut self, thread: ThreadId, order: Order, into: &mut Release) {
        match order {
            Order::Release | Order::AcqRel => self.release(thread, into),
            _ => {
                if let Some(fenced) = self.state(thread).and_then(|s| s.fenced.as_ref()) {
                    into.merge(&fenced.0);
                }
            }
        }
    }

    /// The counterpart of `release_ordered`. A relaxed wait takes effect at the thread's next fence.
    pub fn acquire_ordered(&mut self, thread: ThreadId, order: Order, from: &Release) {
        match order {
            Order::Acquire | Order::AcqRel => self.acquire(thread, from),
            _ => {
                if let Some(state) = self.state_mut(thread) {
                    state.seen.get_or_insert_default()[1].merge(from);
                }
            }
        }
    }

    /// `fence.acq_rel`, `fence.sc`: turns later relaxed writes into releases, and earlier relaxed reads into acquires.
    pub fn fence(&mut self, thread: ThreadId, scope: Scope) {
        if let Some(seen) = self.state_mut(thread).and_then(|s| s.seen.take()) {
            let [near, far] = *seen;
            self.acquire(thread, &near);
            if scope > Scope::Cta {
                self.acquire(thread, &far);
            }
        }
        let mut known = Release::new();
        self.release(thread, &mut known);
        if let Some(state) = self.state_mut(thread) {
            state.fenced = Some(Box::new((known, scope)));
        }
        self.settle(thread);
    }

    /// A thread initialises an mbarrier, which is an agent: the epoch of that.
    pub fn initialise(&mut self, thread: ThreadId, agent: AgentId) -> Epoch {
        let mut done = Release::new();
        let epoch = self.complete(agent, &mut done);
        self.acquire(thread, &done);
        let seat = self.seat(agent);
        if let Some(state) = self.state_mut(thread) {
            state.inits.push((seat, epoch.time));
        }
        epoch
    }

    /// `fence.mbarrier_init.release.cluster`: later relaxed arrivals also release the thread's initialisations, and nothing else.
    pub fn init_fence(&mut self, thread: ThreadId) {
        if let Some(state) = self.state_mut(thread) {
            let inits = std::mem::take(&mut state.inits);
            let fenced = state.fenced.get_or_insert_with(|| Box::new((Release::new(), Scope::Cluster)));
            inits.into_iter().for_each(|init| fenced.0.general.add_point(init));
        }
        self.settle(thread);
    }

    /// A strong write to a location and what it releases there. A read-modify-write continues what others released.
    pub(crate) fn publish(&mut self, at: (u64, u64), thread: ThreadId, order: Order, scope: Scope, rmw: bool) {
        let mut release = Release::new();
        let mut reach = scope;
        match order {
            Order::Release | Order::AcqRel => self.release(thread, &mut release),
            _ => match self.state(thread).and_then(|s| s.fenced.as_ref()) {
                Some(fenced) => {
                    release.merge(&fenced.0);
                    reach = scope.min(fenced.1);
                }
                None if rmw => return,
                None => {
                    self.flags.remove(&at);
                    return;
                }
            },
        }
        let cta = self.cta(thread);
        let flag = self.flags.entry(at).or_default();
        if !rmw {
            *flag = Flag::default();
        }
        flag.near.entry(cta).or_default().merge(&release);
        if reach > Scope::Cta {
            // Only threads of the same cluster find flags in shared memory.
            let shared = at.0 >> 63 == 1;
            if shared { flag.far.merge(&release) } else { flag.far.merge_far(&release) }
        }
    }

    /// A strong read of a location and what it acquires from there.
    pub(crate) fn observe(&mut self, at: (u64, u64), thread: ThreadId, order: Order, scope: Scope) {
        let cta = self.cta(thread);
        let Some(flag) = self.flags.get_mut(&at).map(std::mem::take) else { return };
        let near = flag.near.get(&cta);
        let far = (scope > Scope::Cta).then_some(&flag.far);
        if matches!(order, Order::Acquire | Order::AcqRel) {
            for release in near.into_iter().chain(far) {
                self.acquire(thread, release);
            }
        } else if let Some(state) = self.state_mut(thread) {
            let seen = state.seen.get_or_insert_default();
            for (seen, release) in seen.iter_mut().zip([near, far]) {
                release.into_iter().for_each(|r| seen.merge(r));
            }
        }
        self.flags.insert(at, flag);
    }

    /// A weak write ends earlier releases in a range.
    #[inline]
    pub(crate) fn retract(&mut self, region: u64, range: Range<u64>) {
        if self.flags.is_empty() {
            return;
        }
        while let Some((&at, _)) = self.flags.range((region, range.start)..(region, range.end)).next() {
            self.flags.remove(&at);
        }
    }
}
