//! The op `memory_recall`: the row of the table, and its problems to verify, simulate and measure.

use crate::problem::{Fill, Layout, Measured, Op, Problem, Required};
use crate::tolerance::ToleranceClass;
use crate::usual::{long_rows, product, short_rows, unit};
use atlas_dsl::DType;

pub(crate) const OP: Op = Op {
    scalars: &[("eps", 1e-5)],
    fill: |p, name| match name {
        "w" | "w2" | "w3" => Fill::Normal(unit(p.dim("D"))),
        "w1" => Fill::Normal(unit(p.dim("M"))),
        _ => Fill::Normal(1.0),
    },
    far_from_one,
    ..Op::of(Required {
        name: "memory_recall",
        kernels: const {
            &[
                &super::memory_recall_linear,
                &super::memory_recall_mlp,
                &super::memory_recall_gated,
                &super::memory_recall_normed,
                &super::memory_recall_linear_wide,
                &super::memory_recall_mlp_wide,
                &super::memory_recall_gated_wide,
                &super::memory_recall_normed_wide,
            ]
        },
        class: ToleranceClass::Mlp,
        batch: "B",
        reference: super::reference::checked,
        flops: |p| {
            let (rows, [d, e]) = (2.0 * product(p, &["B", "N", "H"]), ["D", "E"].map(|dim| p.dim(dim) as f64));
            match p.kernel.name.trim_end_matches("_wide") {
                "memory_recall_linear" => rows * d * e,
                "memory_recall_gated" => rows * product(p, &["M"]) * (2.0 * d + e),
                _ => rows * product(p, &["M"]) * (d + e),
            }
        },
        verification,
        simulation,
        measured: &[
            Measured::bf16("memory_recall_linear", "memory_recall_linear", &[8, 256, 16, 64, 64]),
            Measured::bf16("memory_recall_mlp", "memory_recall_mlp", &[8, 256, 16, 64, 64, 256]),
            Measured::bf16("memory_recall_gated", "memory_recall_gated", &[8, 256, 16, 64, 64, 256]),
            Measured::bf16("memory_recall_normed", "memory_recall_normed", &[8, 256, 16, 64, 64, 256]),
            Measured::bf16("memory_recall_linear_wide", "memory_recall_linear_wide", &[1, 256, 16, 2152, 64]),
            Measured::bf16("memory_recall_mlp_wide", "memory_recall_mlp_wide", &[1, 256, 16, 2152, 64, 256]),
            Measured::bf16("memory_recall_gated_wide", "memory_recall_gated_wide", &[1, 256, 16, 2152, 64, 256]),
            Measured::bf16("memory_recall_normed_wide", "memory_recall_normed_wide", &[1, 256, 16, 2152, 64, 256]),
        ],
    })
};

/// A problem of dims B N H D E and, of memories with a hidden layer, M.
fn on(op: &'static Op, kernel: usize, dtype: DType, dims: [u64; 6]) -> Problem {
    Problem::new(op, op.kernel(kernel), dtype, &dims[..6 - usize::from(kernel.is_multiple_of(4))])
}

fn verification(op: &'static Op, dtype: DType) -> Vec<Problem> {
    let all = |k: usize| {
        let p = |dims| on(op, k, dtype, dims);
        [
            p([2, 70, 2, 64, 64, 256]),
            p([2, 37, 3, 48, 40, 72]).note("ragged"),
            p([1, 20, 1, 96, 96, 384]),
            p([3, 1, 2, 16, 24, 40]).note("one token"),
            p([2, 0, 2, 16, 16, 32]).note("no token"),
            p([2, 21, 2, 32, 32, 64]).layout("x", Layout::Padded).layout("y", Layout::Padded).note("padded rows"),
            p([2, 9, 2, 16, 16, 32]).fill("x", Fill::NanAt(1)).note("NaN in one sequence"),
        ]
    };
    let monomials = |k| on(op, k, dtype, [1, 9, 1, 2152, 64, 48]).note("all monomials of 64 numbers");
    (0..8).flat_map(all).chain((4..8).map(monomials)).collect()
}

fn simulation(op: &'static Op, dtype: DType) -> Vec<Problem> {
    let all = |k: usize| {
        let p = |dims| on(op, k, dtype, dims);
        [
            p([1, 37, 2, 32, 24, 40]).note("ragged"),
            p([2, 16, 1, 16, 16, 64]),
            p([1, 1, 2, 48, 48, 32]).note("one token"),
        ]
    };
    let several = |k| on(op, k, dtype, [1, 5, 1, 200, 16, 32]).note("rows of several tiles");
    (0..8).flat_map(all).chain((4..8).map(several)).collect()
}

fn far_from_one(op: &'static Op, dtype: DType) -> Vec<Problem> {
    let of = |k| {
        let p = on(op, k, dtype, [1, 9, 2, 16, 16, 40]);
        [long_rows(p.clone()).fill("w1", Fill::Normal(0.1)), short_rows(p)]
    };
    [3, 7].into_iter().flat_map(of).collect()
}
