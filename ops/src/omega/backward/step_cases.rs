//! The row of the backward pass of an orthogonalised step: its problems to verify, simulate and measure.

use crate::problem::{Measured, Op, Problem, Required};
use crate::tolerance::ToleranceClass;
use atlas_dsl::DType;

/// All tensors are of f32, whatever the element type of tokens is.
pub(crate) const STEP: Op = Op {
    dtypes: &[DType::F32],
    scalars: &[("tokens", 23.0)],
    state: &["ds", "deta"],
    scratch: &["iterates", "by", "squares"],
    fill: super::problem::fill,
    ..Op::of(Required {
        name: "omega_step_backward",
        kernels: const { &[&super::omega_step_backward, &super::omega_step_gate_backward] },
        class: ToleranceClass::Mlp,
        batch: "B",
        reference: super::problem_train::checked,
        flops: super::problem::flops,
        verification,
        simulation,
        measured: &[
            Measured::f32("omega_step_backward", "omega_step_backward", &[8, 16, 64, 256, 1, 64, 1, 6, 12]),
            Measured::f32("omega_step_gate_backward", "omega_step_gate_backward", &[8, 16, 6, 2, 64]),
        ],
    })
};

fn verification(op: &'static Op, dtype: DType) -> Vec<Problem> {
    let on = |kernel: usize, dims: &[u64]| Problem::new(op, op.kernel(kernel), dtype, dims);
    vec![
        on(0, &[2, 2, 24, 40, 1, 8, 1, 6, 12]).note("ragged"),
        on(0, &[1, 1, 48, 192, 1, 32, 1, 6, 12]),
        on(0, &[1, 2, 16, 16, 1, 1, 1, 6, 12]).note("a square"),
        on(0, &[1, 1, 1, 5, 1, 1, 1, 6, 12]).note("one row"),
        on(1, &[2, 2, 3, 2, 8]).note("ragged"),
        on(1, &[1, 3, 4, 1, 1]).with_scalar("tokens", 4.0).note("chunks of one token"),
    ]
}

fn simulation(op: &'static Op, dtype: DType) -> Vec<Problem> {
    let on = |kernel: usize, dims: &[u64]| Problem::new(op, op.kernel(kernel), dtype, dims).note("ragged");
    vec![on(0, &[1, 1, 24, 40, 1, 8, 1, 6, 12]), on(1, &[1, 2, 3, 2, 8])]
}
