//! Fences between proxies, and bulk copies out of shared memory that are not waited for.

use super::plant::{Plant, all_found, drop, swap};
use atlas_sim::fault::FaultKind::*;

const FENCE: &str = "fence.proxy.async.shared::cta;";
const COMMIT: &str = "@%leader cp.async.bulk.commit_group;";
const READ: &str = "@%leader cp.async.bulk.wait_group.read 0;";

const PROXIES: &[Plant] = &[
    Plant("a tile is stored without a proxy fence", "ring", &[drop(FENCE)], &[MissingProxyFence]),
    Plant("operands are multiplied without a proxy fence", "written_operand", &[drop(FENCE)], &[MissingProxyFence]),
    Plant(
        "the proxy fence comes before the writes",
        "ring",
        &[drop(FENCE), swap("stmatrix", "fence.proxy.async.shared::cta;\n\tstmatrix")],
        &[MissingProxyFence],
    ),
    Plant(
        "only one thread has a proxy fence",
        "ring",
        &[swap(FENCE, "@%leader fence.proxy.async.shared::cta;")],
        &[MissingProxyFence],
    ),
    Plant("another fence in its place", "written_operand", &[swap(FENCE, "fence.acq_rel.gpu;")], &[MissingProxyFence]),
    Plant("sums are sent without a proxy fence", "bulk_reduce", &[drop(FENCE)], &[MissingProxyFence]),
    Plant("Triton's store without a proxy fence", "triton_matmul_tma", &[drop(FENCE)], &[MissingProxyFence]),
    Plant("staging is written while a store reads it", "ring", &[drop(READ)], &[InFlight]),
    Plant(
        "a store may still read staging",
        "ring",
        &[swap(READ, "@%leader cp.async.bulk.wait_group.read 1;")],
        &[InFlight],
    ),
    Plant("stores belong to no group", "ring", &[drop(COMMIT)], &[InFlight]),
    Plant("the CTA leaves while a store reads", "ring", &[drop("@%leader cp.async.bulk.wait_group 0;")], &[InFlight]),
    Plant(
        "another thread waits for the store",
        "ring",
        &[
            swap(READ, "@%first cp.async.bulk.wait_group.read 0;"),
            swap("setp.eq.u32 %first, %lane, 0;", "setp.eq.u32 %first, %t, 32;"),
        ],
        &[InFlight, Deadlock],
    ),
    Plant(
        "one buffer too few for stores in flight",
        "bulk_copy",
        &[swap("cp.async.bulk.wait_group.read 1;", "cp.async.bulk.wait_group.read 2;")],
        &[InFlight],
    ),
    Plant(
        "a stage is cleared and then loaded, without a proxy fence",
        "ring",
        &[swap("bar.sync 0;", "shl.b32 %x, %t, 2;\n\tadd.s32 %x, %x, %s;\n\tst.shared.b32 [%x], %t;\n\tbar.sync 0;")],
        &[MissingProxyFence],
    ),
    Plant(
        "only one thread has a proxy fence for operands",
        "written_operand",
        &[swap(FENCE, "setp.eq.u32 %p, %t, 0;\n\t@%p fence.proxy.async.shared::cta;")],
        &[MissingProxyFence],
    ),
    Plant(
        "an operand is written while it is multiplied",
        "written_operand",
        &[swap("wgmma.wait_group", "setp.eq.u32 %p, %t, 0;\n\t@%p st.shared.b32 [%s], %t;\n\twgmma.wait_group")],
        &[InFlight, Race],
    ),
];

#[test]
fn proxies_and_stores() {
    all_found("proxies", PROXIES);
}
