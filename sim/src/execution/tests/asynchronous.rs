//! `cp.async`, mbarriers, bulk copies, `wgmma`: correct kernels, and the same without a wait or a fence.

use super::harness::{SCHEDULES, block, fault, kernel, outputs, run_with};
use crate::fault::FaultKind;
use crate::launch::Policy;
use std::collections::BTreeSet;

/// Each thread copies a word into shared memory, and reads that of its neighbour in the other warp.
fn copies(wait: &str, barrier: &str) -> String {
    let body = format!(
        "mov.u32 %r1, %tid.x; ld.param.u64 %d1, [p0]; mul.wide.u32 %d2, %r1, 4; add.u64 %d2, %d1, %d2;
        ld.param.u64 %d3, [p1]; mul.wide.u32 %d4, %r1, 4; add.u64 %d4, %d3, %d4;
        shl.b32 %r2, %r1, 2; mov.u32 %r3, s; add.u32 %r4, %r3, %r2;
        and.b32 %r8, %r1, 4;
        cp.async.ca.shared.global [%r4], [%d2], 4, %r8; cp.async.commit_group;
        {wait} {barrier}
        xor.b32 %r5, %r2, 128; add.u32 %r5, %r3, %r5; ld.shared.u32 %r6, [%r5]; st.global.u32 [%d4], %r6; ret;"
    );
    kernel(2, ".shared .align 16 .b8 s[256];", &body)
}

#[test]
fn copies_are_waited_for() {
    let buffers = [(100..164).collect(), vec![0; 64]];
    let out = outputs(&copies("cp.async.wait_group 0;", "bar.sync 0;"), block(64), &buffers);
    let expected: Vec<u32> = (0..64).map(|l| if l & 4 == 4 { 100 + (l ^ 32) } else { 0 }).collect();
    assert_eq!(out[1], expected);
    outputs(&copies("cp.async.wait_all;", "bar.sync 0;"), block(64), &buffers);
    fault(&copies("", "bar.sync 0;"), block(64), &buffers, FaultKind::InFlight);
    fault(&copies("cp.async.wait_group 1;", "bar.sync 0;"), block(64), &buffers, FaultKind::InFlight);
    for schedule in SCHEDULES {
        let f = run_with(&copies("cp.async.wait_group 0;", ""), block(64), &buffers, schedule).unwrap_err();
        let kinds = [FaultKind::InFlight, FaultKind::Race, FaultKind::UninitializedRead];
        assert!(kinds.contains(&f.kind), "{f}");
    }
}

#[test]
fn copies_arrive_at_an_mbarrier() {
    let text = |no_inc: &str, count: u32| {
        let body = format!(
            "mov.u32 %r1, %tid.x; ld.param.u64 %d1, [p0]; mul.wide.u32 %d2, %r1, 4; add.u64 %d2, %d1, %d2;
            setp.ne.u32 %p1, %r1, 0; @%p1 bra W; mbarrier.init.shared.b64 [m], {count}; W: bar.sync 0;
            shl.b32 %r2, %r1, 2; mov.u32 %r3, s; add.u32 %r4, %r3, %r2; xor.b32 %r5, %r2, 128; add.u32 %r5, %r3, %r5;
            cp.async.ca.shared.global [%r4], [%d2], 4;
            cp.async.mbarrier.arrive{no_inc}.shared.b64 [m];
            mbarrier.arrive.shared.b64 %d9, [m];
            L: mbarrier.try_wait.parity.shared.b64 %p2, [m], 0; @!%p2 bra L;
            ld.shared.u32 %r6, [%r5]; ld.param.u64 %d1, [p1]; mul.wide.u32 %d2, %r1, 4; add.u64 %d2, %d1, %d2;
            st.global.u32 [%d2], %r6; ret;"
        );
        kernel(2, ".shared .align 16 .b8 s[256]; .shared .align 8 .b8 m[8];", &body)
    };
    let buffers = [(100..164).collect(), vec![0; 64]];
    let expected: Vec<u32> = (0..64).map(|l| 100 + (l ^ 32)).collect();
    assert_eq!(outputs(&text("", 64), block(64), &buffers)[1], expected);
    assert_eq!(outputs(&text(".noinc", 128), block(64), &buffers)[1], expected);
    fault(&text(".noinc", 129), block(64), &buffers, FaultKind::Deadlock);
}

