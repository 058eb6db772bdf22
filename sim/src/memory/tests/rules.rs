//! Bounds, alignment, permissions, initialisation, mbarriers: each rule is broken once, and just met once.

use super::super::{Actor, AsyncId, AsyncKind, Permission, Region};
use super::{kind, load, shared, store, t, weak};
use crate::fault::FaultKind;
use crate::race::Clocks;

#[test]
fn bounds() {
    let (mut region, mut clocks) = (Region::uninitialized(0, 40), Clocks::new(1, 32));
    let mut words = |at, len: usize| kind(region.store(at, &[0; 16][..len], &weak(0), &mut clocks));
    assert_eq!(words(36, 4), None);
    assert_eq!(words(40, 4), Some(FaultKind::OutOfBounds));
    assert_eq!(words(32, 8), None);
    assert_eq!(words(32, 16), Some(FaultKind::OutOfBounds));
    assert_eq!(words(u64::MAX - 15, 16), Some(FaultKind::OutOfBounds));
    let begin = |at, len| {
        kind(Region::uninitialized(0, 40).begin(AsyncId(0), AsyncKind::Write, at, len, &weak(0), &Clocks::new(1, 1)))
    };
    assert_eq!(begin(0, 40), None);
    assert_eq!(begin(8, 40), Some(FaultKind::OutOfBounds));
    assert_eq!(begin(8, u64::MAX), Some(FaultKind::OutOfBounds));
}

#[test]
fn alignment() {
    let (mut region, mut clocks) = (shared(), Clocks::new(1, 32));
    for (len, at) in [(2, 1), (4, 2), (8, 4), (16, 8)] {
        assert_eq!(kind(region.load(at, &mut vec![0; len], &weak(0), &mut clocks)), Some(FaultKind::Misaligned));
        assert_eq!(kind(region.load(2 * at, &mut vec![0; len], &weak(0), &mut clocks)), None);
    }
    assert_eq!(kind(region.atomic(2, 4, &weak(0), &mut clocks, |x| x)), Some(FaultKind::Misaligned));
}

#[test]
fn permission() {
    let mut clocks = Clocks::new(1, 32);
    let mut region = Region::new(0, vec![1; 64], Permission::ReadOnly);
    assert_eq!(load(&mut region, &mut clocks, 0, weak(0)), None);
    assert_eq!(store(&mut region, &mut clocks, 0, weak(0)), Some(FaultKind::ReadOnly));
    assert_eq!(kind(region.atomic(0, 4, &weak(0), &mut clocks, |x| x)), Some(FaultKind::ReadOnly));
    for (what, verdict) in [
        (AsyncKind::Read, None),
        (AsyncKind::Write, Some(FaultKind::ReadOnly)),
        (AsyncKind::Reduce, Some(FaultKind::ReadOnly)),
    ] {
        assert_eq!(kind(region.begin(AsyncId(0), what, 0, 16, &weak(0), &clocks)), verdict);
    }
    let mut region = Region::new(0, vec![1; 64], Permission::ReadWrite);
    assert_eq!(store(&mut region, &mut clocks, 0, weak(0)), None);
}

#[test]
fn initialization() {
    let (mut region, mut clocks) = (Region::uninitialized(0, 256), Clocks::new(1, 32));
    let by = weak(0);
    assert_eq!(load(&mut region, &mut clocks, 48, by), Some(FaultKind::UninitializedRead));
    region.store(48, &[1; 8], &by, &mut clocks).unwrap();
    region.store(60, &[1; 4], &by, &mut clocks).unwrap();
    let found = region.load(48, &mut [0; 16], &by, &mut clocks).unwrap_err();
    assert_eq!((found.kind, found.offset), (FaultKind::UninitializedRead, 56));
    assert_eq!(
        kind(region.begin(AsyncId(0), AsyncKind::Read, 40, 24, &by, &clocks)),
        Some(FaultKind::UninitializedRead)
    );
    assert_eq!(kind(region.atomic(56, 4, &by, &mut clocks, |x| x)), Some(FaultKind::UninitializedRead));
    region.store(56, &[1; 4], &by, &mut clocks).unwrap();
    assert_eq!(load(&mut region, &mut clocks, 48, by), None);
    assert_eq!(region.missing(48, 16), None);
    // Across the words of the set of initialised bytes.
    assert!(region.write_raw(60, &[0; 100]));
    assert_eq!((region.missing(50, 110), region.missing(50, 111)), (None, Some(160)));
    assert!(!region.write_raw(200, &[0; 57]));
}

