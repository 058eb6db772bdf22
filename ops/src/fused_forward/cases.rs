//! The op `fused_forward`: the row of the table, and its problems to verify, simulate and measure.

use crate::problem::{Fill, Layout, Measured, Op, Problem, Required};
use crate::tolerance::ToleranceClass;
use crate::usual::{long_rows, product, short_rows};
use atlas_dsl::DType;

/// A static, because one of these kernels is made by `fuse!` when it is first asked for, and constants of Rust 1.89 name no such statics.
pub(crate) static OP: Op = Op {
    scalars: &[("a1", 1.0), ("a2", 0.5), ("a3", -0.25), ("eps", 1e-6)],
    fill: |p, name| match name {
        "w2" => Fill::Normal((p.dim("D").max(1) as f64).powf(-0.5)),
        "w1" => Fill::Normal((p.dim("H").max(1) as f64).powf(-0.5)),
        _ => Fill::Normal(1.0),
    },
    far_from_one,
    ..Op::of(Required {
        name: "fused_forward",
        kernels: &[
            &super::fused_forward,
            &super::mag_forward,
            &super::lerp_forward,
            &super::group_norm,
            &super::silu_gate,
            &super::sigmoid_gate,
            &super::lerp_gate,
        ],
        class: ToleranceClass::Mlp,
        batch: "G",
        reference: super::reference::reference,
        flops: |p| (4.0 * p.dim("H") as f64 + 15.0) * product(p, &["G", "N", "D"]),
        verification,
        simulation,
        measured: &[
            Measured::bf16("fused_forward", "fused_forward", &[128, 2048, 64, 256]),
            Measured::bf16("mag_forward", "mag_forward", &[128, 2048, 64, 256]),
            Measured::bf16("lerp_forward", "lerp_forward", &[128, 2048, 64, 256]),
            Measured::bf16("group_norm", "group_norm", &[128, 2048, 64]),
            Measured::bf16("silu_gate", "silu_gate", &[128, 2048, 64]),
            Measured::bf16("sigmoid_gate", "sigmoid_gate", &[128, 2048, 64]),
            Measured::bf16("lerp_gate", "lerp_gate", &[128, 2048, 64]),
        ],
    })
};

/// Dims: G N D, and of those with a memory H.
fn verification(op: &'static Op, dtype: DType) -> Vec<Problem> {
    let on = |kernel: usize, dims: &[u64]| Problem::new(op, op.kernel(kernel), dtype, dims);
    let fused = (0..3).flat_map(|k| {
        [
            on(k, &[2, 128, 64, 256]),
            on(k, &[2, 200, 48, 192]).note("ragged"),
            on(k, &[3, 1, 64, 256]).note("one token"),
            on(k, &[1, 33, 16, 40]).note("ragged H"),
            on(k, &[2, 0, 64, 256]).note("no token"),
            on(k, &[2, 37, 64, 256]).layout("q", Layout::Swapped).layout("y", Layout::Swapped).note("tokens first"),
            on(k, &[3, 24, 48, 192]).fill("q", Fill::NanAt(1)).note("NaN in one group"),
        ]
    });
    fused.chain((3..7).map(|k| on(k, &[2, 37, 40]).note("ragged"))).collect()
}

fn simulation(op: &'static Op, dtype: DType) -> Vec<Problem> {
    let on = |kernel: usize, dims: &[u64]| Problem::new(op, op.kernel(kernel), dtype, dims);
    (0..3)
        .flat_map(|k| {
            [on(k, &[1, 37, 48, 96]).note("ragged"), on(k, &[2, 32, 32, 64]), on(k, &[1, 20, 16, 40]).note("ragged H")]
        })
        .chain((3..7).map(|k| on(k, &[2, 21, 40]).note("ragged")))
        .collect()
}

fn far_from_one(op: &'static Op, dtype: DType) -> Vec<Problem> {
    let on = |kernel: usize, dims: &[u64]| Problem::new(op, op.kernel(kernel), dtype, dims);
    vec![long_rows(on(3, &[2, 5, 64])), short_rows(on(3, &[2, 5, 40]))]
}
