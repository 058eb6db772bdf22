//! Tests of memory: each violation with its negative control, and races against an oracle.

mod bench;
mod flights;
mod global;
mod oracle;
mod races;
mod rules;

use super::{Actor, Region, Violation};
use crate::fault::FaultKind;
use crate::race::{Clocks, ThreadId};

/// A region in the shared memory of a CTA, holding zeros.
fn shared() -> Region {
    let mut region = Region::uninitialized(1 << 63, 4096);
    region.write_raw(0, &[0; 4096]);
    region
}

fn t(thread: u32) -> ThreadId {
    ThreadId(thread)
}

fn weak(thread: u32) -> Actor {
    Actor::weak(t(thread), 100 + thread)
}

fn load(region: &mut Region, clocks: &mut Clocks, at: u64, by: Actor) -> Option<FaultKind> {
    kind(region.load(at, &mut [0; 16], &by, clocks))
}

fn store(region: &mut Region, clocks: &mut Clocks, at: u64, by: Actor) -> Option<FaultKind> {
    kind(region.store(at, &[7; 16], &by, clocks))
}

fn kind<T>(result: Result<T, Violation>) -> Option<FaultKind> {
    result.err().map(|v| v.kind)
}
