//! Random programs of a few threads, also judged by sets of events that happened before.

use super::super::{Actor, AsyncId, AsyncKind, Region};
use crate::fault::FaultKind;
use crate::program::{Order, Scope};
use crate::race::{Clocks, Release, ThreadId};
use crate::syntax::ast::Space;
use proptest::prelude::*;
use std::collections::BTreeSet;

const THREADS_PER_CTA: u32 = 40;
/// Lanes of one warp, of two warps of a CTA, and of two CTAs.
const THREADS: [u32; 6] = [0, 1, 33, 40, 41, 79];
const BYTES: usize = 32;
const TOKENS: usize = 3;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Load,
    Store,
    Atomic,
    AsyncRead,
    AsyncWrite,
}

#[derive(Clone, Debug)]
enum Step {
    Access { by: usize, kind: Kind, at: usize, len: usize, order: Order, scope: Scope },
    Barrier(Vec<usize>),
    Release(usize, usize),
    Acquire(usize, usize),
    ClearToken(usize),
    Fence(usize, Scope),
    ProxyFence(usize, Space),
}

type Set = BTreeSet<usize>;

#[derive(Clone, Default)]
struct Knowledge {
    all: Set,
    proxy: Set,
}

impl Knowledge {
    fn learn(&mut self, other: &Knowledge) {
        self.all.extend(&other.all);
        self.proxy.extend(&other.proxy);
    }
}

#[derive(Clone, Default)]
struct Thread {
    knows: Knowledge,
    fenced: Option<(Knowledge, Scope)>,
    /// The knowledge that relaxed loads have seen, and whether only a fence wider than a CTA acquires it.
    seen: Vec<(Knowledge, bool)>,
}

struct Event {
    by: usize,
    kind: Kind,
    bytes: std::ops::Range<usize>,
    strong: Option<Scope>,
}

/// The releases of a location: knowledge, scope, CTA.
type Flags = Vec<(usize, Knowledge, Scope, u32)>;

#[derive(Default)]
struct Oracle {
    threads: Vec<Thread>,
    tokens: Vec<Knowledge>,
    events: Vec<Event>,
    flags: Flags,
}

fn cta(thread: usize) -> u32 {
    THREADS[thread] / THREADS_PER_CTA
}

fn writes(kind: Kind) -> bool {
    !matches!(kind, Kind::Load | Kind::AsyncRead)
}

fn is_async(kind: Kind) -> bool {
    matches!(kind, Kind::AsyncRead | Kind::AsyncWrite)
}

impl Oracle {
    fn new() -> Oracle {
        Oracle {
            threads: vec![Thread::default(); THREADS.len()],
            tokens: vec![Knowledge::default(); TOKENS],
            ..Oracle::default()
        }
    }

    /// All rules that an access breaks.
    fn verdict(&self, new: &Event) -> Vec<FaultKind> {
        let knows = &self.threads[new.by].knows;
        let mut wrong = Vec::new();
        for (id, old) in self.events.iter().enumerate() {
            let meet = old.bytes.start < new.bytes.end && new.bytes.start < old.bytes.end;
            if !meet || !(writes(old.kind) || writes(new.kind)) {
                continue;
            }
            if let (Some(a), Some(b)) = (old.strong, new.strong)
                && (a.min(b) > Scope::Cta || cta(old.by) == cta(new.by))
            {
                continue;
            }
            if !knows.all.contains(&id) {
                wrong.push(FaultKind::Race);
            } else if is_async(new.kind) && !is_async(old.kind) && writes(old.kind) && !knows.proxy.contains(&id) {
                wrong.push(FaultKind::MissingProxyFence);
            }
        }
        wrong
    }

