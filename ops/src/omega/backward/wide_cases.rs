//! The row of the backward pass for rows of any width: its problems to verify, simulate and measure.

use crate::problem::{Measured, Op, Problem, Required};
use crate::tolerance::ToleranceClass;
use atlas_dsl::DType;

pub(crate) const OMEGA_WIDE_BACKWARD: Op = Op {
    scalars: super::backward_cases::OMEGA_BACKWARD.scalars,
    state: super::backward_cases::OMEGA_BACKWARD.state,
    scratch: &["act", "delta", "gate_delta", "inner", "outs", "dz", "du", "dback", "dmade", "da"],
    fill: super::problem::fill,
    ..Op::of(Required {
        name: "omega_wide_backward",
        kernels: const {
            &[
                &super::omega_linear_wide_states,
                &super::omega_linear_wide_read_backward,
                &super::omega_linear_wide_train_backward,
                &super::omega_mlp_wide_states,
                &super::omega_mlp_wide_read_backward,
                &super::omega_mlp_wide_query_backward,
                &super::omega_mlp_wide_train_backward,
                &super::omega_gated_wide_states,
                &super::omega_gated_wide_read_backward,
                &super::omega_gated_wide_query_backward,
                &super::omega_gated_wide_train_backward,
                &super::omega_normed_wide_states,
                &super::omega_normed_wide_read_backward,
                &super::omega_normed_wide_train_backward,
            ]
        },
        class: ToleranceClass::Mlp,
        batch: "B",
        reference: super::problem_train::checked,
        flops: super::problem::flops,
        verification,
        simulation,
        measured: MEASURED,
    })
};

/// All monomials up to degree 2 of 64 numbers.
const MEASURED: &[Measured] = &[
    Measured::bf16("omega_linear_wide_states", "omega_linear_wide_states", &[1, 144, 4, 2144, 64, 2, 80]),
    Measured::bf16(
        "omega_linear_wide_read_backward",
        "omega_linear_wide_read_backward",
        &[1, 128, 4, 2144, 144, 2, 64, 80, 64],
    ),
    Measured::bf16(
        "omega_linear_wide_train_backward",
        "omega_linear_wide_train_backward",
        &[1, 128, 4, 2144, 144, 2, 64, 80, 64],
    ),
    Measured::bf16("omega_mlp_wide_states", "omega_mlp_wide_states", &[1, 144, 4, 2144, 64, 2, 80, 256]),
    Measured::bf16(
        "omega_mlp_wide_read_backward",
        "omega_mlp_wide_read_backward",
        &[1, 128, 4, 2144, 144, 2, 64, 80, 64, 256, 4, 2],
    ),
    Measured::bf16(
        "omega_mlp_wide_query_backward",
        "omega_mlp_wide_query_backward",
        &[1, 128, 4, 2144, 144, 2, 64, 80, 256, 64, 4, 2],
    ),
    Measured::bf16(
        "omega_mlp_wide_train_backward",
        "omega_mlp_wide_train_backward",
        &[1, 128, 4, 2144, 144, 2, 64, 80, 64, 256, 4, 2],
    ),
    Measured::bf16("omega_gated_wide_states", "omega_gated_wide_states", &[1, 144, 4, 2144, 64, 2, 80, 256]),
    Measured::bf16(
        "omega_gated_wide_read_backward",
        "omega_gated_wide_read_backward",
        &[1, 128, 4, 2144, 144, 2, 64, 80, 64, 256, 7, 3, 2],
    ),
    Measured::bf16(
        "omega_gated_wide_query_backward",
        "omega_gated_wide_query_backward",
        &[1, 128, 4, 2144, 144, 2, 64, 80, 256, 64, 7, 3],
    ),
    Measured::bf16(
        "omega_gated_wide_train_backward",
        "omega_gated_wide_train_backward",
        &[1, 128, 4, 2144, 144, 2, 64, 80, 64, 256, 7, 3, 2],
    ),
    Measured::bf16("omega_normed_wide_states", "omega_normed_wide_states", &[1, 144, 4, 2144, 64, 2, 80, 256]),
    Measured::bf16(
        "omega_normed_wide_read_backward",
        "omega_normed_wide_read_backward",
        &[1, 128, 4, 2144, 144, 64, 2, 64, 80, 256],
    ),
    Measured::bf16(
        "omega_normed_wide_train_backward",
        "omega_normed_wide_train_backward",
        &[1, 128, 4, 2144, 144, 64, 2, 64, 80, 256, 4, 2],
    ),
];

