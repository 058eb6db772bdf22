//! `wgmma`: fences, groups, descriptors, and stages that are given back while they are read.

use super::plant::{Plant, all_found, drop, swap};
use atlas_sim::fault::FaultKind::*;

const WAIT: &str = "wgmma.wait_group.sync.aligned 0;";
const ARRIVE: &str = "@%first mbarrier.arrive.shared::cta.b64 _, [%bar+22544];";

const WGMMA: &[Plant] = &[
    Plant("no fence after the accumulators are set", "ring", &[drop("wgmma.fence.sync.aligned;")], &[InFlight]),
    Plant("no wait", "ring", &[drop(WAIT)], &[InFlight]),
    Plant("a group may be in flight", "ring", &[swap(WAIT, "wgmma.wait_group.sync.aligned 1;")], &[InFlight]),
    Plant("products belong to no group", "ring", &[drop("wgmma.commit_group.sync.aligned;")], &[InFlight]),
    Plant("accumulators are read early", "pingpong", &[drop(WAIT)], &[InFlight]),
    Plant(
        "accumulators are read a group early",
        "pingpong",
        &[swap(WAIT, "wgmma.wait_group.sync.aligned 1;")],
        &[InFlight],
    ),
    Plant(
        "a stage is given back while it is read",
        "pingpong",
        &[drop("wgmma.wait_group.sync.aligned 1;")],
        &[InFlight],
    ),
    Plant(
        "a stage is given back a group early",
        "pingpong",
        &[
            swap("and.pred %next, %more, %first;", "mov.pred %next, %first;"),
            swap("[%last+20496];", "[%bar+20496];").nth(0),
            drop("@%first mbarrier.arrive.shared::cta.b64 _, [%last+20496];"),
        ],
        &[InFlight, Race, Phase],
    ),
    Plant(
        "a stage is given back before the wait",
        "ring",
        &[
            drop(ARRIVE),
            swap(WAIT, "@%first mbarrier.arrive.shared::cta.b64 _, [%bar+22544];\n\twgmma.wait_group.sync.aligned 0;"),
        ],
        &[InFlight, Race],
    ),
    Plant(
        "an accumulator is touched between products",
        "ring",
        &[swap("wgmma.commit_group", "add.f32 %d0, %d0, %d0;\n\twgmma.commit_group")],
        &[InFlight],
    ),
    Plant(
        "an accumulator is set between fence and product",
        "ring",
        &[swap("wgmma.fence.sync.aligned;", "wgmma.fence.sync.aligned;\n\tmov.f32 %d0, %d1;")],
        &[InFlight],
    ),
    Plant(
        "one thread waits for a full stage for all",
        "ring",
        &[
            swap("$wait_full:\n", "setp.ne.u32 %p, %t, 0;\n\t@%p bra $go;\n$wait_full:\n"),
            swap("@!%done bra $wait_full;", "@!%done bra $wait_full;\n$go:"),
        ],
        &[Race, InFlight, UninitializedRead],
    ),
    Plant(
        "all threads but one wait for a full stage",
        "ring",
        &[
            swap("$wait_full:\n", "setp.eq.u32 %p, %t, 127;\n\t@%p bra $go;\n$wait_full:\n"),
            swap("@!%done bra $wait_full;", "@!%done bra $wait_full;\n$go:"),
        ],
        &[Race, InFlight, UninitializedRead],
    ),
    Plant(
        "a piece of an operand is not written",
        "written_operand",
        &[swap("setp.lt.u32 %p, %i, 512;", "setp.lt.u32 %p, %i, 384;")],
        &[UninitializedRead],
    ),
    Plant("an accumulator is not set", "ring", &[drop("mov.f32 %d3, 0f00000000;")], &[]),
    Plant(
        "sums begin with those of the tile before",
        "ring",
        &[swap("mov.f32 %d7, 0f00000000;", "setp.eq.u32 %p, %tile, 0;\n\t@%p mov.f32 %d7, 0f00000000;")],
        &[],
    ),
    Plant("the first product adds", "pingpong", &[swap("%a0, %b0, %more,", "%a0, %b0, 1,")], &[]),
    Plant("a product does not add", "cluster_ring", &[swap("%a2, %b2, 1,", "%a2, %b2, 0,")], &[]),
];

#[test]
fn products_in_flight() {
    all_found("wgmma", WGMMA);
}

const DESCRIPTORS: &[Plant] = &[
    Plant("the swizzle of 64 bytes", "ring", &[swap("0x4000004000010000", "0x8000004000010000").nth(0)], &[Illegal]),
    Plant("no swizzle", "written_operand", &[swap("0x4000004000010000", "0x0000004000010000")], &[]),
    Plant(
        "groups of rows are half as far apart",
        "ring",
        &[swap("0x4000004000010000", "0x4000002000010000").nth(0)],
        &[],
    ),
    Plant(
        "groups of rows are twice as far apart",
        "written_operand",
        &[swap("0x4000004000010000", "0x4000008000010000")],
        &[OutOfBounds, UninitializedRead],
    ),
    Plant("a step of K is twice as far", "ring", &[swap("add.s64 %a1, %a0, 2;", "add.s64 %a1, %a0, 4;")], &[]),
    Plant(
        "the address is not in units of 16 bytes",
        "ring",
        &[drop("shr.u32 %x, %x, 4;").nth(0)],
        &[OutOfBounds, InFlight, UninitializedRead],
    ),
    Plant("B is taken as transposed", "ring", &[swap("%a0, %b0, 1, 1, 1, 0, 0;", "%a0, %b0, 1, 1, 1, 0, 1;")], &[]),
    Plant(
        "operands are stored with another swizzle",
        "written_operand",
        &[swap("and.b32 %y, %y, 112;", "and.b32 %y, %y, 96;").nth(0)],
        &[],
    ),
    Plant("operands are stored without the swizzle", "written_operand", &[drop("xor.b32 %x, %x, %y;").nth(1)], &[]),
];

#[test]
fn descriptors() {
    all_found("descriptors", DESCRIPTORS);
}
