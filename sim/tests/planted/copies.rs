//! `cp.async`: waits and groups that are missing or one off, stages that are confused.

use super::plant::{Plant, all_found, drop, swap};
use atlas_sim::fault::FaultKind::*;

const COPIES: &[Plant] = &[
    Plant("no wait", "gemm_tf32", &[drop("cp.async.wait_group \t0;")], &[InFlight, UninitializedRead]),
    Plant(
        "one group may be in flight",
        "gemm_tf32",
        &[swap("cp.async.wait_group \t0;", "cp.async.wait_group \t1;")],
        &[InFlight],
    ),
    Plant(
        "the barrier comes before the wait",
        "gemm_tf32",
        &[swap("cp.async.wait_group \t0;\n\tbar.sync \t0;", "bar.sync \t0;\n\tcp.async.wait_group \t0;")],
        &[Race, InFlight],
    ),
    Plant("the first copies belong to no group", "gemm_tf32", &[drop("cp.async.commit_group;").nth(0)], &[InFlight]),
    Plant("copies of a step belong to no group", "gemm_tf32", &[drop("cp.async.commit_group;").nth(1)], &[InFlight]),
    Plant(
        "the stage being filled is read",
        "gemm_tf32",
        &[swap("add.s32 \t%r78, %r176, -2048;", "add.s32 \t%r78, %r176, 0;")],
        &[InFlight, Race, UninitializedRead],
    ),
    Plant(
        "the stage being read is filled",
        "gemm_tf32",
        &[swap("and.b32 \t%r52, %r176, 2048;", "and.b32 \t%r52, %r176, 2048;\n\txor.b32 \t%r52, %r52, 2048;")],
        &[InFlight, Race],
    ),
    Plant(
        "rows beyond the matrix are not zeros",
        "gemm_tf32",
        &[
            swap("selp.b32 \t%r55, 16, 0, %p9;", "mov.b32 \t%r55, 16;"),
            swap("selp.b32 \t%r59, 16, 0, %p11;", "mov.b32 \t%r59, 16;"),
        ],
        &[],
    ),
    Plant(
        "weights are not waited for",
        "memory_read_bf16",
        &[swap("cp.async.wait_group \t0;", "cp.async.wait_group \t1;")],
        &[InFlight],
    ),
    Plant(
        "one group too many in flight",
        "mma_cp_async",
        &[swap("cp.async.wait_group 1;", "cp.async.wait_group 2;")],
        &[InFlight],
    ),
    Plant("the first group is not closed", "mma_cp_async", &[drop("cp.async.commit_group;").nth(0)], &[InFlight]),
    Plant("groups of steps are not closed", "mma_cp_async", &[drop("cp.async.commit_group;").nth(1)], &[InFlight]),
    Plant("a stage is filled while it is read", "mma_cp_async", &[drop("bar.sync \t0;").nth(1)], &[Race, InFlight]),
    Plant(
        "a barrier does not learn of copies",
        "barrier_copy",
        &[drop("cp.async.mbarrier.arrive.shared.b64 [%r21];")],
        &[InFlight],
    ),
];

#[test]
fn copies_of_threads() {
    all_found("copies", COPIES);
}
