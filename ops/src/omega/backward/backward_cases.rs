//! The row of the backward pass: its problems to verify, simulate and measure.

use crate::problem::{Measured, Op, Problem, Required};
use crate::tolerance::ToleranceClass;
use atlas_dsl::DType;

pub(crate) const OMEGA_BACKWARD: Op = Op {
    scalars: &[("scale", 2.0), ("predicts", 1.0), ("commit", 1000.0), ("chunk", 8.0), ("eps", 1e-2)],
    state: &["dw", "ds", "dw1", "dw2", "dw3", "ds1", "ds2", "ds3", "dnorm", "by_key", "by_read", "dk", "dv", "drk"],
    fill: super::problem::fill,
    plans: super::plans::PLANS,
    ..Op::of(Required {
        name: "omega_backward",
        kernels: const {
            &[
                &super::omega_mix_backward,
                &super::omega_linear_states,
                &super::omega_linear_read_backward,
                &super::omega_linear_train_backward,
                &super::omega_mlp_states,
                &super::omega_mlp_read_backward,
                &super::omega_mlp_train_backward,
                &super::omega_mlp_query_backward,
                &super::omega_key_backward,
                &super::omega_gated_states,
                &super::omega_gated_read_backward,
                &super::omega_gated_query_backward,
                &super::omega_gated_train_backward,
                &super::omega_normed_states,
                &super::omega_normed_read_backward,
                &super::omega_normed_train_backward,
            ]
        },
        class: ToleranceClass::Mlp,
        batch: "B",
        reference: super::problem_train::checked,
        flops: super::problem::flops,
        verification,
        simulation,
        measured: &[
            Measured::bf16("omega_mix_backward", "omega_mix_backward", &[8, 384, 16, 16, 6, 64, 80]),
            Measured::bf16("omega_key_backward", "omega_key_backward", &[8, 16, 6, 80, 64, 64, 400]),
            Measured::bf16("omega_linear_states", "omega_linear_states", &[8, 400, 16, 64, 64, 6, 80]),
            Measured::bf16(
                "omega_linear_read_backward",
                "omega_linear_read_backward",
                &[8, 384, 16, 64, 400, 6, 64, 80, 64],
            ),
            Measured::bf16(
                "omega_linear_train_backward",
                "omega_linear_train_backward",
                &[8, 384, 16, 64, 400, 6, 64, 80, 64],
            ),
            Measured::bf16("omega_mlp_states", "omega_mlp_states", &[8, 400, 16, 64, 64, 6, 80, 256]),
            // Chunks of 32 tokens first: in f32 an L4 (`sm_89`) has no room for those of 64.
            Measured::bf16(
                "omega_mlp_read_backward",
                "omega_mlp_read_backward",
                &[8, 192, 16, 64, 208, 6, 32, 48, 64, 256, 4, 2],
            ),
            Measured::bf16(
                "omega_mlp_read_backward_64",
                "omega_mlp_read_backward",
                &[8, 384, 16, 64, 400, 6, 64, 80, 64, 256, 4, 2],
            ),
            Measured::bf16(
                "omega_mlp_query_backward",
                "omega_mlp_query_backward",
                &[8, 384, 16, 64, 400, 6, 64, 80, 256, 64, 4, 2],
            ),
            Measured::bf16(
                "omega_mlp_train_backward",
                "omega_mlp_train_backward",
                &[8, 384, 16, 64, 400, 6, 64, 80, 64, 256, 4, 2],
            ),
            Measured::bf16("omega_gated_states", "omega_gated_states", &[8, 400, 16, 64, 64, 6, 80, 256]),
            Measured::bf16(
                "omega_gated_read_backward",
                "omega_gated_read_backward",
                &[8, 192, 16, 64, 208, 6, 32, 48, 64, 256, 7, 3, 2],
            ),
            Measured::bf16(
                "omega_gated_read_backward_64",
                "omega_gated_read_backward",
                &[8, 384, 16, 64, 400, 6, 64, 80, 64, 256, 7, 3, 2],
            ),
            Measured::bf16(
                "omega_gated_query_backward",
                "omega_gated_query_backward",
                &[8, 384, 16, 64, 400, 6, 64, 80, 256, 64, 7, 3],
            ),
            Measured::bf16(
                "omega_gated_train_backward",
                "omega_gated_train_backward",
                &[8, 384, 16, 64, 400, 6, 64, 80, 64, 256, 7, 3, 2],
            ),
            Measured::bf16("omega_normed_states", "omega_normed_states", &[8, 400, 16, 64, 64, 6, 80, 256]),
            Measured::bf16(
                "omega_normed_read_backward",
                "omega_normed_read_backward",
                &[8, 192, 16, 64, 208, 64, 6, 32, 48, 256],
            ),
            Measured::bf16(
                "omega_normed_read_backward_64",
                "omega_normed_read_backward",
                &[8, 384, 16, 64, 400, 64, 6, 64, 80, 256],
            ),
            Measured::bf16(
                "omega_normed_train_backward",
                "omega_normed_train_backward",
                &[8, 384, 16, 64, 400, 64, 6, 64, 80, 256, 4, 2],
            ),
        ],
    })
};

