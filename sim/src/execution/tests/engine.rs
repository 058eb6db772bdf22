//! What the copy engine has to see: initialised mbarriers, and fences of the right memory. Each fault beside a correct kernel.

use super::harness::{LaunchShape, SCHEDULES, block, fault, kernel, outputs, run_with};
use crate::fault::FaultKind;
use crate::launch::Policy;

/// Thread 0 initialises an mbarrier and loads 256 bytes by it; 64 threads wait and copy them out.
fn load(between: &str) -> String {
    let body = format!(
        "mov.u32 %r1, %tid.x; ld.param.u64 %d1, [p0]; setp.ne.u32 %p1, %r1, 0; @%p1 bra W;
        mbarrier.init.shared.b64 [m], 1;
        {between}
        mbarrier.arrive.expect_tx.shared.b64 %d9, [m], 256;
        cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [s], [%d1], 256, [m];
        W: bar.sync 0;
        L: mbarrier.try_wait.parity.shared.b64 %p2, [m], 0; @!%p2 bra L;
        shl.b32 %r2, %r1, 2; mov.u32 %r3, s; add.u32 %r3, %r3, %r2; ld.shared.u32 %r4, [%r3];
        ld.param.u64 %d3, [p1]; mul.wide.u32 %d4, %r1, 4; add.u64 %d4, %d3, %d4; st.global.u32 [%d4], %r4; ret;"
    );
    kernel(2, ".shared .align 16 .b8 s[256]; .shared .align 8 .b8 m[8]; .shared .align 8 .b8 other[8];", &body)
}

#[test]
fn inits_are_performed_before_the_engine_uses_them() {
    let buffers = [(5..69).collect(), vec![0; 64]];
    for right in [
        "fence.mbarrier_init.release.cluster;",
        "fence.proxy.async;",
        "fence.proxy.async.shared::cta;",
        "fence.acq_rel.cta;",
        "bar.warp.sync 1;",
        "barrier.sync 1, 32; @%p1 bra W;",
    ] {
        let text = load(right);
        // The last needs a whole warp.
        let text = if right.starts_with("barrier") {
            text.replace(
                "@%p1 bra W;\n        mbarrier.init",
                "setp.ge.u32 %p3, %r1, 32; @%p3 bra W; @!%p1 mbarrier.init",
            )
        } else {
            text
        };
        assert_eq!(outputs(&text, block(64), &buffers)[1], buffers[0], "{right}");
    }
    for wrong in ["", "mbarrier.init.shared.b64 [other], 1; mbarrier.arrive.shared.b64 %d8, [other];"] {
        let f = fault(&load(wrong), block(64), &buffers, FaultKind::MissingProxyFence);
        assert!(f.message.contains("neither fence.mbarrier_init nor a barrier"), "{f}");
    }
}

/// Thread 0 initialises, another thread loads.
#[test]
fn inits_are_ordered_before_another_thread_loads() {
    let text = |barrier: &str| {
        let body = format!(
            "mov.u32 %r1, %tid.x; ld.param.u64 %d1, [p0]; setp.ne.u32 %p1, %r1, 0; setp.ne.u32 %p3, %r1, 32;
            @!%p1 mbarrier.init.shared.b64 [m], 1; @!%p1 fence.mbarrier_init.release.cluster;
            {barrier} @%p3 bra W;
            cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [s], [%d1], 256, [m];
            W: bar.sync 0; @!%p1 mbarrier.arrive.expect_tx.shared.b64 %d9, [m], 256;
            L: mbarrier.try_wait.parity.shared.b64 %p2, [m], 0; @!%p2 bra L; ret;"
        );
        kernel(1, ".shared .align 16 .b8 s[256]; .shared .align 8 .b8 m[8];", &body)
    };
    let buffers = [(5..69).collect()];
    outputs(&text("bar.sync 0;"), block(64), &buffers);
    for schedule in SCHEDULES {
        for barrier in ["", "bar.warp.sync -1;"] {
            let f = run_with(&text(barrier), block(64), &buffers, schedule).unwrap_err();
            assert!(matches!(f.kind, FaultKind::Race | FaultKind::NotABarrier), "{f}");
        }
    }
}

/// 64 threads write global memory, thread 0 loads it in bulk.
fn through_global(fence: &str) -> String {
    let body = format!(
        "mov.u32 %r1, %tid.x; ld.param.u64 %d1, [p0]; mul.wide.u32 %d2, %r1, 4; add.u64 %d2, %d1, %d2;
        st.global.u32 [%d2], %r1; setp.ne.u32 %p1, %r1, 0; @%p1 bra W;
        mbarrier.init.shared.b64 [m], 1; fence.mbarrier_init.release.cluster;
        W: {fence} bar.sync 0; @%p1 bra E;
        mbarrier.arrive.expect_tx.shared.b64 %d9, [m], 256;
        cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [s], [%d1], 256, [m];
        L: mbarrier.try_wait.parity.shared.b64 %p2, [m], 0; @!%p2 bra L; E: ret;"
    );
    kernel(1, ".shared .align 16 .b8 s[256]; .shared .align 8 .b8 m[8];", &body)
}