/// Thread 0 loads 256 bytes in bulk; 64 threads wait and copy them out.
fn load(count: u32, expect: &str, wait: &str) -> String {
    let body = format!(
        "mov.u32 %r1, %tid.x; ld.param.u64 %d1, [p0]; setp.ne.u32 %p1, %r1, 0; @%p1 bra W;
        mbarrier.init.shared.b64 [m], {count}; fence.mbarrier_init.release.cluster; W: bar.sync 0; @%p1 bra L;
        {expect}
        cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [s], [%d1], 256, [m];
        L: {wait}
        shl.b32 %r2, %r1, 2; mov.u32 %r3, s; add.u32 %r3, %r3, %r2; ld.shared.u32 %r4, [%r3];
        ld.param.u64 %d3, [p1]; mul.wide.u32 %d4, %r1, 4; add.u64 %d4, %d3, %d4; st.global.u32 [%d4], %r4; ret;"
    );
    kernel(2, ".shared .align 16 .b8 s[256]; .shared .align 8 .b8 m[8];", &body)
}

const EXPECT: &str = "mbarrier.arrive.expect_tx.shared.b64 %d9, [m], 256;";
const WAIT: &str = "mbarrier.try_wait.parity.shared.b64 %p2, [m], 0; @!%p2 bra L;";

#[test]
fn bulk_loads_are_told_by_an_mbarrier() {
    let buffers = [(5..69).collect(), vec![0; 64]];
    assert_eq!(outputs(&load(1, EXPECT, WAIT), block(64), &buffers)[1], buffers[0]);
    let test = "mbarrier.test_wait.parity.shared.b64 %p2, [m], 0; @!%p2 bra L;";
    assert_eq!(outputs(&load(1, EXPECT, test), block(64), &buffers)[1], buffers[0]);
    for (wait, why) in [("", "no wait"), (&*WAIT.replace("[m], 0", "[m], 1"), "the phase before")] {
        for schedule in SCHEDULES {
            let f = run_with(&load(1, EXPECT, wait), block(64), &buffers, schedule).unwrap_err();
            let kinds = [FaultKind::InFlight, FaultKind::Race, FaultKind::UninitializedRead];
            assert!(kinds.contains(&f.kind), "{why}: {f}");
        }
    }
    for bytes in ["[m], 240", "[m], 272"] {
        let f = fault(&load(1, &EXPECT.replace("[m], 256", bytes), WAIT), block(64), &buffers, FaultKind::Deadlock);
        assert!(f.message.contains("mbarrier"), "{f}");
    }
    fault(&load(2, EXPECT, WAIT), block(64), &buffers, FaultKind::Deadlock);
    fault(&load(0, EXPECT, WAIT), block(64), &buffers, FaultKind::Illegal);
    let twice = format!("mbarrier.arrive.noComplete.shared.b64 %d8, [m], 2; {EXPECT}");
    fault(&load(1, &twice, WAIT), block(64), &buffers, FaultKind::Phase);
    let elsewhere = EXPECT.replace("[m]", "[s]");
    fault(&load(1, &elsewhere, WAIT), block(64), &buffers, FaultKind::NotABarrier);
    fault(&load(1, "ld.shared.u64 %d9, [m];", WAIT), block(64), &buffers, FaultKind::NotABarrier);
}

/// 64 threads write shared memory, thread 0 stores it in bulk.
fn store(fence: &str, barrier: &str, wait: &str) -> String {
    let body = format!(
        "mov.u32 %r1, %tid.x; ld.param.u64 %d1, [p0]; shl.b32 %r2, %r1, 2; mov.u32 %r3, s; add.u32 %r3, %r3, %r2;
        st.shared.u32 [%r3], %r1; {fence} {barrier} setp.ne.u32 %p1, %r1, 0; @%p1 bra E;
        cp.async.bulk.global.shared::cta.bulk_group [%d1], [s], 256; cp.async.bulk.commit_group; {wait} E: ret;"
    );
    kernel(1, ".shared .align 16 .b8 s[256];", &body)
}

#[test]
fn bulk_stores_need_a_proxy_fence_and_a_wait() {
    let (fence, barrier, wait) = ("fence.proxy.async.shared::cta;", "bar.sync 0;", "cp.async.bulk.wait_group 0;");
    let out = outputs(&store(fence, barrier, wait), block(64), &[vec![0; 64]]);
    assert_eq!(out[0], (0..64).collect::<Vec<u32>>());
    outputs(&store(fence, barrier, "cp.async.bulk.wait_group.read 0;"), block(64), &[vec![0; 64]]);
    fault(&store("", barrier, wait), block(64), &[vec![0; 64]], FaultKind::MissingProxyFence);
    fault(&store(fence, barrier, ""), block(64), &[vec![0; 64]], FaultKind::InFlight);
    let early = "st.shared.u32 [s+8], %r1; cp.async.bulk.wait_group 0;";
    fault(&store(fence, barrier, early), block(64), &[vec![0; 64]], FaultKind::InFlight);
    for schedule in SCHEDULES {
        let f = run_with(&store(fence, "", wait), block(64), &[vec![0; 64]], schedule).unwrap_err();
        assert!(matches!(f.kind, FaultKind::Race | FaultKind::UninitializedRead | FaultKind::InFlight), "{f}");
    }
}

