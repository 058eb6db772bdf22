//! The clocks of a launch: what each thread knows of the others, and which part of that other proxies see.

use super::flags::Flag;
use super::proxies::{OWN, Reach, View, own, owned};
use super::release::Release;
use super::vector::{Seat, Summand, Vector};
use super::{AgentId, Epoch, ThreadId};
use crate::program::Scope;
use crate::syntax::ast::Space;
use std::collections::BTreeMap;
use std::rc::Rc;

/// Slots of a block of agents that are not threads.
const AGENTS: u32 = 32;

/// Clocks of all threads and agents of a launch.
#[derive(Debug)]
pub struct Clocks {
    ctas: u32,
    threads_per_cta: u32,
    /// 2^64 / `threads_per_cta`, rounded up, for a fast division.
    reciprocal: u64,
    /// Sorted by CTA. A clock is created when a thread of the CTA first synchronises, and dropped when the CTA ends, so there
    /// are few at a time.
    states: Vec<(u32, Box<[State]>)>,
    nothing: Rc<Vector>,
    unseen: Rc<View>,
    /// Times of the agents that are not threads.
    agents: Vec<u32>,
    /// Next and last agent of the block in use, by CTA.
    open: BTreeMap<u32, (u32, u32)>,
    /// The knowledge that strong accesses have released into memory, by region and offset.
    pub(super) flags: BTreeMap<(u64, u64), Flag>,
    /// The latest joins. Many threads make the same one in a row.
    memo: Memo<Vector>,
    view_memo: Memo<View>,
}

/// The parts of a join, and their sum.
type Memo<K> = Option<[Rc<K>; 3]>;

#[derive(Clone, Debug)]
pub(super) struct State {
    /// The thread's own time.
    pub(super) now: u32,
    /// The thread's own time at its last barrier or fence.
    settled: u32,
    /// The thread's own time at its last proxy fence of each reach that it can fence.
    proxy_own: [u32; OWN],
    /// Its knowledge of others. Its own component may lag behind `now`.
    pub(super) base: Rc<Vector>,
    /// The part of it that is visible to other proxies.
    proxy: Rc<View>,
    /// Its knowledge at its last fence, which its later relaxed writes release.
    pub(super) fenced: Option<Box<(Release, Scope)>>,
    /// The mbarriers that it has initialised since its last fence of them.
    pub(super) inits: Vec<(Seat, u32)>,
    /// The knowledge that its relaxed reads have seen, and that its next fence acquires: from its CTA, and from all.
    pub(super) seen: Option<Box<[Release; 2]>>,
}

impl State {
    /// Adds everything that the thread knows, including its own time.
    fn tell(&self, seat: Seat, into: &mut Release) {
        into.general.add(&self.base, Some((seat, self.now)));
        let own = owned(seat.block).into_iter().zip(self.proxy_own).filter(|own| own.1 > 0);
        into.proxy.add(&self.proxy, own.map(|(reach, time)| (reach, seat, time)));
    }
}

impl Clocks {
    /// Clocks of this many CTAs, with fewer than 2^31 threads in all. They take memory only once they synchronise.
    pub fn new(ctas: u32, threads_per_cta: u32) -> Clocks {
        let threads_per_cta = threads_per_cta.max(1);
        Clocks {
            ctas,
            threads_per_cta,
            reciprocal: (u64::MAX / u64::from(threads_per_cta)).wrapping_add(1),
            states: Vec::new(),
            nothing: Rc::default(),
            unseen: Rc::default(),
            agents: Vec::new(),
            open: BTreeMap::new(),
            flags: BTreeMap::new(),
            memo: None,
            view_memo: None,
        }
    }

    /// The CTA of a thread.
    #[inline]
    pub fn cta(&self, thread: ThreadId) -> u32 {
        if self.threads_per_cta == 1 {
            return thread.0;
        }
        ((u128::from(thread.0) * u128::from(self.reciprocal)) >> 64) as u32
    }

    /// The thread that an agent is, if it is one.
    pub fn thread(&self, agent: AgentId) -> Option<ThreadId> {
        (u64::from(agent.0) < self.threads()).then_some(ThreadId(agent.0))
    }

