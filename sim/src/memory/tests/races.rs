//! Races: constructs that order two accesses, and constructs that do not.

use super::super::{Actor, Region};
use super::{Clocks, FaultKind, kind, load, shared, store, t, weak};
use crate::program::{Order, Scope};
use crate::race::{Epoch, Release};

const RACE: Option<FaultKind> = Some(FaultKind::Race);

fn setup() -> (Region, Clocks) {
    (shared(), Clocks::new(4, 64))
}

fn strong(thread: u32, order: Order, scope: Scope) -> Actor {
    Actor { order, scope, ..weak(thread) }
}

#[test]
fn lanes_of_a_warp_race_too() {
    let (mut region, mut clocks) = setup();
    assert_eq!(store(&mut region, &mut clocks, 0, weak(0)), None);
    assert_eq!(store(&mut region, &mut clocks, 0, weak(0)), None);
    assert_eq!(load(&mut region, &mut clocks, 0, weak(0)), None);
    assert_eq!(load(&mut region.clone(), &mut clocks, 0, weak(1)), RACE);
    assert_eq!(store(&mut region.clone(), &mut clocks, 0, weak(1)), RACE);
    clocks.warp_barrier(&[t(0), t(1)]);
    assert_eq!(store(&mut region, &mut clocks, 0, weak(1)), None);
    assert_eq!(store(&mut region, &mut clocks, 0, weak(0)), RACE);
}

#[test]
fn every_reader_counts() {
    let (mut region, mut clocks) = setup();
    for reader in [0, 1, 40, 64, 200] {
        assert_eq!(load(&mut region, &mut clocks, 0, weak(reader)), None);
    }
    let all = [0, 1, 40, 64, 200].map(t);
    for left_out in all {
        let mut clocks = Clocks::new(4, 64);
        let mut region = shared();
        for reader in all {
            assert_eq!(load(&mut region, &mut clocks, 0, weak(reader.0)), None);
        }
        let mut others: Vec<_> = all.into_iter().filter(|&r| r != left_out).collect();
        others.push(t(50));
        clocks.barrier(&others);
        let found = region.store(0, &[0; 16], &weak(50), &mut clocks).unwrap_err();
        assert_eq!(found.earlier.unwrap().thread, Some(left_out));
    }
    clocks.barrier(&[&all[..], &[t(50)]].concat());
    assert_eq!(store(&mut region, &mut clocks, 0, weak(50)), None);
}

#[test]
fn neighbours_do_not_race() {
    let (mut region, mut clocks) = setup();
    for byte in 0..32 {
        assert_eq!(kind(region.store(byte, &[1], &weak(byte as u32), &mut clocks)), None);
    }
    assert_eq!(kind(region.store(2, &[1; 2], &weak(2), &mut clocks)), RACE);
    // A wide access, then narrow ones: each part remembers.
    assert_eq!(store(&mut region, &mut clocks, 64, weak(0)), None);
    assert_eq!(kind(region.store(80, &[1], &weak(1), &mut clocks)), None);
    for byte in 64..80 {
        assert_eq!(kind(region.clone().load(byte, &mut [0], &weak(1), &mut clocks)), RACE);
    }
}

#[test]
fn what_one_barrier_orders_another_thread_does_not_know() {
    let (mut region, mut clocks) = setup();
    assert_eq!(store(&mut region, &mut clocks, 0, weak(0)), None);
    clocks.barrier(&[t(0), t(1)]);
    assert_eq!(load(&mut region.clone(), &mut clocks, 0, weak(2)), RACE);
    clocks.barrier(&[t(1), t(2)]);
    assert_eq!(load(&mut region, &mut clocks, 0, weak(2)), None);
}