/// A product of ones by ones, with A in registers: each result is 16.
fn product(proxy: &str, barrier: &str, fence: &str, wait: &str) -> String {
    let body = format!(
        "mov.u32 %r1, %tid.x; setp.ge.u32 %p1, %r1, 64; @%p1 bra W; shl.b32 %r2, %r1, 2; mov.u32 %r3, s;
        add.u32 %r3, %r3, %r2; mov.u32 %r4, 0x3f803f80; st.shared.u32 [%r3], %r4; W: {proxy} {barrier}
        mov.u32 %r5, 0x3f803f80; mov.u32 %r6, s; shr.u32 %r6, %r6, 4; cvt.u64.u32 %d3, %r6;
        or.b64 %d3, %d3, 0x1000080000;
        {fence}
        wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {{%f0, %f1, %f2, %f3}},
            {{%r5, %r5, %r5, %r5}}, %d3, 0, 1, 1, 0;
        wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {{%f0, %f1, %f2, %f3}},
            {{%r5, %r5, %r5, %r5}}, %d3, 1, 1, 1, 0;
        wgmma.commit_group.sync.aligned; {wait}
        ld.param.u64 %d1, [p0]; mul.wide.u32 %d2, %r1, 16; add.u64 %d2, %d1, %d2;
        st.global.v4.f32 [%d2], {{%f0, %f1, %f2, %f3}}; ret;"
    );
    kernel(1, ".shared .align 1024 .b8 s[256];", &body)
}

#[test]
fn products_are_fenced_and_waited_for() {
    let (proxy, barrier) = ("fence.proxy.async.shared::cta;", "bar.sync 0;");
    let (fence, wait) = ("wgmma.fence.sync.aligned;", "wgmma.wait_group.sync.aligned 0;");
    let buffer = [vec![0; 512]];
    let out = outputs(&product(proxy, barrier, fence, wait), block(128), &buffer);
    assert_eq!(out[0], vec![32f32.to_bits(); 512]);
    fault(&product(proxy, barrier, fence, ""), block(128), &buffer, FaultKind::InFlight);
    fault(&product(proxy, barrier, "", wait), block(128), &buffer, FaultKind::InFlight);
    fault(&product("", barrier, fence, wait), block(128), &buffer, FaultKind::MissingProxyFence);
    let late = format!("{fence} mov.u32 %r5, 0x3f803f80;");
    fault(&product(proxy, barrier, &late, wait), block(128), &buffer, FaultKind::InFlight);
    // Three warps are no warpgroup.
    fault(&product(proxy, barrier, fence, wait), block(96), &buffer, FaultKind::Divergent);
}

#[test]
fn a_waiter_that_falls_two_phases_behind_is_found() {
    // Warp 0 completes two phases and waits for nobody; warp 1 waits for the first by its parity.
    let body =
        "mov.u32 %r1, %tid.x; setp.ne.u32 %p1, %r1, 0; @%p1 bra W; mbarrier.init.shared.b64 [m], 1; W: bar.sync 0;
        setp.ge.u32 %p2, %r1, 32; @%p2 bra L; @%p1 bra E;
        mbarrier.arrive.shared.b64 %d1, [m]; mbarrier.arrive.shared.b64 %d1, [m]; bra E;
        L: mbarrier.try_wait.parity.shared.b64 %p3, [m], 0; @!%p3 bra L; E: ret;";
    let text = kernel(0, ".shared .align 8 .b8 m[8];", body);
    let mut kinds = BTreeSet::new();
    for seed in 0..40 {
        kinds.insert(run_with(&text, block(64), &[], (Policy::Random, seed)).err().map(|f| f.kind));
    }
    // In time, while it waited, and before it began.
    assert_eq!(kinds, BTreeSet::from([None, Some(FaultKind::Phase), Some(FaultKind::Deadlock)]));
}

#[test]
fn states_name_their_phase() {
    let text = |wait: &str| {
        let body = format!(
            "mbarrier.init.shared.b64 [m], 1; mbarrier.arrive.shared.b64 %d1, [m]; {wait}
            L: mbarrier.test_wait.shared.b64 %p1, [m], %d1; @!%p1 bra L; ret;"
        );
        kernel(0, ".shared .align 8 .b8 m[8];", &body)
    };
    outputs(&text(""), block(1), &[]);
    fault(&text("mbarrier.arrive.shared.b64 %d2, [m];"), block(1), &[], FaultKind::Phase);
    let late = "mbarrier.arrive.shared.b64 %d1, [m]; mbarrier.expect_tx.relaxed.cta.shared.b64 [m], 16;
        mbarrier.arrive.shared.b64 %d1, [m];";
    fault(&text(late), block(1), &[], FaultKind::Deadlock);
    fault(&text("mbarrier.inval.shared.b64 [m];"), block(1), &[], FaultKind::NotABarrier);
}
