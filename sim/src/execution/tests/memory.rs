//! Atomics, flags between CTAs, clusters, local memory.

use super::harness::{LaunchShape, SCHEDULES, block, fault, kernel, outputs, run_with};
use crate::fault::FaultKind;

#[test]
fn atomics_count_every_thread() {
    let body = "ld.param.u64 %d1, [p0]; mov.u32 %r1, %tid.x; and.b32 %r2, %r1, 3; mul.wide.u32 %d2, %r2, 4;
        add.u64 %d2, %d1, %d2; red.global.add.u32 [%d2], 1; atom.global.max.u32 %r3, [%d1+16], %r1;
        atom.global.cas.b32 %r3, [%d1+20], 7, 9; ret;";
    let shape = LaunchShape { grid: 3, ..block(40) };
    let out = outputs(&kernel(1, "", body), shape, &[vec![0, 0, 0, 0, 0, 7]]);
    assert_eq!(out[0], [30, 30, 30, 30, 39, 9]);
    let plain = kernel(1, "", "ld.param.u64 %d1, [p0]; ld.global.u32 %r1, [%d1]; st.global.u32 [%d1], %r1; ret;");
    fault(&plain, shape, &[vec![0]], FaultKind::Race);
}

/// CTA 1 waits for a flag of CTA 0 and reads what was written before it.
fn flag(store: &str, load: &str) -> String {
    let body = format!(
        "ld.param.u64 %d1, [p0]; mov.u32 %r1, %ctaid.x; mov.u32 %r5, 1; setp.eq.u32 %p1, %r1, 1; @%p1 bra WAIT;
        mov.u32 %r2, 42; st.global.u32 [%d1], %r2; {store} ret;
        WAIT: {load} setp.eq.u32 %p2, %r3, 0; @%p2 bra WAIT; ld.global.u32 %r4, [%d1]; st.global.u32 [%d1+8], %r4; ret;"
    );
    kernel(1, "", &body)
}

#[test]
fn flags_order_what_was_written_before_them() {
    let shape = LaunchShape { grid: 2, ..block(1) };
    let right = [
        ("st.release.gpu.global.u32 [%d1+4], %r5;", "ld.acquire.gpu.global.u32 %r3, [%d1+4];"),
        (
            "fence.acq_rel.gpu; st.relaxed.gpu.global.u32 [%d1+4], %r5;",
            "ld.relaxed.gpu.global.u32 %r3, [%d1+4]; fence.acq_rel.gpu;",
        ),
        ("membar.gl; atom.global.add.u32 %r6, [%d1+4], %r5;", "ld.acquire.gpu.global.u32 %r3, [%d1+4];"),
    ];
    for (store, load) in right {
        assert_eq!(outputs(&flag(store, load), shape, &[vec![0; 3]])[0], [42, 1, 42], "{store} {load}");
    }
    let wrong = [
        ("st.relaxed.gpu.global.u32 [%d1+4], %r5;", "ld.acquire.gpu.global.u32 %r3, [%d1+4];"),
        ("st.release.gpu.global.u32 [%d1+4], %r5;", "ld.relaxed.gpu.global.u32 %r3, [%d1+4];"),
        ("st.release.cta.global.u32 [%d1+4], %r5;", "ld.acquire.cta.global.u32 %r3, [%d1+4];"),
        ("st.global.u32 [%d1+4], %r5;", "ld.acquire.gpu.global.u32 %r3, [%d1+4];"),
    ];
    for (store, load) in wrong {
        let f = fault(&flag(store, load), shape, &[vec![0; 3]], FaultKind::Race);
        assert_eq!(f.others.len(), 1, "{f}");
    }
}

/// The CTAs of a cluster write into each other's shared memory.
fn cluster(sync: &str, end: &str) -> String {
    let body = format!(
        "ld.param.u64 %d1, [p0]; mov.u32 %r1, %cluster_ctarank; xor.b32 %r2, %r1, 1; mov.u32 %r3, s;
        mapa.shared::cluster.u32 %r4, %r3, %r2; add.u32 %r5, %r1, 10; st.shared::cluster.u32 [%r4], %r5;
        {sync} ld.shared.u32 %r6, [s]; mov.u32 %r7, %ctaid.x; mul.wide.u32 %d2, %r7, 4; add.u64 %d2, %d1, %d2;
        st.global.u32 [%d2], %r6; {end} ret;"
    );
    kernel(1, ".shared .align 4 .b8 s[4];", &body)
}