#[test]
fn values() {
    let (mut region, mut clocks) = (shared(), Clocks::new(1, 32));
    region.store(8, &[1, 2, 3, 4], &weak(0), &mut clocks).unwrap();
    assert_eq!(region.atomic(8, 4, &weak(0), &mut clocks, |x| x + 0xff), Ok(0x0403_0201));
    let mut out = [0; 8];
    region.load(8, &mut out, &weak(0), &mut clocks).unwrap();
    assert_eq!(out, [0, 3, 3, 4, 0, 0, 0, 0]);
}

#[test]
fn mbarriers_are_no_plain_memory() {
    let (mut region, mut clocks) = (shared(), Clocks::new(1, 64));
    assert_eq!(kind(region.use_barrier(64, &weak(0), &clocks)), Some(FaultKind::NotABarrier));
    region.set_barrier(64, &weak(0), &clocks).unwrap();
    assert_eq!(kind(region.use_barrier(64, &weak(0), &clocks)), None);
    for (at, verdict) in [(48, None), (64, Some(FaultKind::NotABarrier)), (80, None)] {
        assert_eq!(load(&mut region, &mut clocks, at, weak(0)), verdict);
        assert_eq!(store(&mut region, &mut clocks, at, weak(0)), verdict);
    }
    let copy = |region: &mut Region, at| kind(region.begin(AsyncId(0), AsyncKind::Write, at, 16, &weak(0), &clocks));
    assert_eq!(copy(&mut region, 56), Some(FaultKind::NotABarrier));
    assert_eq!(copy(&mut region, 72), None);
    assert_eq!(kind(region.set_barrier(64, &weak(0), &clocks)), Some(FaultKind::NotABarrier));
    region.clear_barrier(64, &weak(0), &clocks).unwrap();
    assert_eq!(kind(region.use_barrier(64, &weak(0), &clocks)), Some(FaultKind::NotABarrier));
    let mut word = [0; 8];
    let found = region.load(64, &mut word, &weak(0), &mut clocks);
    assert_eq!(kind(found), Some(FaultKind::UninitializedRead));
    assert_eq!(kind(region.store(64, &word, &weak(0), &mut clocks)), None);
}

#[test]
fn mbarriers_are_initialized_before_use() {
    let (mut region, mut clocks) = (shared(), Clocks::new(1, 64));
    region.set_barrier(0, &weak(0), &clocks).unwrap();
    assert_eq!(kind(region.clone().use_barrier(0, &weak(40), &clocks)), Some(FaultKind::Race));
    clocks.barrier(&[t(0), t(40)]);
    assert_eq!(kind(region.use_barrier(0, &weak(40), &clocks)), None);
    // Uses do not race with one another, but with the end of the barrier.
    assert_eq!(kind(region.use_barrier(0, &weak(0), &clocks)), None);
    assert_eq!(kind(region.clone().clear_barrier(0, &weak(0), &clocks)), Some(FaultKind::Race));
    clocks.barrier(&[t(0), t(40)]);
    assert_eq!(kind(region.clear_barrier(0, &weak(0), &clocks)), None);
}

#[test]
fn non_coherent_loads() {
    let mut clocks = Clocks::new(1, 64);
    let nc = Actor { non_coherent: true, ..weak(0) };
    let mut region = shared();
    assert_eq!(load(&mut region, &mut clocks, 0, nc), None);
    clocks.barrier(&[t(0), t(1)]);
    assert_eq!(load(&mut region, &mut clocks, 0, weak(1)), None);
    assert_eq!(store(&mut region, &mut clocks, 16, weak(1)), None);
    assert_eq!(store(&mut region, &mut clocks, 0, weak(1)), Some(FaultKind::ReadOnly));
    clocks.barrier(&[t(0), t(1)]);
    assert_eq!(load(&mut region, &mut clocks, 16, weak(0)), None);
    assert_eq!(load(&mut region, &mut clocks, 16, nc), Some(FaultKind::ReadOnly));
}

#[test]
fn words_of_a_violation() {
    let (mut region, mut clocks) = (shared(), Clocks::new(1, 64));
    region.store(16, &[0; 4], &Actor::weak(t(3), 12), &mut clocks).unwrap();
    let found = region.load(16, &mut [0; 16], &Actor::weak(t(40), 34), &mut clocks).unwrap_err();
    assert_eq!(found.to_string(), "a load of 16 bytes at offset 0x10 is not ordered after a store");
    let earlier = found.earlier.unwrap();
    assert_eq!((earlier.thread, earlier.line), (Some(t(3)), 12));
}
