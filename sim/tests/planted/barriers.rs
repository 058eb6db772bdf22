//! Barriers of a CTA and of a cluster: missing, late, with the wrong threads, in divergent code.

use super::plant::{Plant, all_found, drop, swap};
use atlas_sim::fault::FaultKind::*;

const BARRIERS: &[Plant] = &[
    Plant("no barrier before the sums are read", "rms_norm_bf16", &[drop("bar.sync \t0;")], &[Race, UninitializedRead]),
    Plant(
        "the barrier comes after the read",
        "rms_norm_bf16",
        &[drop("bar.sync \t0;"), swap("add.rn.f32 \t%r55", "bar.sync \t0;\n\tadd.rn.f32 \t%r55")],
        &[Race, UninitializedRead],
    ),
    Plant(
        "the barrier is of one warp",
        "rms_norm_bf16",
        &[swap("bar.sync \t0;", "bar.sync \t0, 32;")],
        &[Race, UninitializedRead],
    ),
    Plant(
        "the barrier is of more threads than there are",
        "rms_norm_bf16",
        &[swap("bar.sync \t0;", "bar.sync \t0, 96;")],
        &[Deadlock],
    ),
    Plant(
        "each warp has a barrier of its own",
        "rms_norm_bf16",
        &[swap("bar.sync \t0;", "bar.sync \t%r7;")],
        &[Deadlock],
    ),
    Plant(
        "some lanes of a warp come to the barrier",
        "rms_norm_bf16",
        &[swap("bar.sync \t0;", "@%p1 bar.sync \t0;")],
        &[Divergent],
    ),
    Plant("a barrier number that is not", "rms_norm_bf16", &[swap("bar.sync \t0;", "bar.sync \t16;")], &[Illegal]),
    Plant("x is read while it is stored", "newton_schulz_sm_80", &[drop("bar.sync \t0;").nth(0)], &[Race]),
    Plant("the square is read while it is stored", "newton_schulz_sm_80", &[drop("bar.sync \t0;").nth(1)], &[Race]),
    Plant("x is stored while it is read", "newton_schulz_sm_80", &[drop("bar.sync \t0;").nth(2)], &[Race]),
    Plant("the result is read while it is stored", "newton_schulz_sm_80", &[drop("bar.sync \t0;").nth(3)], &[Race]),
    Plant("x is read while it is stored", "newton_schulz_sm_90", &[drop("bar.sync \t0;").nth(0)], &[Race]),
    Plant("the square is read while it is stored", "newton_schulz_sm_90", &[drop("bar.sync \t0;").nth(1)], &[Race]),
    Plant("x is stored while it is read", "newton_schulz_sm_90", &[drop("bar.sync \t0;").nth(2)], &[Race]),
    Plant("the result is read while it is stored", "newton_schulz_sm_90", &[drop("bar.sync \t0;").nth(3)], &[Race]),
    Plant("no barrier of a k-step", "gemm_tf32", &[drop("bar.sync \t0;")], &[Race, InFlight]),
    Plant("no barrier of a step", "memory_read_bf16", &[drop("bar.sync \t0;").nth(1)], &[Race, InFlight]),
    Plant("no barrier after the tiles are stored", "sgemm_tiled", &[drop("bar.sync \t0;").nth(0)], &[Race]),
    Plant("no barrier after the tiles are read", "sgemm_tiled", &[drop("bar.sync \t0;").nth(1)], &[Race]),
    Plant("a sort without the barrier of a step", "bitonic_sort", &[drop("bar.sync \t0;").nth(1)], &[Race]),
];

#[test]
fn barriers_of_a_cta() {
    all_found("barriers", BARRIERS);
}