fn verification(op: &'static Op, dtype: DType) -> Vec<Problem> {
    let on = |kernel: usize, dims: &[u64]| Problem::new(op, op.kernel(kernel), dtype, dims);
    let mut problems = vec![
        on(0, &[2, 24, 2, 72, 40, 3, 16]).note("ragged"),
        on(0, &[1, 72, 1, 128, 100, 2, 40])
            .with_scalar("chunk", 32.0)
            .with_scalar("past", 8.0)
            .note("keys before the first chunk"),
        on(0, &[1, 3, 2, 304, 16, 3, 8]).with_scalar("chunk", 1.0).note("chunks of one token"),
        on(1, &[2, 23, 2, 72, 23, 3, 8, 16, 40]).note("ragged"),
        on(1, &[1, 64, 3, 128, 72, 2, 32, 40, 100]).note("keys before the first chunk"),
        on(2, &[2, 23, 2, 72, 23, 3, 8, 16, 40]).note("ragged"),
        on(2, &[1, 64, 3, 128, 72, 2, 32, 40, 100]).note("keys before the first chunk"),
        on(2, &[1, 3, 2, 304, 3, 3, 1, 8, 16]).note("chunks of one token"),
        on(3, &[2, 24, 2, 72, 40, 3, 16, 40]).note("ragged"),
        on(3, &[1, 72, 1, 128, 100, 2, 40, 96])
            .with_scalar("chunk", 32.0)
            .with_scalar("past", 8.0)
            .note("keys before the first chunk"),
        on(3, &[1, 3, 2, 304, 16, 3, 8, 32]).with_scalar("chunk", 1.0).note("chunks of one token"),
        on(4, &[2, 23, 2, 72, 23, 3, 8, 16, 40, 40, 4, 2]).note("ragged"),
        on(4, &[1, 64, 3, 128, 72, 2, 32, 40, 100, 96, 4, 2]).note("keys before the first chunk"),
        on(5, &[2, 23, 2, 72, 23, 3, 8, 16, 40, 40, 4, 2]).note("ragged"),
        on(5, &[1, 64, 3, 128, 72, 2, 32, 40, 96, 100, 4, 2]).note("keys before the first chunk"),
        on(6, &[2, 23, 2, 72, 23, 3, 8, 16, 40, 40, 4, 2]).note("ragged"),
        on(6, &[1, 64, 3, 128, 72, 2, 32, 40, 100, 96, 4, 2]).note("keys before the first chunk"),
        on(6, &[1, 3, 2, 304, 3, 3, 1, 8, 16, 32, 4, 2]).note("chunks of one token"),
        on(7, &[2, 24, 2, 72, 40, 3, 16, 40]).note("ragged"),
        on(7, &[1, 72, 1, 128, 100, 2, 40, 96])
            .with_scalar("chunk", 32.0)
            .with_scalar("past", 8.0)
            .note("keys before the first chunk"),
        on(7, &[1, 3, 2, 304, 16, 3, 8, 32]).with_scalar("chunk", 1.0).note("chunks of one token"),
        on(8, &[2, 23, 2, 72, 23, 3, 8, 16, 40, 40, 7, 3, 2]).note("ragged"),
        on(8, &[1, 64, 3, 128, 72, 2, 32, 40, 100, 96, 7, 3, 2]).note("keys before the first chunk"),
        on(9, &[2, 23, 2, 72, 23, 3, 8, 16, 40, 40, 7, 3]).note("ragged"),
        on(9, &[1, 64, 3, 128, 72, 2, 32, 40, 96, 100, 7, 3]).note("keys before the first chunk"),
        on(10, &[2, 23, 2, 72, 23, 3, 8, 16, 40, 40, 7, 3, 2]).note("ragged"),
        on(10, &[1, 64, 3, 128, 72, 2, 32, 40, 100, 96, 7, 3, 2]).note("keys before the first chunk"),
        on(10, &[1, 3, 2, 304, 3, 3, 1, 8, 16, 32, 7, 3, 2]).note("chunks of one token"),
        on(11, &[2, 24, 2, 72, 40, 3, 16, 40]).note("ragged"),
        on(11, &[1, 72, 1, 128, 100, 2, 40, 96])
            .with_scalar("chunk", 32.0)
            .with_scalar("past", 8.0)
            .note("keys before the first chunk"),
        on(11, &[1, 3, 2, 304, 16, 3, 8, 32]).with_scalar("chunk", 1.0).note("chunks of one token"),
        on(12, &[2, 23, 2, 72, 23, 40, 3, 8, 16, 40]).note("ragged"),
        on(12, &[1, 64, 3, 128, 72, 100, 2, 32, 40, 96]).note("keys before the first chunk"),
        on(13, &[2, 23, 2, 72, 23, 40, 3, 8, 16, 40, 4, 2]).note("ragged"),
        on(13, &[1, 64, 3, 128, 72, 100, 2, 32, 40, 96, 4, 2]).note("keys before the first chunk"),
        on(13, &[1, 3, 2, 304, 3, 16, 3, 1, 8, 32, 4, 2]).note("chunks of one token"),
    ];
    // A loss of inner products, of every kernel that knows the loss.
    let inner = [
        on(0, &[1, 24, 2, 72, 40, 3, 16]),
        on(2, &[1, 23, 2, 72, 23, 3, 8, 16, 40]),
        on(3, &[1, 24, 2, 72, 40, 3, 16, 40]),
        on(6, &[1, 23, 2, 72, 23, 3, 8, 16, 40, 40, 4, 2]),
        on(7, &[1, 24, 2, 72, 40, 3, 16, 40]),
        on(10, &[1, 23, 2, 72, 23, 3, 8, 16, 40, 40, 7, 3, 2]),
        on(11, &[1, 24, 2, 72, 40, 3, 16, 40]),
        on(13, &[1, 23, 2, 72, 23, 40, 3, 8, 16, 40, 4, 2]),
    ];
    problems.extend(inner.map(|problem| problem.with_scalar("predicts", 0.0).note("inner products")));
    problems
}

