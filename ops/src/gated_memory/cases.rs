//! The op `gated_memory`: the row of the table, and its problems to verify, simulate and measure.

use crate::problem::{Fill, Measured, Op, Problem, Required};
use crate::tolerance::ToleranceClass;
use crate::usual::{long_rows, product};
use atlas_dsl::DType;

pub(crate) const OP: Op = Op {
    scalars: &[("scale", 2.0), ("eps", 1e-5)],
    fill: |p, name| match name {
        "w2" | "w3" => Fill::Normal((p.dim("D").max(1) as f64).powf(-0.5)),
        "w1" => Fill::Normal((p.dim("H").max(1) as f64).powf(-0.5)),
        "c" => Fill::Around(0.5, 0.2),
        _ => Fill::Normal(1.0),
    },
    far_from_one,
    ..Op::of(Required {
        name: "gated_memory",
        kernels: const {
            &[
                &super::memory_read_gated,
                &super::memory_read_normed,
                &super::memory_gated_errors,
                &super::memory_gated_grads,
            ]
        },
        class: ToleranceClass::Mlp,
        batch: "G",
        reference: super::reference::checked,
        flops: |p| {
            let products = match p.kernel.name {
                "memory_read_normed" => 4.0,
                "memory_gated_grads" => 12.0,
                _ => 6.0,
            };
            products * product(p, &["G", "N", "H"]) * (p.dim("D") + p.dim("E")) as f64 / 2.0
        },
        verification,
        simulation,
        measured: &[
            Measured::bf16("memory_read_gated", "memory_read_gated", &[512, 64, 64, 256, 64]),
            Measured::bf16("memory_read_normed", "memory_read_normed", &[512, 64, 64, 256, 64]),
            Measured::bf16("memory_gated_errors", "memory_gated_errors", &[512, 64, 64, 256, 64]),
            Measured::bf16("memory_gated_grads", "memory_gated_grads", &[512, 64, 64, 256, 64]),
        ],
    })
};

fn verification(op: &'static Op, dtype: DType) -> Vec<Problem> {
    let on = |kernel: usize, dims: &[u64]| Problem::new(op, op.kernel(kernel), dtype, dims);
    (0..4)
        .flat_map(|k| {
            [
                on(k, &[2, 64, 64, 256, 64]),
                on(k, &[3, 37, 48, 72, 40]).note("ragged"),
                on(k, &[2, 1, 16, 40, 16]).note("one token"),
            ]
        })
        .collect()
}

fn simulation(op: &'static Op, dtype: DType) -> Vec<Problem> {
    let on = |kernel: usize, dims: &[u64]| Problem::new(op, op.kernel(kernel), dtype, dims);
    (0..4).flat_map(|k| [on(k, &[1, 37, 32, 40, 24]).note("ragged"), on(k, &[2, 16, 16, 64, 16])]).collect()
}

fn far_from_one(op: &'static Op, dtype: DType) -> Vec<Problem> {
    let on = |kernel: usize, dims: &[u64]| Problem::new(op, op.kernel(kernel), dtype, dims);
    vec![long_rows(on(1, &[2, 9, 16, 40, 16])).fill("w1", Fill::Normal(0.1))]
}