#[test]
fn tokens_order_one_way() {
    let (mut region, mut clocks) = setup();
    let mut token = Release::new();
    assert_eq!(store(&mut region, &mut clocks, 0, weak(0)), None);
    clocks.release(t(0), &mut token);
    assert_eq!(store(&mut region, &mut clocks, 16, weak(0)), None);
    assert_eq!(store(&mut region, &mut clocks, 32, weak(70)), None);
    clocks.acquire(t(70), &token);
    assert_eq!(load(&mut region, &mut clocks, 0, weak(70)), None);
    assert_eq!(load(&mut region.clone(), &mut clocks, 16, weak(70)), RACE, "after the release");
    assert_eq!(load(&mut region.clone(), &mut clocks, 32, weak(0)), RACE, "the wrong way");
    assert_eq!(load(&mut region, &mut clocks, 0, weak(71)), RACE, "has not acquired");
}

#[test]
fn a_phase_orders_what_its_agent_did() {
    let (_, mut clocks) = setup();
    let barrier = clocks.new_agent(1);
    assert_ne!(barrier, clocks.new_agent(1));
    assert_ne!(barrier, clocks.new_agent(2));
    assert_eq!(clocks.thread(barrier), None);
    let mut token = Release::new();
    let first = clocks.complete(barrier, &mut token);
    let second = clocks.complete(barrier, &mut Release::new());
    assert_eq!((first.time, second.time), (1, 2));
    assert!(!clocks.ordered(t(5), first));
    clocks.acquire(t(5), &token);
    assert!(clocks.ordered(t(5), first));
    assert!(!clocks.ordered(t(5), second));
}

#[test]
fn atomics_race_only_with_weak_accesses() {
    let (mut region, mut clocks) = setup();
    let relaxed = |thread| strong(thread, Order::Relaxed, Scope::Gpu);
    for thread in [0, 1, 40, 200] {
        assert_eq!(kind(region.atomic(0, 4, &relaxed(thread), &mut clocks, |x| x + 1)), None);
        assert_eq!(kind(region.load(0, &mut [0; 4], &relaxed(thread), &mut clocks)), None);
        assert_eq!(kind(region.store(0, &[0; 4], &relaxed(thread), &mut clocks)), None);
    }
    assert_eq!(kind(region.clone().load(0, &mut [0; 4], &weak(0), &mut clocks)), RACE);
    assert_eq!(kind(region.clone().store(0, &[0; 4], &weak(9), &mut clocks)), RACE);
    let everyone = [0, 1, 40, 200, 9].map(t);
    clocks.barrier(&everyone);
    assert_eq!(kind(region.load(0, &mut [0; 4], &weak(9), &mut clocks)), None);
    assert_eq!(kind(region.atomic(0, 4, &relaxed(0), &mut clocks, |x| x)), RACE, "with the weak load");
}

#[test]
fn scope_of_a_cta_does_not_reach_another() {
    let cta = |thread| strong(thread, Order::Relaxed, Scope::Cta);
    let (mut region, mut clocks) = setup();
    let mut add = |by| kind(region.atomic(0, 4, &by, &mut clocks, |x| x + 1));
    assert_eq!(add(cta(0)), None);
    assert_eq!(add(cta(63)), None);
    assert_eq!(add(cta(64)), RACE);
}

