//! Asynchronous operations: in flight until finished, and fences between the proxies.

use super::super::{Actor, AsyncId, AsyncKind, Region};
use super::{Clocks, FaultKind, kind, load, shared, store, t, weak};
use crate::program::{Order, Scope};
use crate::race::Release;
use crate::syntax::ast::Space;

const IN_FLIGHT: Option<FaultKind> = Some(FaultKind::InFlight);
const FENCE: Option<FaultKind> = Some(FaultKind::MissingProxyFence);
const RACE: Option<FaultKind> = Some(FaultKind::Race);

fn tma(thread: u32) -> Actor {
    Actor::asynchronous(t(thread), 7)
}

fn begin(region: &mut Region, clocks: &Clocks, id: u64, what: AsyncKind, at: u64, by: Actor) -> Option<FaultKind> {
    kind(region.begin(AsyncId(id), what, at, 64, &by, clocks))
}

/// Accesses that are allowed while an operation uses the bytes.
#[test]
fn in_flight() {
    use AsyncKind::{Read, Reduce, Write};
    let atomic = Actor { order: Order::Relaxed, scope: Scope::Gpu, ..weak(0) };
    for (what, may_load, may_store, may_add, may_begin) in [
        (Read, true, false, false, [true, false, false]),
        (Write, false, false, false, [false, false, false]),
        (Reduce, false, false, true, [false, false, true]),
    ] {
        let (region, mut clocks) = (shared(), Clocks::new(1, 64));
        let mut flying = region;
        assert_eq!(begin(&mut flying, &clocks, 0, what, 32, tma(0)), None);
        assert!(flying.in_flight());
        let verdict = |may: bool| if may { None } else { IN_FLIGHT };
        for at in [32, 80] {
            assert_eq!(load(&mut flying.clone(), &mut clocks, at, weak(0)), verdict(may_load));
            assert_eq!(store(&mut flying.clone(), &mut clocks, at, weak(0)), verdict(may_store));
            assert_eq!(kind(flying.clone().atomic(at, 4, &atomic, &mut clocks, |x| x)), verdict(may_add));
            for (other, may) in [Read, Write, Reduce].into_iter().zip(may_begin) {
                assert_eq!(
                    begin(&mut flying.clone(), &clocks, 1, other, at, tma(0)),
                    verdict(may),
                    "{what:?} {other:?}"
                );
            }
        }
        for at in [16, 96] {
            assert_eq!(store(&mut flying.clone(), &mut clocks, at, weak(0)), None);
        }
        flying.finish(AsyncId(0), clocks.now(t(0)), &clocks);
        assert!(!flying.in_flight());
        assert_eq!(store(&mut flying, &mut clocks, 32, weak(0)), None);
    }
}

#[test]
fn the_other_side_is_named() {
    let (mut region, mut clocks) = (shared(), Clocks::new(1, 64));
    assert_eq!(begin(&mut region, &clocks, 0, AsyncKind::Read, 0, Actor { line: 5, ..tma(3) }), None);
    assert_eq!(begin(&mut region, &clocks, 1, AsyncKind::Write, 64, Actor { line: 6, ..tma(4) }), None);
    let found = region.load(64, &mut [0; 4], &weak(9), &mut clocks).unwrap_err();
    assert_eq!(found.earlier.map(|e| (e.thread, e.line)), Some((Some(t(4)), 6)));
    let found = region.store(0, &[0; 4], &weak(9), &mut clocks).unwrap_err();
    assert_eq!(found.earlier.map(|e| (e.thread, e.line)), Some((Some(t(3)), 5)));
}

#[test]
fn overlapping_reads_end_one_by_one() {
    let (mut region, mut clocks) = (shared(), Clocks::new(1, 64));
    for id in 0..3 {
        assert_eq!(begin(&mut region, &clocks, id, AsyncKind::Read, 16 * id, tma(0)), None);
    }
    // A narrow access in between refines the cells, marks and all.
    assert_eq!(kind(region.load(40, &mut [0], &weak(0), &mut clocks)), None);
    for id in [1, 0, 2] {
        assert_eq!(store(&mut region.clone(), &mut clocks, 48, weak(0)), IN_FLIGHT);
        region.finish(AsyncId(id), clocks.now(t(0)), &clocks);
    }
    assert_eq!(store(&mut region, &mut clocks, 48, weak(0)), None);
}

