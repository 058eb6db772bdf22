//! The cost of the bookkeeping: `cargo test -p atlas-gpu-sim --release -- --ignored --nocapture cost`.

use super::{Clocks, Region, t, weak};
use crate::race::ThreadId;
use std::time::Instant;

const THREADS: u32 = 1024;
const ROUNDS: u32 = 200;

fn time(what: &str, per: u32, mut f: impl FnMut()) {
    let start = Instant::now();
    f();
    let ns = start.elapsed().as_nanos() as f64 / f64::from(per);
    println!("{what:<40} {ns:8.1} ns");
}

/// All threads store, meet at a barrier, load what others stored, and meet again. Each access is done 8 times, so that the
/// barrier counts little.
fn exchange(what: &str, bytes: usize, region: &mut Region) {
    let mut clocks = Clocks::new(4, THREADS);
    let threads: Vec<ThreadId> = (0..THREADS).map(t).collect();
    let mut row = [0; 16];
    let places = u64::from(THREADS) * bytes as u64;
    time(what, 16 * ROUNDS * THREADS, || {
        for _ in 0..ROUNDS {
            for (i, again) in (0..8).flat_map(|again| (0..THREADS).map(move |i| (i, again))) {
                let to = u64::from(i) * bytes as u64 + again * places;
                region.store(to, &row[..bytes], &weak(i), &mut clocks).unwrap();
            }
            clocks.barrier(&threads);
            for (i, again) in (0..8).flat_map(|again| (0..THREADS).map(move |i| (i, again))) {
                let from = u64::from(i ^ 33) * bytes as u64 + again * places;
                region.load(from, &mut row[..bytes], &weak(i), &mut clocks).unwrap();
            }
            clocks.barrier(&threads);
        }
    });
}

#[test]
#[ignore = "prints times"]
fn cost() {
    let region = || Region::uninitialized(1 << 63, 1 << 17);
    exchange("exchange, private, 16 bytes", 16, &mut Region::private(1 << 17));
    exchange("exchange, 16 bytes", 16, &mut region());
    exchange("exchange, 4 bytes", 4, &mut region());
    exchange("exchange, 2 bytes", 2, &mut region());
    let threads: Vec<ThreadId> = (0..THREADS).map(t).collect();
    let mut clocks = Clocks::new(4, THREADS);
    time("barrier, a thread of 1024", ROUNDS * THREADS, || {
        for _ in 0..ROUNDS {
            clocks.barrier(&threads);
        }
    });
    time("barrier of a warp, a lane", ROUNDS * THREADS, || {
        for _ in 0..ROUNDS {
            for warp in threads.chunks(32) {
                clocks.warp_barrier(warp);
            }
        }
    });
    let mut region = region();
    region.write_raw(0, &[0; 4096]);
    time("load of the same 16 bytes by 1024", ROUNDS * THREADS, || {
        for _ in 0..ROUNDS {
            for i in 0..THREADS {
                region.load(64, &mut [0; 16], &weak(i), &mut clocks).unwrap();
            }
            clocks.barrier(&threads);
        }
    });
}