#[test]
fn clusters_share_their_memory() {
    let shape = LaunchShape { grid: 6, cluster: 2, ..block(1) };
    let both = "barrier.cluster.arrive; barrier.cluster.wait;";
    let text = cluster(both, both);
    assert_eq!(outputs(&text, shape, &[vec![0; 6]])[0], [11, 10, 11, 10, 11, 10]);
    let relaxed = cluster("barrier.cluster.arrive.relaxed; barrier.cluster.wait;", "");
    fault(&relaxed, shape, &[vec![0; 6]], FaultKind::Race);
    for schedule in SCHEDULES {
        let f = run_with(&cluster("barrier.cluster.arrive;", ""), shape, &[vec![0; 6]], schedule).unwrap_err();
        assert!(matches!(f.kind, FaultKind::Race | FaultKind::UninitializedRead), "{f}");
    }
    fault(&cluster("barrier.cluster.wait;", ""), shape, &[vec![0; 6]], FaultKind::Illegal);
    let alone = LaunchShape { cluster: 1, ..shape };
    fault(&text, alone, &[vec![0; 6]], FaultKind::OutOfBounds);
    fault(&text, LaunchShape { grid: 5, ..shape }, &[vec![0; 6]], FaultKind::Launch);
}

#[test]
fn a_cta_that_exits_takes_its_shared_memory_along() {
    // Rank 0 exits at once, rank 1 writes there after it.
    let body = "mov.u32 %r1, %cluster_ctarank; setp.eq.u32 %p1, %r1, 0; @%p1 bra E; mov.u32 %r3, s; mov.u32 %r2, 0;
        mapa.shared::cluster.u32 %r4, %r3, %r2; mov.u32 %r6, 0;
        L: add.u32 %r6, %r6, 1; setp.lt.u32 %p2, %r6, 5000; @%p2 bra L; st.shared::cluster.u32 [%r4], %r1; E: ret;";
    let text = kernel(0, ".shared .align 4 .b8 s[4];", body);
    let f = run_with(&text, LaunchShape { grid: 2, cluster: 2, ..block(1) }, &[], SCHEDULES[0]).unwrap_err();
    assert_eq!(f.kind, FaultKind::OutOfBounds, "{f}");
}

#[test]
fn local_memory_is_of_one_thread() {
    let text = |read: u32| {
        let body = format!(
            "mov.u64 %d3, depot; cvta.local.u64 %d4, %d3; mov.u32 %r1, %tid.x; st.u32 [%d4+4], %r1;
            ld.local.u32 %r2, [%d3+{read}]; ld.param.u64 %d1, [p0]; mul.wide.u32 %d2, %r1, 4; add.u64 %d2, %d1, %d2;
            st.global.u32 [%d2], %r2; ret;"
        );
        kernel(1, ".local .align 8 .b8 depot[16];", &body)
    };
    assert_eq!(outputs(&text(4), block(40), &[vec![0; 40]])[0], (0..40).collect::<Vec<u32>>());
    fault(&text(8), block(40), &[vec![0; 40]], FaultKind::UninitializedRead);
    fault(&text(16), block(40), &[vec![0; 40]], FaultKind::OutOfBounds);
    fault(&text(6), block(40), &[vec![0; 40]], FaultKind::Misaligned);
}

#[test]
fn read_only_loads_and_writes_do_not_mix() {
    let body =
        "ld.param.u64 %d1, [p0]; ld.global.nc.u32 %r1, [%d1]; add.u32 %r1, %r1, 1; st.global.u32 [%d1], %r1; ret;";
    fault(&kernel(1, "", body), block(1), &[vec![0]], FaultKind::ReadOnly);
    let body =
        "ld.param.u64 %d1, [p0]; ld.param.u64 %d2, [p1]; ld.global.nc.u32 %r1, [%d1]; st.global.u32 [%d2], %r1; ret;";
    assert_eq!(outputs(&kernel(2, "", body), block(1), &[vec![3], vec![0]])[1], [3]);
}
