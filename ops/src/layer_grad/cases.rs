//! The op `layer_grad`: the rows of the table, and their problems to verify, simulate and measure.

use crate::problem::{Fill, Layout, Measured, Op, Problem, Required};
use crate::tolerance::ToleranceClass;
use crate::usual::product;
use atlas_dsl::DType;

pub(crate) const OP: Op = Op {
    scalars: SCALARS,
    ..Op::of(Required {
        name: "layer_grad",
        kernels: const {
            &[&super::layer_features_grad, &super::layer_gate_grad, &super::layer_norm_grad, &super::layer_combine_grad]
        },
        class: ToleranceClass::Norm,
        batch: "B",
        reference: super::reference::checked,
        flops: |p| 20.0 * product(p, &["B", "N", "H", "D"]),
        verification,
        simulation,
        measured: &[
            Measured::bf16("layer_features_grad", "layer_features_grad", &[8, 2048, 16, 64]),
            Measured::bf16("layer_gate_grad", "layer_gate_grad", &[8, 2048, 16, 64]),
            Measured::bf16("layer_norm_grad", "layer_norm_grad", &[8, 2048, 16, 64]),
            Measured::bf16("layer_combine_grad", "layer_combine_grad", &[8, 2048, 16, 64]),
        ],
    })
};

/// The gradients by weights, which sum over sequences and tokens.
pub(crate) const WEIGHTS: Op = Op {
    scalars: SCALARS,
    ..Op::of(Required {
        name: "layer_weight_grad",
        kernels: const { &[&super::layer_norm_weight_grad, &super::layer_combine_weight_grad] },
        class: ToleranceClass::Norm,
        batch: "H",
        reference: super::reference::checked,
        flops: |p| 10.0 * product(p, &["B", "N", "H", "D"]),
        verification,
        simulation,
        measured: &[
            Measured::bf16("layer_norm_weight_grad", "layer_norm_weight_grad", &[8, 2048, 16, 64]),
            Measured::bf16("layer_combine_weight_grad", "layer_combine_weight_grad", &[8, 2048, 16, 64]),
        ],
    })
};

const SCALARS: &[(&str, f32)] = &[("a1", 1.0), ("a2", 0.5), ("a3", -0.25), ("eps", 1e-6)];

/// Dims: B N H D.
fn verification(op: &'static Op, dtype: DType) -> Vec<Problem> {
    let kernels = 0..op.kernels.len();
    let of_kernel = |kernel: usize| {
        let p = |dims: &[u64]| Problem::new(op, op.kernel(kernel), dtype, dims);
        vec![
            p(&[2, 37, 3, 40]).note("ragged"),
            p(&[1, 1, 2, 64]).note("one token"),
            p(&[2, 0, 2, 48]).note("no token"),
            p(&[2, 64, 2, 48]),
            p(&[1, 33, 2, 128]).layout("dy", Layout::Padded).note("padded rows"),
            p(&[3, 20, 2, 32]).fill("dy", Fill::NanAt(1)).note("NaN in one sequence"),
        ]
    };
    kernels.flat_map(of_kernel).collect()
}

fn simulation(op: &'static Op, dtype: DType) -> Vec<Problem> {
    let p = |kernel: usize| Problem::new(op, op.kernel(kernel), dtype, &[2, 21, 3, 40]).note("ragged");
    (0..op.kernels.len()).map(p).collect()
}
