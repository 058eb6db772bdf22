//! mbarriers: wrong or missing parities, counts, bytes, inits and arrivals.

use super::plant::{Plant, all_found, drop, swap};
use atlas_sim::fault::FaultKind::*;

const ARRIVE: &str = "@%first mbarrier.arrive.shared::cta.b64 _, [%bar+22544];";
const FLIP: &str = "@%p xor.b32 %phase, %phase, 1;";
const EXPECT: &str = "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%bar+22528], 10240;";

const PHASES: &[Plant] = &[
    Plant(
        "the consumer waits for the wrong parity",
        "ring",
        &[swap("mov.b32 %phase, 0;", "mov.b32 %phase, 1;")],
        &[InFlight, UninitializedRead, Deadlock],
    ),
    Plant(
        "the producer waits for the wrong parity",
        "ring",
        &[swap("mov.b32 %phase, 1;", "mov.b32 %phase, 0;")],
        &[Deadlock],
    ),
    Plant("the producer's first parity is not set", "ring", &[drop("mov.b32 %phase, 1;")], &[Deadlock]),
    Plant("the producer's parity stays", "ring", &[drop(FLIP).nth(0)], &[InFlight, Race, Deadlock, Phase]),
    Plant("the consumer's parity stays", "ring", &[drop(FLIP).nth(1)], &[InFlight, Race, Phase, Deadlock]),
    Plant(
        "the parity flips at each step",
        "ring",
        &[swap("@%p xor.b32 %phase, %phase, 1;", "xor.b32 %phase, %phase, 1;").nth(1)],
        &[InFlight, UninitializedRead, Deadlock, Phase],
    ),
    Plant("fewer bytes are expected than come", "ring", &[swap("], 10240;", "], 8192;")], &[Phase, InFlight]),
    Plant("more bytes are expected than come", "ring", &[swap("], 10240;", "], 12288;")], &[Deadlock]),
    Plant(
        "no bytes are expected",
        "ring",
        &[swap(EXPECT, "mbarrier.arrive.shared::cta.b64 _, [%bar+22528];")],
        &[InFlight, UninitializedRead, Phase],
    ),
    Plant(
        "bytes are expected and nobody arrives",
        "ring",
        &[swap(EXPECT, "mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%bar+22528], 10240;")],
        &[Deadlock],
    ),
    Plant(
        "the bytes are told to another barrier",
        "ring",
        &[swap("add.s32 %full, %bar, 22528;", "add.s32 %full, %bar, 22544;")],
        &[Phase, InFlight, UninitializedRead, Deadlock],
    ),
    Plant(
        "a barrier is not initialised",
        "ring",
        &[drop("mbarrier.init.shared::cta.b64 [%s+22552], 4;")],
        &[NotABarrier],
    ),
    Plant("an arrival too many is awaited", "ring", &[swap("[%s+22552], 4;", "[%s+22552], 5;")], &[Deadlock]),
    Plant(
        "an arrival too few is awaited",
        "ring",
        &[swap("[%s+22552], 4;", "[%s+22552], 3;")],
        &[Phase, InFlight, Race],
    ),
    Plant("nobody says that a stage is read", "ring", &[drop(ARRIVE)], &[Deadlock]),
    Plant(
        "all lanes say that a stage is read",
        "ring",
        &[swap(ARRIVE, "mbarrier.arrive.shared::cta.b64 _, [%bar+22544];")],
        &[Phase],
    ),
    Plant(
        "it is said twice",
        "ring",
        &[swap(
            ARRIVE,
            "@%first mbarrier.arrive.shared::cta.b64 _, [%bar+22544];\n\
                     @%first mbarrier.arrive.shared::cta.b64 _, [%bar+22544];",
        )],
        &[Phase, InFlight, Race],
    ),
    Plant(
        "full stages are not waited for",
        "ring",
        &[drop("@!%done bra $wait_full;")],
        &[InFlight, UninitializedRead, Race],
    ),
    Plant("empty stages are not waited for", "ring", &[drop("@!%done bra $wait_empty;")], &[InFlight, Race, Phase]),
    Plant(
        "the other stage of A is read",
        "ring",
        &[swap(
            "shl.b32 %x, %stage, 13;\n\tadd.s32 %x, %x, %s;",
            "xor.b32 %x, %stage, 1;\n\tshl.b32 %x, %x, 13;\n\tadd.s32 %x, %x, %s;",
        )],
        &[InFlight, UninitializedRead, Race],
    ),
    Plant("B comes from the map of A", "ring", &[swap("[%map_b, {%k, %n}]", "[%map_a, {%k, %n}]")], &[OutOfBounds]),
    Plant(
        "B goes to the other stage",
        "ring",
        &[swap(
            "shl.b32 %x, %stage, 11;\n\tadd.s32 %to, %s, %x;",
            "xor.b32 %x, %stage, 1;\n\tshl.b32 %x, %x, 11;\n\tadd.s32 %to, %s, %x;",
        )],
        &[InFlight, UninitializedRead, Race],
    ),
    Plant(
        "the producer goes on for a tile",
        "ring",
        &[swap("setp.lt.u32 %p, %tile, %tiles;", "setp.le.u32 %p, %tile, %tiles;").nth(0)],
        &[Deadlock, InFlight],
    ),
    Plant(
        "the consumer goes on for a step",
        "ring",
        &[swap("setp.lt.u32 %p, %step, %steps;", "setp.le.u32 %p, %step, %steps;").nth(1)],
        &[Deadlock],
    ),
    Plant("the staged C reaches the barriers", "ring", &[swap("[%from+20480]", "[%from+20512]")], &[NotABarrier]),
    Plant(
        "an arrival releases nothing",
        "ring",
        &[swap(ARRIVE, "@%first mbarrier.arrive.relaxed.cta.shared::cta.b64 _, [%bar+22544];")],
        &[Race],
    ),
    Plant(
        "a wait for a full stage acquires nothing",
        "ring",
        &[swap("parity.shared::cta.b64 %done, [%bar+22528]", "parity.relaxed.cta.shared::cta.b64 %done, [%bar+22528]")],
        &[Race, InFlight],
    ),
    Plant(
        "a wait for an empty stage acquires nothing",
        "ring",
        &[swap("parity.shared::cta.b64 %done, [%bar+22544]", "parity.relaxed.cta.shared::cta.b64 %done, [%bar+22544]")],
        &[Race],
    ),
    Plant(
        "a barrier is initialised again in use",
        "ring",
        &[swap("mov.b32 %phase, 0;", "mov.b32 %phase, 0;\n\t@%leader mbarrier.init.shared::cta.b64 [%s+22528], 1;")],
        &[NotABarrier],
    ),
    Plant("a barrier of no arrivals", "ring", &[swap("[%s+22552], 4;", "[%s+22552], 0;")], &[Illegal]),
    Plant(
        "a stage is loaded that nobody waits for",
        "wgmma_tma",
        &[swap("setp.ge.s32 \t%p11, %r63, %r1;", "setp.gt.s32 \t%p11, %r63, %r1;")],
        &[InFlight],
    ),
    Plant(
        "an arrival too many is awaited of all threads",
        "barrier_copy",
        &[swap("mov.u32 \t%r13, 128;", "mov.u32 \t%r13, 129;")],
        &[Deadlock, Budget],
    ),
];