#[test]
fn a_copy_in_is_seen_by_those_who_wait() {
    let (mut region, mut clocks) = (shared(), Clocks::new(1, 128));
    let barrier = clocks.new_agent(0);
    assert_eq!(begin(&mut region, &clocks, 0, AsyncKind::Write, 0, tma(0)), None);
    let mut phase = Release::new();
    let done = clocks.complete(barrier, &mut phase);
    region.write_raw(0, &[3; 64]);
    region.finish(AsyncId(0), done, &clocks);
    assert_eq!(load(&mut region.clone(), &mut clocks, 0, weak(64)), RACE);
    clocks.acquire(t(64), &phase);
    assert_eq!(load(&mut region, &mut clocks, 0, weak(64)), None);
    // The issuing thread has to wait too.
    assert_eq!(load(&mut region.clone(), &mut clocks, 0, weak(0)), RACE);
    // What a copy wrote, another asynchronous operation reads without a fence.
    assert_eq!(begin(&mut region, &clocks, 1, AsyncKind::Read, 0, tma(64)), None);
}

#[test]
fn loads_before_a_copy_in_need_no_proxy_fence() {
    let (mut region, mut clocks) = (shared(), Clocks::new(1, 128));
    assert_eq!(load(&mut region, &mut clocks, 0, weak(40)), None);
    assert_eq!(begin(&mut region.clone(), &clocks, 0, AsyncKind::Write, 0, tma(0)), RACE);
    let mut empty = Release::new();
    clocks.release(t(40), &mut empty);
    clocks.acquire(t(0), &empty);
    assert_eq!(begin(&mut region, &clocks, 0, AsyncKind::Write, 0, tma(0)), None);
}

/// Stores, a proxy fence at various places, then an asynchronous operation by thread 0.
#[test]
fn stores_before_an_asynchronous_operation_need_a_proxy_fence() {
    #[derive(Clone, Copy, PartialEq)]
    enum Fence {
        None,
        WriterBefore,
        Writer,
        OneWriter,
        IssuerBefore,
        Issuer,
    }
    for (fence, verdict) in [
        (Fence::None, FENCE),
        (Fence::WriterBefore, FENCE),
        (Fence::Writer, None),
        (Fence::OneWriter, FENCE),
        (Fence::IssuerBefore, FENCE),
        (Fence::Issuer, None),
    ] {
        for what in [AsyncKind::Read, AsyncKind::Write, AsyncKind::Reduce] {
            let (mut region, mut clocks) = (shared(), Clocks::new(1, 128));
            let writers = [0, 1, 40, 100];
            for (i, writer) in writers.into_iter().enumerate() {
                if fence == Fence::WriterBefore {
                    clocks.proxy_fence(t(writer));
                }
                assert_eq!(store(&mut region, &mut clocks, 16 * i as u64, weak(writer)), None);
                if fence == Fence::Writer || (fence == Fence::OneWriter && writer == 40) {
                    clocks.proxy_fence(t(writer));
                }
            }
            if fence == Fence::IssuerBefore {
                clocks.proxy_fence(t(0));
            }
            assert_ne!(begin(&mut region.clone(), &clocks, 0, what, 0, tma(1)), None, "no barrier yet");
            clocks.barrier(&writers.map(t));
            if fence == Fence::Issuer {
                clocks.proxy_fence(t(0));
            }
            assert_eq!(begin(&mut region, &clocks, 0, what, 0, tma(0)), verdict);
        }
    }
}

#[test]
fn cp_async_is_generic() {
    let (mut region, mut clocks) = (shared(), Clocks::new(1, 128));
    assert_eq!(store(&mut region, &mut clocks, 0, weak(0)), None);
    assert_eq!(begin(&mut region, &clocks, 0, AsyncKind::Write, 0, weak(0)), None, "needs no proxy fence");
    region.finish(AsyncId(0), clocks.now(t(0)), &clocks);
    assert_eq!(load(&mut region, &mut clocks, 0, weak(0)), None);
    assert_eq!(load(&mut region.clone(), &mut clocks, 0, weak(1)), RACE, "another thread needs a barrier");
    clocks.barrier(&[t(0), t(1)]);
    assert_eq!(load(&mut region, &mut clocks, 0, weak(1)), None);
    assert_eq!(begin(&mut region, &clocks, 1, AsyncKind::Read, 0, tma(1)), FENCE, "but leads to wgmma with one");
    clocks.proxy_fence(t(1));
    assert_eq!(begin(&mut region, &clocks, 1, AsyncKind::Read, 0, tma(1)), None);
}

