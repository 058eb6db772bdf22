//! Costs of access patterns with a known cost.

use super::*;

fn shared(bytes: u32, offset: impl Fn(u32) -> Option<u32>) -> SharedCounts {
    let mut counters = Counters::new();
    counters.shared_access(3, &std::array::from_fn(|lane| offset(lane as u32)), bytes);
    counters.line(3).shared
}

/// Wavefronts and conflicts.
fn cost(bytes: u32, offset: impl Fn(u32) -> u32) -> (u64, u64) {
    let counts = shared(bytes, |lane| Some(offset(lane)));
    assert_eq!((counts.requests, counts.bytes), (1, 32 * u64::from(bytes)));
    (counts.wavefronts, counts.conflicts)
}

#[test]
fn banks() {
    assert_eq!(cost(4, |lane| 4 * lane), (1, 0), "a row");
    assert_eq!(cost(4, |lane| 4 * (31 - lane) + 128), (1, 0), "backwards");
    assert_eq!(cost(4, |_| 64), (1, 0), "all the same word");
    assert_eq!(cost(4, |lane| 4 * (lane / 8)), (1, 0), "eight lanes a word");
    assert_eq!(cost(4, |lane| 8 * lane), (2, 1), "every other bank");
    assert_eq!(cost(4, |lane| 128 * lane), (32, 31), "a column");
    assert_eq!(cost(4, |lane| 132 * lane), (1, 0), "a padded column");
    assert_eq!(cost(2, |lane| 2 * lane), (1, 0), "halves of words");
    assert_eq!(cost(2, |lane| 64 * lane), (16, 15), "a column of halves, two rows in a bank's round");
    assert_eq!(cost(1, |lane| lane), (1, 0), "bytes");
}

#[test]
fn wide_accesses_go_in_phases() {
    assert_eq!(cost(8, |lane| 8 * lane), (2, 0));
    assert_eq!(cost(16, |lane| 16 * lane), (4, 0));
    assert_eq!(cost(8, |_| 0), (2, 0));
    assert_eq!(cost(16, |lane| 128 * lane), (32, 28), "rows of a tile without swizzle");
    assert_eq!(cost(16, |lane| 128 * lane + 16 * (lane % 8)), (4, 0), "with one");
    assert_eq!(cost(16, |lane| 32 * lane), (8, 4));
    // Conflicts between lanes of different phases are none.
    assert_eq!(cost(16, |lane| 16 * (lane % 8) + 128 * (lane / 8)), (4, 0));
}

#[test]
fn rows_of_matrices() {
    let rows = |count: u32, stride: u32| {
        let counts = shared(16, |lane| (lane < count).then_some(stride * lane));
        (counts.wavefronts, counts.conflicts)
    };
    assert_eq!(rows(8, 16), (1, 0));
    assert_eq!(rows(8, 128), (8, 7));
    assert_eq!(rows(8, 144), (1, 0));
    assert_eq!(rows(16, 64), (8, 6));
    assert_eq!(rows(32, 144), (4, 0));
}

#[test]
fn chunks_go_eight_at_a_time() {
    let cost = |chunks: Vec<u32>| {
        let mut counters = Counters::new();
        counters.shared_chunks(3, &chunks);
        let SharedCounts { requests, bytes, wavefronts, conflicts } = counters.line(3).shared;
        assert_eq!((requests, bytes), (1, 16 * chunks.len() as u64));
        (wavefronts, conflicts)
    };
    assert_eq!(cost((0..64).map(|i| 16 * i).collect()), (8, 0), "a dense box");
    assert_eq!(cost((0..8).map(|i| 128 * i + 16 * i).collect()), (1, 0), "rows with a swizzle");
    assert_eq!(cost((0..8).map(|i| 128 * i).collect()), (8, 7), "rows without one");
    assert_eq!(cost((0..16).map(|i| 64 * i).collect()), (8, 6), "and half as wide");
    assert_eq!(cost(vec![48]), (1, 0));
    let mut none = Counters::new();
    none.shared_chunks(3, &[]);
    assert_eq!(none, Counters::new());
}

#[test]
fn inactive_lanes_cost_nothing() {
    assert_eq!(shared(4, |_| None), SharedCounts::default());
    let counts = shared(16, |lane| (lane == 9).then_some(16));
    assert_eq!(counts, SharedCounts { requests: 1, bytes: 16, wavefronts: 1, conflicts: 0 });
}

#[test]
fn sectors() {
    let sectors = |bytes: u32, address: &dyn Fn(u64) -> u64| {
        let mut counters = Counters::new();
        counters.global_access(
            1,
            &std::array::from_fn(|lane| Some(0x7f00_0000_0000 + address(lane as u64))),
            bytes,
            false,
        );
        assert_eq!(counters.line(1).stores, GlobalCounts::default());
        counters.line(1).loads.sectors
    };
    assert_eq!(sectors(4, &|lane| 4 * lane), 4);
    assert_eq!(sectors(4, &|lane| 4 * lane + 4), 5);
    assert_eq!(sectors(16, &|lane| 16 * lane), 16);
    assert_eq!(sectors(4, &|_| 64), 1);
    assert_eq!(sectors(4, &|lane| 4096 * lane), 32);
    assert_eq!(sectors(4, &|lane| 4096 * (lane % 2)), 2);
    assert_eq!(sectors(32, &|lane| 32 * lane + 16), 33);
    assert_eq!(sectors(64, &|lane| 64 * lane + 16), 65);
}

#[test]
fn sums() {
    let mut counters = Counters::new();
    counters.instruction(7, InstructionClass::Alu, 32);
    counters.instruction(7, InstructionClass::Alu, 5);
    counters.instruction(9, InstructionClass::GlobalStore, 1);
    let mut address = [None; 32];
    address[4] = Some(1000);
    counters.global_access(9, &address, 8, true);
    counters.bulk(11, 4096);
    assert_eq!(counters.mix(InstructionClass::Alu), Mix { warps: 2, lanes: 37 });
    assert_eq!(counters.line(7).executed, 2);
    assert_eq!(counters.line(9).stores, GlobalCounts { requests: 1, bytes: 8, sectors: 1 });
    assert_eq!(counters.lines().map(|(line, _)| line).collect::<Vec<_>>(), [7, 9, 11]);
    let once = counters.clone();
    counters.merge(&once);
    let sum = counters.totals();
    assert_eq!((sum.warp_instructions, sum.lane_instructions, sum.bulk_bytes), (6, 76, 8192));
    assert_eq!((sum.stores.bytes, sum.loads.bytes), (16, 0));
}

#[test]
fn the_report_names_lines_with_conflicts() {
    let mut counters = Counters::new();
    counters.shared_access(12, &std::array::from_fn(|lane| Some(4 * lane as u32)), 4);
    counters.shared_access(34, &std::array::from_fn(|lane| Some(128 * lane as u32)), 4);
    let report = counters.to_string();
    assert!(report.contains("line 34: 31 bank conflicts in 1 requests") && !report.contains("line 12"), "{report}");
}

#[test]
fn classes_are_in_the_order_of_their_numbers() {
    for (i, class) in InstructionClass::ALL.into_iter().enumerate() {
        assert_eq!(class as usize, i);
    }
}
