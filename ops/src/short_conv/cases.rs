//! The op `short_conv`: the row of the table, and its problems to verify, simulate and measure.

use crate::problem::{Fill, Measured, Op, Problem, Required};
use crate::tolerance::ToleranceClass;
use crate::usual::product;
use atlas_dsl::DType;

pub(crate) const OP: Op = Op {
    ..Op::of(Required {
        name: "short_conv",
        kernels: const { &[&super::short_conv, &super::short_conv_input_grad, &super::short_conv_weight_grad] },
        class: ToleranceClass::Norm,
        batch: "B",
        reference: super::reference::checked,
        flops: |p| 2.0 * product(p, &["B", "N", "C", "W"]),
        verification,
        simulation,
        measured: &[
            Measured::bf16("short_conv", "short_conv", &[8, 2048, 3072, 4, 2048]),
            Measured::bf16("short_conv_input_grad", "short_conv_input_grad", &[8, 2048, 3072, 4, 2048]),
            Measured::bf16("short_conv_weight_grad", "short_conv_weight_grad", &[8, 2048, 3072, 2048, 4]),
        ],
    })
};

/// A problem of one of the kernels by name of its dims: B N P C W.
fn problem(op: &'static Op, kernel: usize, dtype: DType, of: [u64; 5]) -> Problem {
    let def = op.kernel(kernel);
    let size = |name: &str| ["B", "N", "P", "C", "W"].iter().zip(of).find(|(n, _)| **n == name).map_or(1, |(_, s)| s);
    let dims: Vec<u64> = def.dims.iter().map(|d| size(d.name)).collect();
    Problem::new(op, def, dtype, &dims)
}

fn verification(op: &'static Op, dtype: DType) -> Vec<Problem> {
    (0..3)
        .flat_map(|kernel| {
            let p = |of: [u64; 5]| problem(op, kernel, dtype, of);
            [
                p([2, 70, 70, 72, 4]).note("ragged"),
                p([1, 33, 36, 40, 4]).note("tokens before the piece"),
                p([2, 1, 4, 24, 4]).note("one token"),
                p([1, 40, 40, 33, 1]).note("no token before"),
                p([1, 3, 3, 16, 7]).note("a window longer than the sequence"),
            ]
        })
        .chain([problem(op, 0, dtype, [3, 20, 20, 32, 3]).fill("x", Fill::NanAt(1)).note("NaN in one sequence")])
        .chain(meets_none(op, dtype))
        .collect()
}

/// Infinite tokens that only the last weight meets: of `x` the last one, and of `dy` the first one.
fn meets_none(op: &'static Op, dtype: DType) -> [Problem; 2] {
    let p = || problem(op, 2, dtype, [1, 37, 37, 40, 4]);
    [
        p().fill("x", Fill::TokenIs(36, f32::INFINITY)).note("the last token infinite"),
        p().fill("dy", Fill::TokenIs(0, f32::INFINITY)).note("the first gradient infinite"),
    ]
}

fn simulation(op: &'static Op, dtype: DType) -> Vec<Problem> {
    let ragged = (0..3).map(|kernel| problem(op, kernel, dtype, [2, 37, 40, 40, 4]).note("ragged"));
    ragged.chain(meets_none(op, dtype)).collect()
}