/// A flag at 0 that thread 0 publishes and a thread of another CTA reads, in each way that PTX allows.
#[test]
fn flags() {
    use Order::{Acquire, Relaxed, Release};
    let fence = Some(Scope::Gpu);
    // Order of the write, fence before it, order of the read, fence after it, scope of both: whether they order.
    for (write, before, read, after, scope, orders) in [
        (Release, None, Acquire, None, Scope::Gpu, true),
        (Relaxed, fence, Acquire, None, Scope::Gpu, true),
        (Release, None, Relaxed, fence, Scope::Gpu, true),
        (Relaxed, fence, Relaxed, fence, Scope::Gpu, true),
        (Relaxed, None, Acquire, None, Scope::Gpu, false),
        (Release, None, Relaxed, None, Scope::Gpu, false),
        (Relaxed, None, Relaxed, fence, Scope::Gpu, false),
        (Relaxed, fence, Relaxed, None, Scope::Gpu, false),
        (Relaxed, Some(Scope::Cta), Acquire, None, Scope::Gpu, false),
        (Release, None, Relaxed, Some(Scope::Cta), Scope::Gpu, false),
    ] {
        for rmw in [false, true] {
            let (mut region, mut clocks) = setup();
            assert_eq!(store(&mut region, &mut clocks, 16, weak(0)), None);
            if let Some(reach) = before {
                clocks.fence(t(0), reach);
            }
            let by = strong(0, write, scope);
            if rmw {
                assert_eq!(kind(region.atomic(0, 4, &by, &mut clocks, |_| 1)), None);
                // Another's relaxed increment continues what was released.
                let other = strong(130, Relaxed, scope);
                assert_eq!(kind(region.atomic(0, 4, &other, &mut clocks, |x| x + 1)), None);
            } else {
                assert_eq!(kind(region.store(0, &[1, 0, 0, 0], &by, &mut clocks)), None);
            }
            assert_eq!(kind(region.load(0, &mut [0; 4], &strong(70, read, scope), &mut clocks)), None);
            if let Some(reach) = after {
                clocks.fence(t(70), reach);
            }
            let verdict = load(&mut region, &mut clocks, 16, weak(70));
            assert_eq!(verdict, if orders { None } else { RACE }, "{write:?} {before:?} {read:?} {after:?} {rmw}");
        }
    }
}

#[test]
fn a_counter_hands_on_what_all_released() {
    let (mut region, mut clocks) = (shared(), Clocks::new(8, 64));
    for thread in 0..300 {
        assert_eq!(kind(region.store(4 + 4 * u64::from(thread), &[1; 4], &weak(thread), &mut clocks)), None);
        let add = strong(thread, Order::Release, Scope::Gpu);
        assert_eq!(kind(region.atomic(0, 4, &add, &mut clocks, |x| x + 1)), None);
    }
    let all =
        |thread, clocks: &Clocks| (0..300).all(|i| clocks.ordered(t(thread), Epoch { agent: t(i).into(), time: 1 }));
    assert!(!all(400, &clocks));
    let last = strong(400, Order::AcqRel, Scope::Gpu);
    assert_eq!(region.atomic(0, 4, &last, &mut clocks, |x| x + 1), Ok(300));
    assert!(all(400, &clocks) && !all(401, &clocks));
}

#[test]
fn a_store_ends_what_a_flag_released() {
    let (mut region, mut clocks) = setup();
    assert_eq!(store(&mut region, &mut clocks, 16, weak(0)), None);
    region.store(0, &[1; 4], &strong(0, Order::Release, Scope::Gpu), &mut clocks).unwrap();
    region.store(0, &[2; 4], &strong(130, Order::Relaxed, Scope::Gpu), &mut clocks).unwrap();
    region.load(0, &mut [0; 4], &strong(70, Order::Acquire, Scope::Gpu), &mut clocks).unwrap();
    assert_eq!(load(&mut region, &mut clocks, 16, weak(70)), RACE);
}

#[test]
fn clocks_of_strangers_take_no_memory() {
    let mut clocks = Clocks::new(1 << 20, 1024);
    let far = t((1 << 30) - 1);
    clocks.barrier(&[t(0), t(1)]);
    assert!(clocks.ordered(t(0), Epoch { agent: t(1).into(), time: 1 }));
    assert!(!clocks.ordered(far, clocks.now(t(0))));
    assert_eq!(clocks.cta(far), (1 << 20) - 1);
    clocks.end_cta(0);
}

#[test]
fn division_is_exact() {
    for size in [1, 2, 3, 7, 32, 96, 1000, 1023, 1024] {
        let clocks = Clocks::new(u32::MAX / size, size);
        for thread in [0, 1, size - 1, size, size + 1, 12345 * size - 1, 12345 * size, u32::MAX - 1, u32::MAX] {
            assert_eq!(clocks.cta(t(thread)), thread / size, "{thread} by {size}");
        }
    }
}