#[test]
fn global_memory_needs_a_fence_of_its_own() {
    for right in ["fence.proxy.async;", "fence.proxy.async.global;"] {
        outputs(&through_global(right), block(64), &[vec![0; 64]]);
    }
    for wrong in ["fence.proxy.async.shared::cta;", "fence.proxy.async.shared::cluster;"] {
        let f = fault(&through_global(wrong), block(64), &[vec![0; 64]], FaultKind::MissingProxyFence);
        assert!(f.message.contains("of other memory"), "{f}");
    }
}

/// Thread 0 of CTA 1 writes shared memory of CTA 0, whose thread 0 stores it in bulk.
fn from_afar(writer: &str, reader: &str) -> String {
    let body = format!(
        "mov.u32 %r1, %cluster_ctarank; mov.u32 %r2, s; mapa.shared::cluster.u32 %r3, %r2, 0; ld.param.u64 %d1, [p0];
        setp.ne.u32 %p1, %r1, 1; mov.u32 %r4, 7;
        @!%p1 st.shared::cluster.v4.u32 [%r3], {{%r4, %r4, %r4, %r4}}; @!%p1 {writer}
        barrier.cluster.arrive; barrier.cluster.wait; @!%p1 bra E;
        {reader} cp.async.bulk.global.shared::cta.bulk_group [%d1], [s], 16; cp.async.bulk.commit_group;
        cp.async.bulk.wait_group 0; E: barrier.cluster.arrive; barrier.cluster.wait; ret;"
    );
    kernel(1, ".shared .align 16 .b8 s[16];", &body)
}

#[test]
fn a_fence_of_the_cta_does_not_cover_the_cluster() {
    let shape = LaunchShape { grid: 2, cluster: 2, ..block(1) };
    let none = "mov.u32 %r5, 0;";
    for (writer, reader) in [
        ("fence.proxy.async.shared::cluster;", ""),
        ("fence.proxy.async;", ""),
        (none, "fence.proxy.async.shared::cta;"),
        (none, "fence.proxy.async.shared::cluster;"),
    ] {
        assert_eq!(outputs(&from_afar(writer, reader), shape, &[vec![0; 4]])[0], [7; 4], "{writer} {reader}");
    }
    for (writer, reader) in [("fence.proxy.async.shared::cta;", ""), ("fence.proxy.async.global;", ""), (none, "")] {
        fault(&from_afar(writer, reader), shape, &[vec![0; 4]], FaultKind::MissingProxyFence);
    }
}

#[test]
fn the_engine_and_products_count_their_shared_memory() {
    let buffers = [(5..69).collect(), vec![0; 64]];
    let text = load("fence.mbarrier_init.release.cluster;");
    let (_, report) = run_with(&text, block(64), &buffers, (Policy::RoundRobin, 0)).unwrap();
    let line = text.lines().position(|l| l.contains("cp.async.bulk.shared")).unwrap() as u32 + 1;
    let shared = report.counters.line(line).shared;
    assert_eq!((shared.requests, shared.bytes, shared.wavefronts, shared.conflicts), (1, 256, 2, 0));
}

/// CTA 0 initialises an mbarrier and writes a word, CTA 1 arrives at the first and reads the second.
fn told_by_the_cluster(fence: &str, arrive: &str, read: &str) -> String {
    let body = format!(
        "mov.u32 %r1, %cluster_ctarank; mov.u32 %r2, m; mapa.shared::cluster.u32 %r3, %r2, 0; mov.u32 %r4, s;
        mapa.shared::cluster.u32 %r5, %r4, 0; setp.ne.u32 %p1, %r1, 0;
        @!%p1 st.shared.u32 [s], %r1; @!%p1 mbarrier.init.shared.b64 [m], 1; @!%p1 {fence}
        {arrive} barrier.cluster.wait;
        @%p1 mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r3]; {read}
        barrier.cluster.arrive; barrier.cluster.wait; ret;"
    );
    kernel(0, ".shared .align 4 .b8 s[4]; .shared .align 8 .b8 m[8];", &body)
}

#[test]
fn a_fence_of_inits_releases_nothing_else() {
    let shape = LaunchShape { grid: 2, cluster: 2, ..block(1) };
    let (inits, all) = ("fence.mbarrier_init.release.cluster;", "fence.acq_rel.cluster;");
    let (relaxed, release) = ("barrier.cluster.arrive.relaxed;", "barrier.cluster.arrive;");
    let read = "@%p1 ld.shared::cluster.u32 %r6, [%r5];";
    for (fence, arrive, read) in [(inits, relaxed, ""), (all, relaxed, read), (inits, release, read)] {
        outputs(&told_by_the_cluster(fence, arrive, read), shape, &[]);
    }
    fault(&told_by_the_cluster(inits, relaxed, read), shape, &[], FaultKind::Race);
    fault(&told_by_the_cluster("mov.u32 %r7, 0;", relaxed, ""), shape, &[], FaultKind::Race);
}
