//! Changes that keep a kernel correct: nothing may be found.

use super::plant::{Plant, drop, none_found, swap};

const ARRIVE: &str = "@%first mbarrier.arrive.shared::cta.b64 _, [%bar+22544];";
const EXPECT: &str = "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%bar+22528], 10240;";
const LAST_LOAD: &str = "[%to], [%map_b, {%k, %n}], [%full];";
const EXIT: &str = "barrier.cluster.arrive;\n\tbarrier.cluster.wait;\n\tret;";

const HARMLESS: &[Plant] = &[
    Plant("a barrier by another number", "rms_norm_bf16", &[swap("bar.sync \t0;", "bar.sync \t5, 64;")], &[]),
    Plant("a barrier that need not be aligned", "rms_norm_bf16", &[swap("bar.sync \t0;", "barrier.sync \t0;")], &[]),
    Plant(
        "a barrier of the only warp",
        "newton_schulz_sm_80",
        &[swap("bar.sync \t0;", "bar.warp.sync \t-1;").nth(1)],
        &[],
    ),
    Plant(
        "a wait and a barrier that others make needless",
        "memory_read_bf16",
        &[drop("cp.async.wait_group \t1;\n\tbar.sync \t0;")],
        &[],
    ),
    Plant("a wait for all copies", "gemm_tf32", &[swap("cp.async.wait_group \t0;", "cp.async.wait_all;")], &[]),
    Plant("a polling wait for full stages", "ring", &[swap("mbarrier.try_wait", "mbarrier.test_wait").nth(1)], &[]),
    Plant("a polling wait for empty stages", "ring", &[swap("mbarrier.try_wait", "mbarrier.test_wait").nth(0)], &[]),
    Plant(
        "one thread waits for a full stage, and all for it",
        "ring",
        &[
            swap("$wait_full:\n", "setp.ne.u32 %p, %t, 0;\n\t@%p bra $go;\n$wait_full:\n"),
            swap("@!%done bra $wait_full;", "@!%done bra $wait_full;\n$go:\n\tbar.sync 1, 128;"),
        ],
        &[],
    ),
    Plant(
        "one lane of each warp waits for a full stage, and the others for it",
        "ring",
        &[
            swap("$wait_full:\n", "setp.ne.u32 %p, %lane, 0;\n\t@%p bra $go;\n$wait_full:\n"),
            swap("@!%done bra $wait_full;", "@!%done bra $wait_full;\n$go:\n\tbar.warp.sync -1;"),
        ],
        &[],
    ),
    Plant(
        "a stage is cleared and fenced before it is loaded",
        "ring",
        &[swap(
            "bar.sync 0;",
            "shl.b32 %x, %t, 2;\n\tadd.s32 %x, %x, %s;\n\tst.shared.b32 [%x], %t;\n\tfence.proxy.async;\n\tbar.sync 0;",
        )],
        &[],
    ),
    Plant(
        "arrival and bytes apart",
        "ring",
        &[swap(
            EXPECT,
            "mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%bar+22528], 10240;\n\t\
             mbarrier.arrive.shared::cta.b64 _, [%bar+22528];",
        )],
        &[],
    ),
    Plant(
        "bytes are expected after the loads begin",
        "ring",
        &[
            drop(EXPECT),
            swap(
                LAST_LOAD,
                "[%to], [%map_b, {%k, %n}], [%full];\n\t\
                 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%bar+22528], 10240;",
            ),
        ],
        &[],
    ),
    Plant(
        "an arrival that says what it means",
        "ring",
        &[swap(ARRIVE, "@%first mbarrier.arrive.release.cta.shared::cta.b64 _, [%bar+22544], 1;")],
        &[],
    ),
    Plant(
        "inits before a barrier of the CTA without their fence",
        "ring",
        &[drop("fence.mbarrier_init.release.cluster;")],
        &[],
    ),
    Plant(
        "the last store is waited for until it has read",
        "ring",
        &[swap("cp.async.bulk.wait_group 0;", "cp.async.bulk.wait_group.read 0;")],
        &[],
    ),
    Plant("a proxy fence of all spaces", "ring", &[swap("fence.proxy.async.shared::cta;", "fence.proxy.async;")], &[]),
    Plant(
        "products one by one",
        "pingpong",
        &[swap("wgmma.wait_group.sync.aligned 1;", "wgmma.wait_group.sync.aligned 0;")],
        &[],
    ),
    Plant(
        "an epilogue before the turn is handed on",
        "pingpong",
        &[
            drop("@%next bar.arrive %other, 256;"),
            swap("add.s32 %tile, %tile, 2;", "@%next bar.arrive %other, 256;\n\tadd.s32 %tile, %tile, 2;"),
        ],
        &[],
    ),
    Plant(
        "inits that are fenced, and a barrier that releases nothing",
        "cluster_ring",
        &[swap("barrier.cluster.arrive;", "barrier.cluster.arrive.relaxed;").nth(0)],
        &[],
    ),
    Plant(
        "a wait of its default scope",
        "cluster_ring",
        &[swap("parity.acquire.cluster.shared", "parity.shared")],
        &[],
    ),
    Plant(
        "an aligned barrier at the end",
        "cluster_ring",
        &[swap(EXIT, "barrier.cluster.arrive.aligned;\n\tbarrier.cluster.wait.aligned;\n\tret;")],
        &[],
    ),
    Plant(
        "a fence and a relaxed load for an acquire",
        "flag",
        &[swap("ld.acquire.gpu", "ld.relaxed.gpu"), swap("@%p bra $spin;", "@%p bra $spin;\n\tfence.acq_rel.gpu;")],
        &[],
    ),
    Plant(
        "a fence and a relaxed store for a release",
        "flag",
        &[swap("@%leader st.release.gpu", "fence.acq_rel.gpu;\n\t@%leader st.relaxed.gpu")],
        &[],
    ),
    Plant(
        "fences around an arrival without an order",
        "split_sum",
        &[swap(
            "@%leader atom.acq_rel.gpu.global.inc.u32 %before, [%arrivals], 2;",
            "fence.acq_rel.gpu;\n\t@%leader atom.relaxed.gpu.global.inc.u32 %before, [%arrivals], 2;\n\tfence.acq_rel.gpu;",
        )],
        &[],
    ),
    Plant(
        "a fence behind an arrival that orders",
        "split_sum",
        &[swap("setp.eq.u32 %mine,", "fence.acq_rel.gpu;\n\tsetp.eq.u32 %mine,")],
        &[],
    ),
    Plant(
        "the same barrier in LLVM's words",
        "split_sum",
        &[swap("barrier.cta.red.or.pred.aligned", "bar.red.or.pred")],
        &[],
    ),
    Plant(
        "fences of the whole system",
        "last_block",
        &[
            swap("st.volatile.global", "st.global"),
            swap("ld.volatile.global", "ld.global"),
            swap("membar.gl;", "membar.sys;").nth(0),
            swap("membar.gl;", "fence.sc.gpu;"),
        ],
        &[],
    ),
    Plant(
        "a reduction for an atomic",
        "histogram",
        &[swap("atom.shared.add.u32 \t%r23, [%r22], 1;", "red.shared.add.u32 \t[%r22], 1;")],
        &[],
    ),
];

#[test]
fn harmless_changes() {
    none_found(HARMLESS);
}