const NAMED_BARRIERS: &[Plant] = &[
    Plant("staging is written while its store may read it", "ring", &[drop("bar.sync 1, 128;").nth(0)], &[InFlight]),
    Plant(
        "the store is issued before all have written",
        "ring",
        &[drop("bar.sync 1, 128;").nth(1)],
        &[UninitializedRead, Race, MissingProxyFence],
    ),
    Plant("the producer is counted too", "ring", &[swap("bar.sync 1, 128;", "bar.sync 1, 160;").nth(0)], &[Deadlock]),
    Plant(
        "one warp too few is counted",
        "ring",
        &[swap("bar.sync 1, 128;", "bar.sync 1, 96;").nth(0)],
        &[Race, InFlight, Illegal, Deadlock],
    ),
    Plant("no barrier after the inits", "ring", &[drop("bar.sync 0;")], &[NotABarrier, Race]),
    Plant("the turn is not waited for", "pingpong", &[drop("bar.sync %mine, 256;")], &[InFlight, UninitializedRead]),
    Plant("the first turn is not given", "pingpong", &[drop("@%p bar.arrive 1, 256;")], &[Deadlock]),
    Plant("the turn is not handed on", "pingpong", &[drop("@%next bar.arrive %other, 256;")], &[Deadlock]),
    Plant(
        "the turn is handed to oneself",
        "pingpong",
        &[swap("@%next bar.arrive %other, 256;", "@%next bar.arrive %mine, 256;")],
        &[Deadlock, InFlight, Phase, Illegal],
    ),
    Plant(
        "the turn of the other is waited for",
        "pingpong",
        &[swap("bar.sync %mine, 256;", "bar.sync %other, 256;")],
        &[Illegal, InFlight, UninitializedRead, Deadlock],
    ),
    Plant(
        "the counts of a barrier disagree",
        "pingpong",
        &[swap("bar.sync %mine, 256;", "bar.sync %mine, 128;")],
        &[Illegal],
    ),
];

#[test]
fn named_barriers() {
    all_found("named_barriers", NAMED_BARRIERS);
}

const EXIT: &str = "barrier.cluster.arrive;\n\tbarrier.cluster.wait;\n\tret;";

const CLUSTER_BARRIERS: &[Plant] = &[
    Plant(
        "no barrier before shared memory of others is read",
        "cluster_reduce",
        &[drop("barrier.cluster.arrive;\n\tbarrier.cluster.wait;").nth(0)],
        &[Race, UninitializedRead],
    ),
    Plant(
        "a barrier of the CTA in its place",
        "cluster_reduce",
        &[swap("barrier.cluster.arrive;\n\tbarrier.cluster.wait;", "bar.sync 0;").nth(0)],
        &[Race, UninitializedRead],
    ),
    Plant(
        "it releases nothing",
        "cluster_reduce",
        &[swap("barrier.cluster.arrive;", "barrier.cluster.arrive.relaxed;").nth(0)],
        &[Race],
    ),
    Plant(
        "arrival without a wait",
        "cluster_reduce",
        &[drop("barrier.cluster.wait;").nth(0)],
        &[Race, UninitializedRead, Illegal],
    ),
    Plant("a CTA leaves before others have read it", "cluster_reduce", &[swap(EXIT, "ret;")], &[OutOfBounds]),
    Plant(
        "barriers of others are used before they are there",
        "cluster_ring",
        &[swap("barrier.cluster.arrive;\n\tbarrier.cluster.wait;", "bar.sync 0;").nth(0)],
        &[NotABarrier, Race],
    ),
    Plant(
        "inits are neither fenced nor released",
        "cluster_ring",
        &[
            drop("fence.mbarrier_init.release.cluster;"),
            swap("barrier.cluster.arrive;", "barrier.cluster.arrive.relaxed;").nth(0),
        ],
        &[NotABarrier, Race],
    ),
    Plant("a CTA leaves while others still arrive", "cluster_ring", &[swap(EXIT, "ret;")], &[OutOfBounds]),
    Plant("a rank that is not", "cluster_reduce", &[swap("mov.u32 \t%r43, 3;", "mov.u32 \t%r43, 4;")], &[OutOfBounds]),
];

#[test]
fn barriers_of_a_cluster() {
    all_found("cluster_barriers", CLUSTER_BARRIERS);
}
