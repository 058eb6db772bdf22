//! The global address space.

use super::super::{Global, Permission};
use super::{Clocks, FaultKind, kind, t, weak};

#[test]
fn addresses() {
    let mut global = Global::new();
    let a = global.alloc(vec![1; 100], Permission::ReadWrite);
    let b = global.alloc_uninitialized(0);
    let c = global.alloc(vec![2; 5000], Permission::ReadWrite);
    assert!(a >= 0x7f00_0000_0000 && [a, b, c].iter().all(|x| x % 256 == 0));
    assert!(b >= a + 100 + 4096 && c >= b + 4096);
    assert_eq!(global.region_at(a, 100).map(|(r, at)| (r.len(), at)), Ok((100, 0)));
    assert_eq!(global.region_at(c + 4999, 1).map(|(r, at)| (r.len(), at)), Ok((5000, 4999)));
    assert_eq!(global.region_at(a + 96, 4).map(|(_, at)| at), Ok(96));
    assert_eq!(global.read(c + 4990, 10), Ok(&[2; 10][..]));
    global.write(a + 98, &[9, 9]).unwrap();
    assert_eq!(global.read(a + 96, 4), Ok(&[1, 1, 9, 9][..]));
    assert_eq!(global.allocations().collect::<Vec<_>>(), [a..a + 100, b..b, c..c + 5000]);
}

#[test]
fn out_of_bounds_says_how_far() {
    let mut global = Global::new();
    let none = global.region_at(0x10, 4).unwrap_err();
    assert_eq!(none.to_string(), "4 bytes at 0x10 are in no allocation: there is none");
    let a = global.alloc(vec![1; 100], Permission::ReadWrite);
    let past = format!("the allocation of 100 bytes at {a:#x}");
    for (at, words) in [
        (a - 8, format!("8 bytes before {past}")),
        (a + 98, format!("partly past the end of {past}: offset 98")),
        (a + 100, format!("0 bytes past the end of {past}")),
        (a + 132, format!("32 bytes past the end of {past}")),
    ] {
        let found = global.region_at(at, 4).map(|_| ()).unwrap_err();
        assert_eq!(found.to_string(), format!("4 bytes at {at:#x} are {words}"));
        assert_eq!(global.read(at, 4).unwrap_err(), found);
    }
    assert!(global.region_at(u64::MAX, 4).is_err() && global.region_at(a, u64::MAX).is_err());
    assert!(global.read(u64::MAX, u64::MAX).is_err());
}

#[test]
fn freed_memory_is_gone() {
    let mut global = Global::new();
    let a = global.alloc(vec![1; 100], Permission::ReadWrite);
    assert!(global.region_at(a, 4).is_ok());
    assert!(global.free(a));
    assert!(!global.free(a) && global.region_at(a, 4).is_err() && global.region_at(a, 0).is_err());
    let b = global.alloc(vec![2; 100], Permission::ReadWrite);
    assert!(b > a && global.region_at(a, 4).is_err() && global.read(b, 1) == Ok(&[2]));
}

#[test]
fn module_variables() {
    let mut global = Global::new();
    assert!(global.define(0x1000, vec![5; 16], Permission::ReadWrite));
    assert!(global.define(0x1010, vec![6; 16], Permission::ReadOnly));
    assert!(!global.define(0x1008, vec![7; 4], Permission::ReadWrite));
    assert!(!global.define(0x0ff8, vec![7; 64], Permission::ReadWrite));
    assert!(global.define(u64::MAX - 8, vec![7; 9], Permission::ReadWrite) || global.region_at(0x1000, 1).is_ok());
    assert_eq!(global.read(0x100f, 1), Ok(&[5][..]));
    assert!(global.read(0x100f, 2).is_err());
}

#[test]
fn launches_may_take_less() {
    let (mut global, mut clocks) = (Global::new(), Clocks::new(1, 64));
    let a = global.alloc(vec![0; 256], Permission::ReadWrite);
    let b = global.alloc(vec![0; 256], Permission::ReadWrite);
    let mut store = |global: &mut Global, at: u64, by: u32| {
        let (region, offset) = global.region_at(at, 4).unwrap();
        kind(region.store(offset, &[1; 4], &weak(by), &mut clocks))
    };
    global.begin_launch(&[(a, 256), (b + 64, 64)]);
    let read_only = Some(FaultKind::ReadOnly);
    assert_eq!(store(&mut global, a, 0), read_only);
    for (at, verdict) in [(60, None), (64, read_only), (124, read_only), (128, None)] {
        assert_eq!(store(&mut global, b + at, 0), verdict);
    }
    global.begin_launch(&[]);
    assert_eq!(store(&mut global, a, 0), None);
    assert_eq!(store(&mut global, b + 64, 0), None);
    // What an earlier launch did, later ones come after.
    assert_eq!(store(&mut global, a, 1), Some(FaultKind::Race));
    global.begin_launch(&[]);
    assert_eq!(store(&mut global, a, 1), None);
    assert!(clocks.ordered(t(0), clocks.now(t(0))));
}

#[test]
fn regions_can_move_between_host_threads() {
    fn sendable<T: Send + Sync>() {}
    sendable::<Global>();
    sendable::<super::super::Shared>();
    sendable::<super::super::Violation>();
}
