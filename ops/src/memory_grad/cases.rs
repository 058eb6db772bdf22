//! The op `memory_grad`: the row of the table, and its problems to verify, simulate and measure.

use crate::problem::{Fill, Layout, Measured, Op, Problem, Required};
use crate::tolerance::ToleranceClass;
use crate::usual::product;
use atlas_dsl::DType;

pub(crate) const OP: Op = Op {
    scalars: &[("scale", 2.0)],
    fill: |p, name| match name {
        "w2" => Fill::Normal((p.dim("D").max(1) as f64).powf(-0.5)),
        "w1" => Fill::Normal((p.dim("H").max(1) as f64).powf(-0.5)),
        "c" => Fill::Around(0.5, 0.2),
        _ => Fill::Normal(1.0),
    },
    plans: super::plans::PLANS,
    ..Op::of(Required {
        name: "memory_grad",
        kernels: const { &[&super::memory_errors, &super::memory_weight_grads, &super::memory_input_grad] },
        class: ToleranceClass::Mlp,
        batch: "G",
        reference: super::reference::checked,
        flops: |p| {
            let products = match p.kernel.name {
                "memory_errors" => 4.0,
                "memory_weight_grads" => 8.0,
                _ => 6.0,
            };
            products * product(p, &["G", "N", "H"]) * (p.dim("D") + p.dim("E")) as f64 / 2.0
        },
        verification,
        simulation,
        measured: &[
            Measured::bf16("memory_errors", "memory_errors", &[512, 64, 64, 256, 64]),
            Measured::bf16("memory_weight_grads", "memory_weight_grads", &[512, 64, 64, 256, 64]),
            Measured::bf16("memory_input_grad", "memory_input_grad", &[512, 64, 64, 256, 64]),
        ],
    })
};

/// Dims: G N D H E.
fn verification(op: &'static Op, dtype: DType) -> Vec<Problem> {
    let on = |kernel: usize, dims: &[u64]| Problem::new(op, op.kernel(kernel), dtype, dims);
    (0..3)
        .flat_map(|kernel| {
            let p = |dims: [u64; 5]| on(kernel, &dims);
            vec![
                p([2, 64, 64, 256, 64]),
                p([3, 37, 48, 192, 48]).note("ragged"),
                p([2, 1, 64, 256, 64]).note("one token"),
                p([1, 33, 16, 40, 24]).note("ragged H"),
                p([2, 0, 64, 64, 64]).note("no token"),
                p([1, 200, 32, 64, 32]).note("many tokens"),
                p([2, 37, 32, 64, 32]).layout("w1", Layout::Shared).layout("w2", Layout::Shared).note("shared weights"),
                p([3, 20, 32, 64, 32]).fill("x", Fill::NanAt(1)).note("NaN in one group"),
                p([3, 20, 32, 64, 32]).fill("x", Fill::NanAt(1)).fill("c", Fill::ZeroAt(1)).note("NaN without weight"),
            ]
        })
        .collect()
}

fn simulation(op: &'static Op, dtype: DType) -> Vec<Problem> {
    let on = |kernel: usize, dims: &[u64]| Problem::new(op, op.kernel(kernel), dtype, dims);
    (0..3).flat_map(|k| [on(k, &[2, 37, 32, 72, 32]).note("ragged"), on(k, &[1, 64, 16, 32, 24])]).collect()
}