    /// The present of a thread.
    pub fn now(&self, thread: ThreadId) -> Epoch {
        Epoch { agent: thread.into(), time: self.state(thread).map_or(1, |s| s.now) }
    }

    /// The present of threads that act together, one for each state of knowledge among them.
    pub fn representatives(&self, threads: impl IntoIterator<Item = ThreadId>) -> Vec<ThreadId> {
        let mut found: Vec<(Option<&State>, ThreadId)> = Vec::new();
        for thread in threads {
            let state = self.state(thread);
            let same = |other: Option<&State>| match (state, other) {
                (Some(a), Some(b)) => {
                    Vector::same(&a.base, &b.base) && (Rc::ptr_eq(&a.proxy, &b.proxy) || a.proxy == b.proxy)
                }
                (a, b) => a.is_none() && b.is_none(),
            };
            if !found.iter().any(|f| same(f.0)) {
                found.push((state, thread));
            }
        }
        found.into_iter().map(|f| f.1).collect()
    }

    /// A new agent of a CTA, such as an mbarrier or the `wgmma` groups of a warpgroup.
    pub fn new_agent(&mut self, cta: u32) -> AgentId {
        let first = u32::try_from(self.threads()).unwrap_or(u32::MAX);
        let (next, end) = self.open.get(&cta).copied().unwrap_or((0, 0));
        let index = if next < end {
            next
        } else {
            let start = self.agents.len() as u32;
            self.agents.resize(self.agents.len() + AGENTS as usize, 0);
            self.open.insert(cta, (start, start + AGENTS));
            start
        };
        if let Some(open) = self.open.get_mut(&cta) {
            open.0 = index + 1;
        }
        AgentId(first.saturating_add(index))
    }

    /// Advances an agent that is not a thread, as when a phase completes, and releases that time.
    pub fn complete(&mut self, agent: AgentId, into: &mut Release) -> Epoch {
        let first = self.threads();
        let slot = u64::from(agent.0).checked_sub(first).and_then(|i| self.agents.get_mut(i as usize));
        let time = slot.map_or(0, |time| {
            *time += 1;
            *time
        });
        into.general.add_point((self.seat(agent), time));
        Epoch { agent, time }
    }

    /// A barrier: each thread learns what all knew, and all advance.
    pub fn barrier(&mut self, threads: &[ThreadId]) {
        let mut all = Release::new();
        self.each_state(threads, |seat, state| state.tell(seat, &mut all));
        let (Some(general), Some(proxy)) = (all.general.fold(), all.proxy.fold()) else { return };
        self.each_state(threads, |_, state| {
            state.base.clone_from(general);
            state.proxy.clone_from(proxy);
            state.settled = state.now;
            state.now += 1;
        });
    }

    /// The same among lanes of a warp.
    pub fn warp_barrier(&mut self, lanes: &[ThreadId]) {
        self.barrier(lanes);
    }

    /// Adds what a thread knows to a token. The thread advances.
    pub fn release(&mut self, thread: ThreadId, into: &mut Release) {
        self.gather(thread, into);
        if let Some(state) = self.state_mut(thread) {
            state.now += 1;
        }
    }

    /// A thread learns what a token holds.
    pub fn acquire(&mut self, thread: ThreadId, from: &Release) {
        let (general, proxy) = (from.general.fold(), from.proxy.fold());
        self.learn(thread, general, proxy);
    }

    /// `fence.proxy.async`: what the thread knows of all memory becomes visible to the asynchronous proxy.
    pub fn proxy_fence(&mut self, thread: ThreadId) {
        self.proxy_fence_of(thread, Space::Generic);
    }

    /// The same of one state space, or of all without one.
    pub fn proxy_fence_of(&mut self, thread: ThreadId, space: Space) {
        let cta = self.cta(thread);
        let reaches = match space {
            Space::Shared => &[Reach::Cta(cta)][..],
            Space::SharedCluster => &[Reach::Cluster],
            Space::Global => &[Reach::Global],
            _ => &[Reach::Cluster, Reach::Global],
        };
        if let Some(state) = self.state_mut(thread) {
            let view = Rc::make_mut(&mut state.proxy);
            for &reach in reaches {
                view.set(reach, state.base.clone());
                if let Some(time) = own(reach, cta).and_then(|i| state.proxy_own.get_mut(i)) {
                    *time = state.now;
                }
            }
            state.settled = state.now;
            state.now += 1;
        }
    }