fn simulation(op: &'static Op, dtype: DType) -> Vec<Problem> {
    let on = |kernel: usize, dims: &[u64]| Problem::new(op, op.kernel(kernel), dtype, dims).note("ragged");
    vec![
        on(0, &[1, 12, 1, 72, 40, 2, 16]),
        on(1, &[1, 11, 1, 72, 11, 2, 8, 16, 40]),
        on(2, &[1, 11, 1, 72, 11, 2, 8, 16, 40]),
        on(3, &[1, 12, 1, 72, 40, 2, 16, 40]),
        on(4, &[1, 11, 1, 72, 11, 2, 8, 16, 40, 40, 4, 2]),
        on(5, &[1, 11, 1, 72, 11, 2, 8, 16, 40, 40, 4, 2]),
        on(6, &[1, 11, 1, 72, 11, 2, 8, 16, 40, 40, 4, 2]),
        on(7, &[1, 12, 1, 72, 40, 2, 16, 40]),
        on(8, &[1, 11, 1, 72, 11, 2, 8, 16, 40, 40, 7, 3, 2]),
        on(9, &[1, 11, 1, 72, 11, 2, 8, 16, 40, 40, 7, 3]),
        on(10, &[1, 11, 1, 72, 11, 2, 8, 16, 40, 40, 7, 3, 2]),
        on(11, &[1, 12, 1, 72, 40, 2, 16, 40]),
        on(12, &[1, 11, 1, 72, 11, 40, 2, 8, 16, 40]),
        on(13, &[1, 11, 1, 72, 11, 40, 2, 8, 16, 40, 4, 2]),
    ]
}
