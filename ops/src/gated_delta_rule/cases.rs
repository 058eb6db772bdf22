//! The op `gated_delta_rule`: the row of the table, and its problems to verify, simulate and measure.

use crate::problem::{Fill, Measured, Op, Problem, Required};
use crate::tolerance::ToleranceClass;
use atlas_dsl::DType;

pub(crate) const OP: Op = Op {
    scalars: &[("scale", 0.25)],
    state: &["s"],
    fill: super::problem::fill,
    plans: super::plans::PLANS,
    ..Op::of(Required {
        name: "gated_delta_rule",
        kernels: const {
            &[
                &super::delta_blocks,
                &super::delta_solve,
                &super::delta_rule,
                &super::delta_factors,
                &super::delta_states,
                &super::delta_outputs,
            ]
        },
        class: ToleranceClass::Mlp,
        batch: "B",
        reference: super::problem::checked,
        flops: super::problem::flops,
        verification,
        simulation,
        measured: &[
            Measured::bf16("delta_blocks", "delta_blocks", &[1, 8192, 16, 128, 32, 128, 2, 32]),
            // The first of a kernel is its usual size, for which all GPUs have room in all types.
            Measured::bf16("delta_solve_short_chunks", "delta_solve", &[1, 8192, 16, 128, 32, 256, 2, 16, 32]),
            Measured::bf16("delta_solve", "delta_solve", &[1, 8192, 16, 128, 32, 128, 2, 32, 64]),
            Measured::bf16("delta_rule_short_chunks", "delta_rule", &[1, 8192, 16, 128, 32, 128, 256, 32]),
            Measured::bf16("delta_rule", "delta_rule", &[1, 8192, 16, 128, 32, 128, 128, 64]),
            Measured::bf16("delta_factors", "delta_factors", &[1, 8192, 16, 128, 32, 128, 128, 64]),
            Measured::bf16("delta_states_short_chunks", "delta_states", &[1, 8192, 16, 128, 32, 256, 32, 128]),
            Measured::bf16("delta_states", "delta_states", &[1, 8192, 16, 128, 32, 128, 64, 128]),
            Measured::bf16("delta_outputs", "delta_outputs", &[1, 8192, 16, 128, 32, 128, 64, 128]),
        ],
    })
};

/// Sizes: B N J D H E C L.
fn on(op: &'static Op, dtype: DType, kernel: usize, [b, n, j, d, h, e, c, l]: [u64; 8]) -> Problem {
    let dims: &[u64] = match kernel {
        0 => &[b, n, j, d, h, c, 2, l / 2],
        1 => &[b, n, j, d, h, c, 2, l / 2, l],
        2 | 3 => &[b, n, j, d, h, e, c, l],
        _ => &[b, n, j, d, h, c, l, e],
    };
    Problem::new(op, op.kernel(kernel), dtype, dims)
}

fn verification(op: &'static Op, dtype: DType) -> Vec<Problem> {
    let of = |kernel: usize, sizes: [u64; 8]| on(op, dtype, kernel, sizes);
    let mut problems = Vec::new();
    for kernel in 0..6 {
        problems.extend([
            of(kernel, [2, 23, 1, 16, 2, 24, 3, 8]).note("ragged"),
            of(kernel, [1, 100, 2, 64, 2, 48, 2, 64]).note("ragged"),
            of(kernel, [1, 32, 1, 48, 3, 96, 1, 32]).note("groups of heads"),
            of(kernel, [1, 1, 1, 128, 1, 128, 1, 64]).note("one token"),
            of(kernel, [1, 5, 1, 96, 1, 40, 2, 4]).note("the shortest chunks"),
        ]);
    }
    for kernel in 0..2 {
        let p = || of(kernel, [1, 70, 1, 32, 2, 32, 2, 64]);
        let same = Fill::Around(32.0_f64.powf(-0.5), 0.0);
        problems.extend([
            p().fill("g", Fill::Around(-20.0, 0.0)).note("strong decay"),
            p().fill("g", Fill::Around(0.0, 0.0)).note("no decay"),
            p().fill("beta", Fill::Around(0.0, 0.0)).note("no step"),
            p().fill("beta", Fill::Around(1.0, 0.0)).note("whole steps"),
            p().fill("beta", Fill::Around(1.0, 0.0)).fill("g", Fill::Around(0.0, 0.0)).fill("k", same).note("one key"),
        ]);
    }
    problems
}

fn simulation(op: &'static Op, dtype: DType) -> Vec<Problem> {
    (0..6)
        .flat_map(|kernel| {
            [
                on(op, dtype, kernel, [1, 23, 1, 16, 2, 24, 3, 8]).note("ragged"),
                on(op, dtype, kernel, [1, 70, 1, 48, 1, 40, 2, 64]).note("ragged"),
            ]
        })
        .collect()
}