fn verification(op: &'static Op, dtype: DType) -> Vec<Problem> {
    let on = |kernel: usize, dims: &[u64]| Problem::new(op, op.kernel(kernel), dtype, dims);
    let mixed = (dtype == DType::F32).then(|| {
        [
            on(0, &[2, 23, 2, 5, 3, 8, 16]).note("ragged"),
            on(0, &[1, 23, 2, 5, 3, 8, 16]).with_scalar("before", 1.0).note("read before"),
            on(0, &[1, 64, 3, 16, 2, 32, 48]).with_scalar("commit", 1.0).note("an open chunk"),
            on(0, &[1, 5, 1, 1, 5, 1, 1]).note("chunks of one token"),
            on(0, &[1, 23, 2, 5, 4, 6, 16]).note("chunks of no multiple of four tokens"),
            on(0, &[1, 13, 1, 9, 2, 7, 7]).note("keys of the chunk alone"),
            on(0, &[1, 9, 1, 16, 1, 16, 16]).note("a window longer than the sequence"),
            on(8, &[2, 2, 3, 16, 16, 24, 23]).note("ragged"),
            on(8, &[1, 2, 5, 28, 16, 16, 40]).with_scalar("past", 20.0).note("a window of several chunks"),
            on(8, &[1, 1, 3, 8, 40, 40, 50]).with_scalar("past", 30.0).note("keys that no chunk sees"),
            on(8, &[1, 1, 4, 4, 16, 8, 4]).with_scalar("chunk", 1.0).note("chunks of one token"),
        ]
    });
    let mut problems: Vec<Problem> = mixed.into_iter().flatten().collect();
    problems.extend([
        on(1, &[2, 23, 2, 16, 24, 3, 16]).note("ragged E"),
        on(1, &[1, 72, 1, 64, 100, 2, 40]).with_scalar("chunk", 32.0).with_scalar("past", 8.0),
        on(2, &[2, 23, 2, 16, 23, 3, 8, 16, 24]).note("ragged"),
        on(2, &[1, 64, 1, 64, 72, 2, 32, 40, 100]).note("keys before the first chunk"),
        on(3, &[2, 23, 2, 16, 23, 3, 8, 16, 24]).note("ragged"),
        on(3, &[1, 64, 1, 64, 72, 2, 32, 40, 100]).note("keys before the first chunk"),
        on(4, &[2, 23, 2, 16, 24, 3, 16, 40]).note("ragged M"),
        on(4, &[1, 72, 1, 48, 48, 2, 40, 192]).with_scalar("chunk", 32.0).with_scalar("past", 8.0),
        on(5, &[2, 23, 2, 16, 23, 3, 8, 16, 24, 40, 4, 2]).note("ragged"),
        on(5, &[1, 64, 1, 48, 72, 2, 32, 40, 48, 192, 4, 2]).note("keys before the first chunk"),
        on(5, &[1, 3, 2, 16, 3, 3, 1, 8, 24, 32, 4, 2]).note("chunks of one token"),
        on(6, &[2, 23, 2, 16, 23, 3, 8, 16, 24, 40, 4, 2]).note("ragged"),
        on(6, &[1, 64, 1, 48, 72, 2, 32, 40, 48, 192, 4, 2]).note("keys before the first chunk"),
        on(6, &[1, 3, 2, 16, 3, 3, 1, 8, 24, 32, 4, 2]).note("chunks of one token"),
        on(7, &[2, 23, 2, 16, 23, 3, 8, 16, 40, 24, 4, 2]).note("ragged"),
        on(7, &[1, 64, 1, 48, 72, 2, 32, 40, 192, 48, 4, 2]).note("keys before the first chunk"),
        on(9, &[2, 23, 2, 16, 24, 3, 16, 40]).note("ragged M"),
        on(9, &[1, 72, 1, 48, 48, 2, 40, 192]).with_scalar("chunk", 32.0).with_scalar("past", 8.0),
        on(10, &[2, 23, 2, 16, 23, 3, 8, 16, 24, 40, 7, 3, 2]).note("ragged"),
        on(10, &[1, 64, 1, 48, 72, 2, 32, 40, 48, 192, 7, 3, 2]).note("keys before the first chunk"),
        on(11, &[2, 23, 2, 16, 23, 3, 8, 16, 40, 24, 7, 3]).note("ragged"),
        on(11, &[1, 64, 1, 48, 72, 2, 32, 40, 192, 48, 7, 3]).note("keys before the first chunk"),
        on(12, &[2, 23, 2, 16, 23, 3, 8, 16, 24, 40, 7, 3, 2]).note("ragged"),
        on(12, &[1, 64, 1, 48, 72, 2, 32, 40, 48, 192, 7, 3, 2]).note("keys before the first chunk"),
        on(12, &[1, 3, 2, 16, 3, 3, 1, 8, 24, 32, 7, 3, 2]).note("chunks of one token"),
        on(13, &[2, 23, 2, 16, 24, 3, 16, 40]).note("ragged M"),
        on(13, &[1, 72, 1, 48, 48, 2, 40, 192]).with_scalar("chunk", 32.0).with_scalar("past", 8.0),
        on(14, &[2, 23, 2, 16, 23, 24, 3, 8, 16, 40]).note("ragged"),
        on(14, &[1, 64, 1, 48, 72, 48, 2, 32, 40, 192]).note("keys before the first chunk"),
        on(15, &[2, 23, 2, 16, 23, 24, 3, 8, 16, 40, 4, 2]).note("ragged"),
        on(15, &[1, 64, 1, 48, 72, 48, 2, 32, 40, 192, 4, 2]).note("keys before the first chunk"),
    ]);
    // A loss of inner products, of every kernel that knows the loss.
    let inner = [
        on(1, &[2, 23, 2, 16, 24, 3, 16]),
        on(3, &[2, 23, 2, 16, 23, 3, 8, 16, 24]),
        on(4, &[2, 23, 2, 16, 24, 3, 16, 40]),
        on(6, &[2, 23, 2, 16, 23, 3, 8, 16, 24, 40, 4, 2]),
        on(9, &[2, 23, 2, 16, 24, 3, 16, 40]),
        on(12, &[2, 23, 2, 16, 23, 3, 8, 16, 24, 40, 7, 3, 2]),
        on(13, &[2, 23, 2, 16, 24, 3, 16, 40]),
        on(15, &[2, 23, 2, 16, 23, 24, 3, 8, 16, 40, 4, 2]),
    ];
    let keys = (dtype == DType::F32).then(|| on(8, &[2, 2, 3, 16, 16, 24, 23]));
    let inner = inner.into_iter().chain(keys);
    problems.extend(inner.map(|problem| problem.with_scalar("predicts", 0.0).note("inner products")));
    problems
}

