//! Lanes of a warp: shuffles with the wrong mask, instructions that all lanes must execute together.

use super::plant::{Plant, all_found, drop, swap};
use atlas_sim::fault::FaultKind::*;

const WARPS: &[Plant] = &[
    Plant(
        "a lane shuffles that the mask leaves out",
        "softmax_bf16",
        &[swap(", 1, 31, -1;", ", 1, 31, 65535;").nth(0)],
        &[Divergent],
    ),
    Plant(
        "the mask names lanes that do not shuffle",
        "rms_norm_bf16",
        &[swap("shfl.sync.bfly.b32 \t%r50", "setp.lt.u32 \t%p1, %r4, 16;\n\t@%p1 shfl.sync.bfly.b32 \t%r50")],
        &[Divergent, Deadlock],
    ),
    Plant("a reduction meets lanes twice", "rms_norm_bf16", &[swap(", 16, 31, -1;", ", 8, 31, -1;")], &[]),
    Plant("a reduction stays in half a warp", "rms_norm_bf16", &[swap(", 16, 31, -1;", ", 16, 15, -1;")], &[]),
    Plant("a reduction lacks a step", "softmax_bf16", &[swap(", 4, 31, -1;", ", 0, 31, -1;").nth(1)], &[]),
    Plant("some lanes load matrices", "newton_schulz_sm_80", &[swap("ldmatrix", "@%p1 ldmatrix").nth(0)], &[Divergent]),
    Plant("some lanes multiply", "newton_schulz_sm_80", &[swap("mma.sync", "@%p1 mma.sync").nth(0)], &[Divergent]),
    Plant(
        "lanes that the mask of a barrier leaves out",
        "newton_schulz_sm_80",
        &[swap("bar.sync \t0;", "bar.warp.sync \t65535;").nth(1)],
        &[Divergent],
    ),
    Plant("some lanes store matrices", "ring", &[swap("stmatrix", "@%first stmatrix")], &[Divergent]),
    Plant(
        "some warps of a warpgroup multiply",
        "ring",
        &[swap("wgmma.mma_async", "setp.lt.u32 %p, %t, 96;\n\t@%p wgmma.mma_async").nth(0)],
        &[Divergent, Deadlock],
    ),
    Plant(
        "some lanes wait for a product",
        "ring",
        &[swap("wgmma.wait_group", "@%first wgmma.wait_group")],
        &[Divergent],
    ),
    Plant(
        "lanes of the producer warp fill the ring together",
        "ring",
        &[drop("setp.ne.u32 %p, %t, 128;\n\t@%p bra $end;")],
        &[Phase],
    ),
];

#[test]
fn lanes_of_a_warp() {
    all_found("warps", WARPS);
}