#[test]
fn phases() {
    all_found("phases", PHASES);
}

const CLUSTER_PHASES: &[Plant] = &[
    Plant(
        "half of B goes to its own CTA only",
        "cluster_ring",
        &[swap("mov.b16 %both, 3;", "mov.b16 %both, 1;")],
        &[Deadlock, Phase],
    ),
    Plant(
        "a CTA is sent to that is not",
        "cluster_ring",
        &[swap("mov.b16 %both, 3;", "mov.b16 %both, 7;")],
        &[Illegal, OutOfBounds],
    ),
    Plant(
        "bytes from the other CTA are not expected",
        "cluster_ring",
        &[swap("], 10240;", "], 9216;")],
        &[Phase, InFlight, Deadlock],
    ),
    Plant(
        "only rank 0 learns that a stage is read",
        "cluster_ring",
        &[swap("setp.lt.u32 %pair, %lane, 2;", "setp.lt.u32 %pair, %lane, 1;")],
        &[Deadlock],
    ),
    Plant(
        "consumers of the other CTA are not waited for",
        "cluster_ring",
        &[
            swap("[%s+20496], 8;", "[%s+20496], 4;"),
            swap("[%s+20504], 8;", "[%s+20504], 4;"),
            swap("setp.lt.u32 %pair, %lane, 2;", "setp.eq.u32 %pair, %lane, %rank;"),
        ],
        &[InFlight, Race],
    ),
    Plant(
        "halves of B overlap",
        "cluster_ring",
        &[swap("shl.b32 %x, %rank, 10;", "shl.b32 %x, %rank, 9;")],
        &[InFlight, Race, Misaligned, Illegal],
    ),
    Plant(
        "both send the same half",
        "cluster_ring",
        &[swap("add.s32 %n, %column, %half;", "mov.b32 %n, %column;")],
        &[],
    ),
    Plant(
        "the other CTA never says that it has read",
        "multicast",
        &[drop("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [remote];")],
        &[Deadlock],
    ),
];

#[test]
fn phases_of_a_cluster() {
    all_found("cluster_phases", CLUSTER_PHASES);
}