    fn access(&mut self, new: Event, order: Order) {
        let (by, at, scope) = (new.by, new.bytes.start, new.strong.unwrap_or(Scope::Cta));
        let (id, end) = (self.events.len(), new.bytes.end);
        let (reads, stores, rmw) = (!is_async(new.kind), writes(new.kind), new.kind == Kind::Atomic);
        self.events.push(new);
        self.threads[by].knows.all.insert(id);
        if reads && (rmw || !stores) && order != Order::Weak {
            let strong = matches!(order, Order::Acquire | Order::AcqRel);
            for (_, what, reach, from) in self.flags.iter().filter(|f| f.0 == at) {
                let near = *from == cta(by);
                let far = scope.min(*reach) > Scope::Cta;
                let thread = &mut self.threads[by];
                match (strong, near || far) {
                    (_, false) => {}
                    (true, _) => thread.knows.learn(what),
                    (false, _) => thread.seen.push((what.clone(), !near)),
                }
            }
        }
        if stores && reads {
            if !rmw {
                let ends = if order == Order::Weak { end } else { at + 1 };
                self.flags.retain(|f| f.0 < at || f.0 >= ends);
            }
            let thread = &self.threads[by];
            match (order, &thread.fenced) {
                (Order::Weak, _) => {}
                (Order::Release | Order::AcqRel, _) => self.flags.push((at, thread.knows.clone(), scope, cta(by))),
                (_, Some((known, reach))) => self.flags.push((at, known.clone(), scope.min(*reach), cta(by))),
                (_, None) => {}
            }
        }
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Access { .. } => {}
            Step::Barrier(who) => {
                let mut all = Knowledge::default();
                for &thread in who {
                    all.learn(&self.threads[thread].knows);
                }
                for &thread in who {
                    self.threads[thread].knows = all.clone();
                }
            }
            Step::Release(thread, token) => {
                let known = self.threads[*thread].knows.clone();
                self.tokens[*token].learn(&known);
            }
            Step::Acquire(thread, token) => {
                let known = self.tokens[*token].clone();
                self.threads[*thread].knows.learn(&known);
            }
            Step::ClearToken(token) => self.tokens[*token] = Knowledge::default(),
            Step::Fence(thread, scope) => {
                let thread = &mut self.threads[*thread];
                for (what, wide) in std::mem::take(&mut thread.seen) {
                    if !wide || *scope > Scope::Cta {
                        thread.knows.learn(&what);
                    }
                }
                thread.fenced = Some((thread.knows.clone(), *scope));
            }
            Step::ProxyFence(thread, space) => {
                // The memory is that of CTA 0.
                let covers = match space {
                    Space::Global => false,
                    Space::Shared => cta(*thread) == 0,
                    _ => true,
                };
                let knows = &mut self.threads[*thread].knows;
                if covers {
                    knows.proxy = knows.all.clone();
                }
            }
        }
    }
}

struct Real {
    clocks: Clocks,
    region: Region,
    tokens: Vec<Release>,
    asyncs: u64,
}

fn thread(i: usize) -> ThreadId {
    ThreadId(THREADS[i])
}

impl Real {
    fn step(&mut self, step: &Step) -> Option<FaultKind> {
        let clocks = &mut self.clocks;
        match step {
            Step::Access { by, kind, at, len, order, scope } => {
                let (at, id) = (*at as u64, AsyncId(self.asyncs));
                let actor = Actor { order: *order, scope: *scope, ..Actor::weak(thread(*by), 1) };
                let proxied = Actor::asynchronous(thread(*by), 1);
                let result = match kind {
                    Kind::Load => self.region.load(at, &mut vec![0; *len], &actor, clocks),
                    Kind::Store => self.region.store(at, &vec![1; *len], &actor, clocks),
                    Kind::Atomic => self.region.atomic(at, *len as u8, &actor, clocks, |x| x).map(|_| ()),
                    Kind::AsyncRead => self.region.begin(id, AsyncKind::Read, at, *len as u64, &proxied, clocks),
                    Kind::AsyncWrite => self.region.begin(id, AsyncKind::Write, at, *len as u64, &proxied, clocks),
                };
                if is_async(*kind) && result.is_ok() {
                    self.asyncs += 1;
                    self.region.finish(id, clocks.now(thread(*by)), clocks);
                }
                return result.err().map(|v| v.kind);
            }
            Step::Barrier(who) => clocks.barrier(&who.iter().map(|&i| thread(i)).collect::<Vec<_>>()),
            Step::Release(t, token) => clocks.release(thread(*t), &mut self.tokens[*token]),
            Step::Acquire(t, token) => clocks.acquire(thread(*t), &self.tokens[*token]),
            Step::ClearToken(token) => self.tokens[*token].clear(),
            Step::Fence(t, scope) => clocks.fence(thread(*t), *scope),
            Step::ProxyFence(t, space) => clocks.proxy_fence_of(thread(*t), *space),
        }
        None
    }
}