    /// `fence.proxy.tensormap::generic.release`: others may acquire what the thread knows, for the proxy of tensor maps.
    pub fn release_maps(&mut self, thread: ThreadId) {
        let seat = self.seat(thread.into());
        if let Some(state) = self.state_mut(thread) {
            let mut known = Vector::clone(&state.base);
            known.raise(&[(seat, state.now)]);
            Rc::make_mut(&mut state.proxy).set(Reach::Released, Rc::new(known));
            state.now += 1;
        }
    }

    /// `fence.proxy.tensormap::generic.acquire`: what was released so becomes visible to the proxy of tensor maps, in one map.
    pub fn acquire_map(&mut self, thread: ThreadId, address: u64) {
        if let Some(state) = self.state_mut(thread)
            && let Some(released) = state.proxy.of(Reach::Released).cloned()
        {
            Rc::make_mut(&mut state.proxy).set(Reach::Map(address), released);
        }
    }

    /// A fence or a barrier of a thread: what it did before is performed.
    pub fn settle(&mut self, thread: ThreadId) {
        if let Some(state) = self.state_mut(thread) {
            state.settled = state.now;
            state.now += 1;
        }
    }

    /// True if a barrier or a fence of a thread came after its own epoch.
    pub fn is_settled(&self, thread: ThreadId, epoch: Epoch) -> bool {
        epoch.agent != thread.into() || self.state(thread).is_some_and(|s| s.settled >= epoch.time)
    }

    /// Frees the clocks of a CTA whose threads have all exited.
    pub fn end_cta(&mut self, cta: u32) {
        if let Ok(at) = self.find(cta) {
            self.states.remove(at);
        }
        self.open.remove(&cta);
    }

    /// True if an epoch happens before the present of a thread.
    pub fn ordered(&self, thread: ThreadId, epoch: Epoch) -> bool {
        epoch.time == 0
            || epoch.agent == thread.into()
            || self.state(thread).is_some_and(|s| s.base.get(self.seat(epoch.agent)) >= epoch.time)
    }

    /// True if that epoch's generic writes are visible to what the thread issues now through another proxy.
    pub fn proxy_ordered(&self, thread: ThreadId, epoch: Epoch, memory: Reach) -> bool {
        let cta = self.cta(thread);
        // A fence over the whole cluster covers each of its CTAs.
        let wider = matches!(memory, Reach::Cta(_)).then_some(Reach::Cluster);
        epoch.time == 0
            || self.state(thread).is_some_and(|s| {
                [Some(memory), wider].into_iter().flatten().any(|reach| {
                    let fenced = own(reach, cta).and_then(|i| s.proxy_own.get(i)).copied().unwrap_or(0);
                    (epoch.agent == thread.into() && fenced >= epoch.time)
                        || s.proxy.sees(reach, self.seat(epoch.agent), epoch.time)
                })
            })
    }

    /// True if those writes would be visible in other memory than theirs: a fence named the wrong one.
    pub(super) fn proxy_ordered_elsewhere(&self, thread: ThreadId, epoch: Epoch) -> bool {
        owned(self.cta(thread)).into_iter().any(|memory| self.proxy_ordered(thread, epoch, memory))
    }

    /// The knowledge about a block.
    pub(super) fn known(&self, thread: ThreadId, block: u32) -> &[u32] {
        self.state(thread).map_or(&[], |s| s.base.block(block))
    }

    #[inline]
    pub(super) fn state(&self, thread: ThreadId) -> Option<&State> {
        self.states_from(thread).first()
    }

    /// The states of a thread and of those after it in its CTA; empty if no thread of the CTA has synchronised.
    #[inline]
    pub(super) fn states_from(&self, thread: ThreadId) -> &[State] {
        let cta = self.cta(thread);
        let Some((_, states)) = self.find(cta).ok().and_then(|at| self.states.get(at)) else { return &[] };
        states.get((thread.0 - cta * self.threads_per_cta) as usize..).unwrap_or_default()
    }