fn simulation(op: &'static Op, dtype: DType) -> Vec<Problem> {
    let on = |kernel: usize, dims: &[u64]| Problem::new(op, op.kernel(kernel), dtype, dims);
    let mixed = (dtype == DType::F32)
        .then(|| [on(0, &[1, 13, 2, 5, 2, 7, 16]).note("ragged"), on(8, &[1, 2, 3, 16, 16, 24, 23]).note("ragged")]);
    mixed
        .into_iter()
        .flatten()
        .chain([
            on(1, &[1, 23, 2, 16, 24, 3, 16]).note("ragged E"),
            on(2, &[1, 23, 1, 16, 23, 3, 8, 16, 24]).note("ragged"),
            on(3, &[1, 23, 1, 16, 23, 3, 8, 16, 24]).note("ragged"),
            on(4, &[1, 23, 1, 16, 24, 3, 16, 40]).note("ragged M"),
            on(5, &[1, 23, 1, 16, 23, 3, 8, 16, 24, 40, 4, 2]).note("ragged"),
            on(6, &[1, 23, 1, 16, 23, 3, 8, 16, 24, 40, 4, 2]).note("ragged"),
            on(7, &[1, 23, 1, 16, 23, 3, 8, 16, 40, 24, 4, 2]).note("ragged"),
            on(9, &[1, 23, 1, 16, 24, 3, 16, 40]).note("ragged M"),
            on(10, &[1, 23, 1, 16, 23, 3, 8, 16, 24, 40, 7, 3, 2]).note("ragged"),
            on(11, &[1, 23, 1, 16, 23, 3, 8, 16, 40, 24, 7, 3]).note("ragged"),
            on(12, &[1, 23, 1, 16, 23, 3, 8, 16, 24, 40, 7, 3, 2]).note("ragged"),
            on(13, &[1, 23, 1, 16, 24, 3, 16, 40]).note("ragged M"),
            on(14, &[1, 23, 1, 16, 23, 24, 3, 8, 16, 40]).note("ragged"),
            on(15, &[1, 23, 1, 16, 23, 24, 3, 8, 16, 40, 4, 2]).note("ragged"),
        ])
        .collect()
}
