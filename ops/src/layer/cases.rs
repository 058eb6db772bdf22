//! The op `layer`: the row of the table, and its problems to verify, simulate and measure.

use crate::problem::{Measured, Op, Problem, Required};
use crate::tolerance::ToleranceClass;
use crate::usual::{long_rows, product, short_rows};
use atlas_dsl::DType;

/// A static, because one of these kernels is made by `fuse!` when it is first asked for, and constants of Rust 1.89 name no such statics.
pub(crate) static OP: Op = Op {
    scalars: &[("a1", 1.0), ("a2", 0.5), ("a3", -0.25), ("eps", 1e-6)],
    far_from_one,
    plans: super::plans::PLANS,
    ..Op::of(Required {
        name: "layer",
        kernels: &[
            &super::layer_features,
            &super::layer_norm,
            &super::layer_gate,
            &super::layer_combine,
            &crate::omega::stream::omega_copy_tokens,
            &crate::omega::stream::omega_copy_gates,
        ],
        class: ToleranceClass::Norm,
        batch: "B",
        reference: super::reference::checked,
        flops: |p| 10.0 * product(p, &["B", "N", "H", "D"]),
        verification,
        simulation,
        measured: &[
            Measured::bf16("layer_features", "layer_features", &[8, 2048, 16, 64]),
            Measured::bf16("layer_norm", "layer_norm", &[8, 2048, 16, 64]),
            Measured::bf16("layer_gate", "layer_gate", &[8, 2048, 16, 64]),
            Measured::bf16("layer_combine", "layer_combine", &[8, 2048, 16, 64]),
            Measured::bf16("omega_copy_tokens", "omega_copy_tokens", &[8, 2048, 16, 64]),
            Measured::bf16("omega_copy_gates", "omega_copy_gates", &[8, 2048, 16]),
        ],
    })
};

fn verification(op: &'static Op, dtype: DType) -> Vec<Problem> {
    let on = |kernel: usize, dims: &[u64]| Problem::new(op, op.kernel(kernel), dtype, dims);
    (0..6)
        .filter(|&k| k < 5 || dtype == DType::F32)
        .flat_map(|k| {
            let dims = |d: [u64; 4]| on(k, &d[..4 - usize::from(k == 5)]);
            [dims([2, 37, 3, 40]).note("ragged"), dims([1, 1, 2, 64]).note("one token"), dims([2, 64, 2, 48])]
        })
        .collect()
}

fn simulation(op: &'static Op, dtype: DType) -> Vec<Problem> {
    let on = |kernel: usize, dims: &[u64]| Problem::new(op, op.kernel(kernel), dtype, dims);
    (0..6)
        .filter(|&k| k < 5 || dtype == DType::F32)
        .map(|k| on(k, &[2, 21, 3, 40][..4 - usize::from(k == 5)]).note("ragged"))
        .collect()
}

fn far_from_one(op: &'static Op, dtype: DType) -> Vec<Problem> {
    let on = |kernel: usize, dims: &[u64]| Problem::new(op, op.kernel(kernel), dtype, dims);
    vec![long_rows(on(1, &[1, 5, 2, 64])), short_rows(on(1, &[1, 5, 2, 40]))]
}