    #[inline]
    fn find(&self, cta: u32) -> Result<usize, usize> {
        self.states.binary_search_by_key(&cta, |s| s.0)
    }

    pub(super) fn state_mut(&mut self, thread: ThreadId) -> Option<&mut State> {
        let Seat { block, slot, .. } = self.seat(thread.into());
        self.states_mut(block)?.get_mut(slot as usize)
    }

    fn states_mut(&mut self, cta: u32) -> Option<&mut [State]> {
        if cta >= self.ctas {
            return None;
        }
        let at = self.find(cta).unwrap_or_else(|at| {
            let (base, proxy) = (self.nothing.clone(), self.unseen.clone());
            let fresh = State {
                now: 1,
                settled: 0,
                proxy_own: [0; OWN],
                base,
                proxy,
                fenced: None,
                inits: Vec::new(),
                seen: None,
            };
            self.states.insert(at, (cta, vec![fresh; self.threads_per_cta as usize].into()));
            at
        });
        self.states.get_mut(at).map(|(_, states)| &mut **states)
    }

    /// Calls `f` for each thread. A run of threads of one CTA is faster to look up than single ones.
    fn each_state(&mut self, threads: &[ThreadId], mut f: impl FnMut(Seat, &mut State)) {
        let mut rest = threads;
        while let Some(&first) = rest.first() {
            let block = self.cta(first);
            let (start, size) = (block * self.threads_per_cta, self.threads_per_cta);
            let run = rest.iter().take_while(|t| t.0.wrapping_sub(start) < size).count().max(1);
            let (now, later) = rest.split_at(run);
            let states = self.states_mut(block).unwrap_or_default();
            for slot in now.iter().map(|t| t.0.wrapping_sub(start)) {
                if let Some(state) = states.get_mut(slot as usize) {
                    f(Seat { block, slot, size }, state);
                }
            }
            rest = later;
        }
    }

    fn threads(&self) -> u64 {
        u64::from(self.ctas) * u64::from(self.threads_per_cta)
    }

    #[inline]
    pub(super) fn seat(&self, agent: AgentId) -> Seat {
        match u64::from(agent.0).checked_sub(self.threads()) {
            None => {
                let block = self.cta(ThreadId(agent.0));
                Seat { block, slot: agent.0 - block * self.threads_per_cta, size: self.threads_per_cta }
            }
            Some(index) => {
                let index = index as u32;
                Seat { block: self.ctas.saturating_add(index / AGENTS), slot: index % AGENTS, size: AGENTS }
            }
        }
    }

    fn gather(&mut self, thread: ThreadId, into: &mut Release) {
        let seat = self.seat(thread.into());
        if let Some(state) = self.state_mut(thread) {
            state.tell(seat, into);
        }
    }

    fn learn(&mut self, thread: ThreadId, general: Option<&Rc<Vector>>, proxy: Option<&Rc<View>>) {
        let Some(state) = self.state(thread) else {
            if let Some(state) = self.state_mut(thread) {
                state.base = general.cloned().unwrap_or_else(|| state.base.clone());
                state.proxy = proxy.cloned().unwrap_or_else(|| state.proxy.clone());
            }
            return;
        };
        let (base, visible) = (state.base.clone(), state.proxy.clone());
        let base = general.map(|g| join(&mut self.memo, &base, g));
        let visible = proxy.map(|p| join(&mut self.view_memo, &visible, p));
        if let Some(state) = self.state_mut(thread) {
            state.base = base.unwrap_or_else(|| state.base.clone());
            state.proxy = visible.unwrap_or_else(|| state.proxy.clone());
        }
    }
}

/// What either knows, from the memo if it is asked for again.
fn join<K: Summand>(memo: &mut Memo<K>, a: &Rc<K>, b: &Rc<K>) -> Rc<K> {
    if let Some([x, y, joined]) = memo
        && Rc::ptr_eq(x, a)
        && Rc::ptr_eq(y, b)
    {
        return joined.clone();
    }
    let joined = K::join(a, b);
    *memo = Some([a.clone(), b.clone(), joined.clone()]);
    joined
}