#[test]
fn readers_that_never_end_take_bounded_room() {
    let (mut region, mut clocks) = (shared(), Clocks::new(1, 128));
    let group = clocks.new_agent(0);
    let mut token = Release::new();
    for id in 0..1000 {
        assert_eq!(begin(&mut region, &clocks, id, AsyncKind::Read, 0, tma(0)), None);
        token.clear();
        let done = clocks.complete(group, &mut token);
        region.finish(AsyncId(id), done, &clocks);
    }
    assert_eq!(store(&mut region.clone(), &mut clocks, 0, weak(0)), RACE);
    clocks.acquire(t(0), &token);
    assert_eq!(store(&mut region, &mut clocks, 0, weak(0)), None);
}

/// A store by thread 0 of CTA 0 into shared memory of a CTA or into global memory, a fence of a space by a thread of a CTA, and
/// an asynchronous read by a thread of the CTA that has the memory.
#[test]
fn fences_order_the_space_that_they_name() {
    use Space::{Generic, Global, Shared, SharedCluster};
    for (memory, writer, reader, orders) in [
        (1 << 63, [Generic, Shared, SharedCluster], [Generic, Shared, SharedCluster], [0, 0]),
        (1 << 63 | 1, [Generic, SharedCluster, SharedCluster], [Generic, Shared, SharedCluster], [0, 1]),
        (0x7f00_0000_0000, [Generic, Global, Global], [Generic, Global, Global], [0, 0]),
    ] {
        for (by_writer, space) in
            [true, false].into_iter().flat_map(|w| [Generic, Shared, SharedCluster, Global].map(|s| (w, s)))
        {
            let mut region = Region::uninitialized(memory, 4096);
            region.write_raw(0, &[0; 4096]);
            let mut clocks = Clocks::new(2, 64);
            let (from, to) = (64 * orders[0], 64 * orders[1] + 3);
            assert_eq!(store(&mut region, &mut clocks, 0, weak(from)), None);
            if by_writer {
                clocks.proxy_fence_of(t(from), space);
            }
            let mut token = Release::new();
            clocks.release(t(from), &mut token);
            clocks.acquire(t(to), &token);
            if !by_writer {
                clocks.proxy_fence_of(t(to), space);
            }
            let right = if by_writer { writer } else { reader }.contains(&space);
            let found = begin(&mut region, &clocks, 0, AsyncKind::Read, 0, tma(to));
            assert_eq!(found, if right { None } else { FENCE }, "{memory:#x} {space:?}, by the writer: {by_writer}");
        }
    }
}

#[test]
fn a_fence_of_other_memory_is_named() {
    let (mut region, mut clocks) = (shared(), Clocks::new(1, 64));
    assert_eq!(store(&mut region, &mut clocks, 0, weak(0)), None);
    let why = |region: &mut Region, clocks: &Clocks| {
        region.begin(AsyncId(0), AsyncKind::Read, 0, 16, &tma(0), clocks).unwrap_err().why
    };
    assert!(why(&mut region, &clocks).contains("no fence.proxy.async"));
    clocks.proxy_fence_of(t(0), Space::Global);
    assert!(why(&mut region, &clocks).contains("only a fence.proxy.async of other memory"));
}

/// A tensor map that a thread writes and another one uses.
#[test]
fn written_maps_are_released_and_acquired() {
    for (release, acquire, address, verdict) in
        [(true, true, 0, None), (false, true, 0, FENCE), (true, false, 0, FENCE), (true, true, 64, FENCE)]
    {
        let base = 0x7f00_0000_0000;
        let mut region = Region::uninitialized(base, 256);
        let mut clocks = Clocks::new(1, 64);
        for at in (0..128).step_by(16) {
            assert_eq!(store(&mut region, &mut clocks, at, weak(1)), None);
        }
        if release {
            clocks.release_maps(t(1));
        }
        clocks.proxy_fence(t(1));
        clocks.barrier(&[t(0), t(1)]);
        if acquire {
            clocks.acquire_map(t(0), base + address);
        }
        clocks.proxy_fence(t(0));
        let found = region.begin(AsyncId(0), AsyncKind::Read, 0, 128, &Actor::of_map(t(0), 7), &clocks);
        assert_eq!(kind(found), verdict, "{release} {acquire} {address}");
        assert_eq!(
            kind(region.begin(AsyncId(1), AsyncKind::Read, 128, 64, &Actor::of_map(t(0), 7), &clocks)),
            Some(FaultKind::UninitializedRead)
        );
    }
}