fn any_step() -> impl Strategy<Value = Step> {
    let thread = 0..THREADS.len();
    let token = 0..TOKENS;
    let scope = prop_oneof![Just(Scope::Cta), Just(Scope::Gpu)];
    let space = prop::sample::select(&[Space::Generic, Space::Shared, Space::SharedCluster, Space::Global][..]);
    let order = prop_oneof![
        5 => Just(Order::Weak),
        3 => Just(Order::Relaxed),
        2 => Just(Order::Acquire),
        2 => Just(Order::Release),
        1 => Just(Order::AcqRel)
    ];
    let kind = prop_oneof![
        4 => Just(Kind::Load),
        4 => Just(Kind::Store),
        2 => Just(Kind::Atomic),
        1 => Just(Kind::AsyncRead),
        1 => Just(Kind::AsyncWrite)
    ];
    let access = (thread.clone(), kind, 0..BYTES, 0u32..5, order, scope.clone());
    let access = access.prop_map(|(by, kind, at, size, order, scope)| {
        let len = if kind == Kind::Atomic { 4 } else { 1 << size };
        let order = match (kind, order) {
            (Kind::AsyncRead | Kind::AsyncWrite, _) => Order::Weak,
            (Kind::Atomic, Order::Weak) => Order::Relaxed,
            (Kind::Load, Order::Release | Order::AcqRel) => Order::Acquire,
            (Kind::Store, Order::Acquire | Order::AcqRel) => Order::Release,
            (_, order) => order,
        };
        Step::Access { by, kind, at: at / len * len, len, order, scope }
    });
    prop_oneof![
        10 => access,
        3 => prop::sample::subsequence((0..THREADS.len()).collect::<Vec<_>>(), 1..=THREADS.len())
            .prop_map(Step::Barrier),
        2 => (thread.clone(), token.clone()).prop_map(|(t, k)| Step::Release(t, k)),
        2 => (thread.clone(), token.clone()).prop_map(|(t, k)| Step::Acquire(t, k)),
        1 => token.prop_map(Step::ClearToken),
        2 => (thread.clone(), scope).prop_map(|(t, s)| Step::Fence(t, s)),
        2 => (thread, space).prop_map(|(t, s)| Step::ProxyFence(t, s)),
    ]
}

/// Runs both. Accesses that the oracle finds wrong are left out, except for the last of them. Returns how many were wrong.
fn agree(steps: &[Step]) -> Result<usize, String> {
    let mut oracle = Oracle::new();
    let mut region = Region::uninitialized(1 << 63, BYTES);
    region.write_raw(0, &[0; BYTES]);
    let mut real =
        Real { clocks: Clocks::new(2, THREADS_PER_CTA), region, tokens: vec![Release::new(); TOKENS], asyncs: 0 };
    let mut wrong = 0;
    for (i, step) in steps.iter().enumerate() {
        let Step::Access { by, kind, at, len, order, scope } = step else {
            oracle.step(step);
            real.step(step);
            continue;
        };
        let strong = (*order != Order::Weak).then_some(*scope);
        let event = Event { by: *by, kind: *kind, bytes: *at..at + len, strong };
        let expected = oracle.verdict(&event);
        if expected.is_empty() {
            oracle.access(event, *order);
            if let Some(found) = real.step(step) {
                return Err(format!("step {i} {step:?}: {found:?} reported of an access that is right"));
            }
        } else {
            wrong += 1;
            // A refused access leaves marks behind, so that what follows is judged on a copy.
            let before = real.region.clone();
            match real.step(step) {
                Some(found) if expected.contains(&found) => real.region = before,
                found => return Err(format!("step {i} {step:?}: {found:?} reported, not one of {expected:?}")),
            }
        }
    }
    Ok(wrong)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn races_are_those_of_the_oracle(steps in prop::collection::vec(any_step(), 1..60)) {
        if let Err(message) = agree(&steps) {
            prop_assert!(false, "{}", message);
        }
    }
}

/// The random programs are useful only if both verdicts are common.
#[test]
fn both_verdicts_occur() {
    use proptest::strategy::ValueTree;
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let (mut wrong, mut accesses) = (0, 0);
    for _ in 0..200 {
        let steps = prop::collection::vec(any_step(), 60).new_tree(&mut runner).unwrap().current();
        accesses += steps.iter().filter(|s| matches!(s, Step::Access { .. })).count();
        wrong += agree(&steps).unwrap();
    }
    assert!(wrong * 10 > accesses && wrong * 10 < accesses * 9, "{wrong} of {accesses} accesses are wrong");
}
