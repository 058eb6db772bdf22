//! The copy engine: mbarriers that it cannot see yet, fences of other memory, tensor maps, and boxes that begin off a chunk.

use super::plant::{Plant, all_found, drop, none_found, swap};
use atlas_sim::fault::FaultKind::*;

const FENCE: &str = "fence.proxy.async.shared::cta;";
const INIT: &str = "fence.mbarrier_init.release.cluster;";
const LEADER: &str = "@%leader fence.mbarrier_init.release.cluster;";
const RELEASE: &str = "fence.proxy.tensormap::generic.release.cta;";
const ACQUIRE: &str = "fence.proxy.tensormap::generic.acquire.cta [%copy], 128;";
const LOAD: &str = "[%s], [%copy, {%x, %x}], [%r0];";

const ENGINE: &[Plant] = &[
    Plant(
        "an mbarrier is initialised and used at once",
        "written_map",
        &[
            drop(LEADER),
            drop(ACQUIRE),
            swap("setp.ge.u32 %p, %t, 8;", "setp.eq.u32 %p, %t, %t;"),
            swap("[%copy, {%x, %x}]", "[%map, {%x, %x}]"),
            swap("bar.sync 0;\n", "\n"),
            swap("$wait:\n", "$wait:\n\tbar.sync 0;\n$poll:\n"),
            swap("@!%done bra $wait;", "@!%done bra $poll;"),
        ],
        &[MissingProxyFence],
    ),
    Plant(
        "inits that nothing releases to the other CTA's engine",
        "multicast",
        &[
            drop(INIT),
            drop("fence.proxy.async;"),
            swap("barrier.cluster.arrive.aligned;", "barrier.cluster.arrive.relaxed.aligned;").nth(0),
        ],
        &[Race, NotABarrier],
    ),
    Plant(
        "a fence of global memory for staging",
        "ring",
        &[swap(FENCE, "fence.proxy.async.global;")],
        &[MissingProxyFence],
    ),
    Plant(
        "a fence of global memory for operands",
        "written_operand",
        &[swap(FENCE, "fence.proxy.async.global;")],
        &[MissingProxyFence],
    ),
    Plant("a written map without fences", "written_map", &[drop(RELEASE), drop(ACQUIRE)], &[MissingProxyFence]),
    Plant("a written map is not released", "written_map", &[drop(RELEASE)], &[MissingProxyFence]),
    Plant("a written map is not acquired", "written_map", &[drop(ACQUIRE)], &[MissingProxyFence]),
    Plant(
        "other bytes are acquired",
        "written_map",
        &[swap(ACQUIRE, "fence.proxy.tensormap::generic.acquire.cta [%copy+128], 128;")],
        &[MissingProxyFence],
    ),
    Plant(
        "a fence of the asynchronous proxy for a written map",
        "written_map",
        &[swap(RELEASE, "fence.proxy.async;"), swap(ACQUIRE, "fence.proxy.async;")],
        &[MissingProxyFence],
    ),
    Plant(
        "a map is used before all have written it",
        "written_map",
        &[drop("bar.sync 0;")],
        &[Race, UninitializedRead, NotABarrier],
    ),
    Plant(
        "a map changes while it is used",
        "written_map",
        &[swap(LOAD, "[%s], [%copy, {%x, %x}], [%r0];\n\tst.global.b32 [%copy+120], %x;")],
        &[InFlight, Race],
    ),
    Plant(
        "a map changes before it is used",
        "written_map",
        &[swap(ACQUIRE, "fence.proxy.tensormap::generic.acquire.cta [%copy], 128;\n\tst.global.b32 [%copy+120], %x;")],
        &[MissingProxyFence],
    ),
    Plant(
        "a map off a multiple of 64 bytes",
        "written_map",
        &[swap("ld.param.u64 %copy, [copy];", "ld.param.u64 %copy, [copy];\n\tadd.s64 %copy, %copy, 32;")],
        &[Misaligned],
    ),
    Plant(
        "bytes that are no map",
        "written_map",
        &[swap("st.global.v4.b32 [%at], {%r0, %r1, %r2, %r3};", "st.global.v4.b32 [%at], {%r0, %r0, %r2, %r3};")
            .nth(0)],
        &[Illegal],
    ),
    Plant(
        "a map in shared memory",
        "written_map",
        &[
            swap(LOAD, "[%s], [%wide, {%x, %x}], [%r0];"),
            swap("mov.b32 %x, 0;", "mov.b32 %x, 0;\n\tcvt.u64.u32 %wide, %s;\n\tcvta.shared.u64 %wide, %wide;"),
        ],
        &[Illegal],
    ),
    Plant(
        "a load begins half a chunk on",
        "ring",
        &[swap("shl.b32 %k, %step, 6;", "shl.b32 %k, %step, 2;")],
        &[Misaligned],
    ),
    Plant(
        "a store begins one element on",
        "ring",
        &[swap("shl.b32 %n, %tile, 4;", "mov.b32 %n, %tile;").nth(1)],
        &[Misaligned],
    ),
];

#[test]
fn the_engine() {
    all_found("engine", ENGINE);
}

const HARMLESS: &[Plant] = &[
    Plant(
        "an mbarrier is initialised, fenced and used by one thread",
        "written_map",
        &[
            drop(ACQUIRE),
            swap("setp.ge.u32 %p, %t, 8;", "setp.eq.u32 %p, %t, %t;"),
            swap("[%copy, {%x, %x}]", "[%map, {%x, %x}]"),
            swap("bar.sync 0;\n", "\n"),
            swap("$wait:\n", "$wait:\n\tbar.sync 0;\n$poll:\n"),
            swap("@!%done bra $wait;", "@!%done bra $poll;"),
        ],
        &[],
    ),
    Plant("a fence of all CTAs' shared memory", "ring", &[swap(FENCE, "fence.proxy.async.shared::cluster;")], &[]),
    Plant(
        "fences of both kinds of memory",
        "written_operand",
        &[swap(FENCE, "fence.proxy.async.global;\n\tfence.proxy.async.shared::cta;")],
        &[],
    ),
    Plant(
        "a map is acquired for the whole device",
        "written_map",
        &[swap(ACQUIRE, "fence.proxy.tensormap::generic.acquire.gpu [%copy], 128;")],
        &[],
    ),
    Plant(
        "a map is prefetched",
        "written_map",
        &[swap(
            ACQUIRE,
            "prefetch.tensormap [%map];\n\tfence.proxy.tensormap::generic.acquire.cta [%copy], 128;\n\tprefetch.tensormap [%copy];",
        )],
        &[],
    ),
];

#[test]
fn harmless_changes_of_the_engine() {
    none_found(HARMLESS);
}
