//! The op `rms_norm_grad`: the rows of the table, and their problems to verify, simulate and measure.

use crate::problem::{Fill, Layout, Measured, Op, Problem, Required};
use crate::tolerance::ToleranceClass;
use crate::usual::{long_rows, product, short_rows};
use atlas_dsl::DType;

pub(crate) const OP: Op = Op {
    scalars: &[("eps", 1e-6)],
    far_from_one,
    ..Op::of(Required {
        name: "rms_norm_grad",
        kernels: const { &[&super::rms_norm_grad, &super::rms_norm_residual_grad] },
        class: ToleranceClass::Norm,
        batch: "N",
        reference: super::reference::checked,
        flops: |p| 9.0 * product(p, &["N", "D"]),
        verification,
        simulation,
        measured: &[
            Measured::bf16("rms_norm_grad", "rms_norm_grad", &[32_768, 4096]),
            Measured::bf16("rms_norm_residual_grad", "rms_norm_residual_grad", &[32_768, 4096]),
        ],
    })
};

/// The gradient by the weights, which sums over the rows.
pub(crate) const WEIGHTS: Op = Op {
    fill: |_, name| if name == "rstd" { Fill::Around(1.0, 0.1) } else { Fill::Normal(1.0) },
    ..Op::of(Required {
        name: "rms_norm_weight_grad",
        kernels: const { &[&super::rms_norm_weight_grad] },
        class: ToleranceClass::Norm,
        batch: "D",
        reference: super::reference::checked,
        flops: |p| 3.0 * product(p, &["N", "D"]),
        verification: of_weights,
        simulation: weights_simulated,
        measured: &[Measured::bf16("rms_norm_weight_grad", "rms_norm_weight_grad", &[32_768, 4096])],
    })
};

fn verification(op: &'static Op, dtype: DType) -> Vec<Problem> {
    (0..2)
        .flat_map(|kernel| {
            let p = |dims: &[u64]| Problem::new(op, op.kernel(kernel), dtype, dims);
            vec![
                p(&[5, 8]),
                p(&[37, 40]).note("ragged"),
                p(&[3, 1000]),
                p(&[3, 4096]),
                p(&[7, 3]).note("odd"),
                p(&[6, 1]).with_scalar("eps", 1.0).note("one column"),
                p(&[1, 64]).note("one row"),
                p(&[0, 64]).note("no row"),
                p(&[9, 768]).layout("x", Layout::Padded).layout("dy", Layout::Padded).note("padded rows"),
                p(&[4, 64]).fill("x", Fill::NanAt(2)).note("NaN in one row"),
                p(&[5, 64]).fill("x", Fill::Normal(1e-3)).note("small"),
                p(&[3, 40]).fill("x", Fill::ZeroAt(1)).note("a zero row"),
            ]
        })
        .collect()
}

fn simulation(op: &'static Op, dtype: DType) -> Vec<Problem> {
    (0..2)
        .flat_map(|kernel| {
            let p = |dims: &[u64]| Problem::new(op, op.kernel(kernel), dtype, dims);
            [p(&[5, 40]).note("ragged"), p(&[2, 1000]), p(&[7, 3]).note("odd")]
        })
        .collect()
}

fn far_from_one(op: &'static Op, dtype: DType) -> Vec<Problem> {
    let on = |dims: &[u64]| Problem::new(op, op.kernel(0), dtype, dims);
    // The gradient of a long row is as much shorter: f16 does not hold it.
    let long = (dtype != DType::F16).then(|| long_rows(on(&[3, 1000])));
    long.into_iter().chain([short_rows(on(&[5, 40]))]).collect()
}

fn of_weights(op: &'static Op, dtype: DType) -> Vec<Problem> {
    let p = |dims: &[u64]| Problem::new(op, op.kernel(0), dtype, dims);
    vec![
        p(&[100, 64]),
        p(&[37, 300]).note("ragged"),
        p(&[1, 40]).note("one row"),
        p(&[0, 40]).note("no row"),
        // Terms of both signs would cancel in the only sum.
        p(&[70, 1]).fill("x", Fill::Around(1.0, 0.2)).fill("dy", Fill::Around(1.0, 0.2)).note("one column"),
        p(&[70, 96]).layout("x", Layout::Padded).layout("dy", Layout::Padded).note("padded rows"),
    ]
}

fn weights_simulated(op: &'static Op, dtype: DType) -> Vec<Problem> {
    let p = |dims: &[u64]| Problem::new(op, op.kernel(0), dtype, dims);
    vec![p(&[70, 72]).note("ragged"), p(&[5, 3]).note("odd"), p(&[200, 300])]
}
