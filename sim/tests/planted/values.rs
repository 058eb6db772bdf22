//! Mistakes that break no rule but make results wrong.

use super::plant::{Plant, all_found, drop, swap};
use atlas_sim::fault::FaultKind::*;

const VALUES: &[Plant] = &[
    Plant(
        "a chunk of the left operand is swizzled otherwise",
        "newton_schulz_sm_80",
        &[swap("xor.b32 \t%r218, %r163, 32;", "xor.b32 \t%r218, %r163, 48;")],
        &[],
    ),
    Plant(
        "a chunk of the right operand is swizzled otherwise",
        "memory_read_bf16",
        &[swap("xor.b32 \t%r133, %r85, 32;", "xor.b32 \t%r133, %r85, 16;")],
        &[],
    ),
    Plant(
        "a fragment is read where another is",
        "gemm_tf32",
        &[swap("xor.b32 \t%r88, %r63, 16;", "xor.b32 \t%r88, %r63, 32;")],
        &[],
    ),
    Plant("the staged C is not swizzled", "ring", &[drop("xor.b32 %from, %from, %y;")], &[]),
    Plant("a k-step is left out", "gemm_tf32", &[swap("add.s32 \t%r11, %r4, 1;", "add.s32 \t%r11, %r4, 0;")], &[]),
    Plant(
        "sums of the first k-steps are lost",
        "gemm_tf32",
        &[swap("{%r107, %r108, %r109, %r110};", "{%r185, %r185, %r185, %r185};")],
        &[],
    ),
    Plant(
        "rows of A are those of the tile before",
        "ring",
        &[swap("shl.b32 %row, %row, 6;", "shl.b32 %row, %row, 5;")],
        &[Race, InFlight],
    ),
    Plant("halves of a pair change places", "ring", &[swap("%r0, %d1, %d0;", "%r0, %d0, %d1;")], &[]),
    Plant(
        "an epsilon is left out",
        "rms_norm_bf16",
        &[swap("add.rn.f32 \t%r66, %r6, %r57;", "add.rn.f32 \t%r66, %r57, %r57;")],
        &[],
    ),
    Plant(
        "tiles are in other columns",
        "cluster_ring",
        &[swap("shl.b32 %column, %column, 4;", "shl.b32 %column, %column, 3;")],
        &[Race],
    ),
    Plant("a scan leaves out a step", "scan", &[swap("shfl.sync.up.b32", "shfl.sync.bfly.b32").nth(0)], &[]),
];

#[test]
fn wrong_results() {
    all_found("values", VALUES);
}
