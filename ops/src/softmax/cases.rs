//! The op `softmax`: the row of the table, and its problems to verify, simulate and measure.

use crate::problem::{Fill, Measured, Op, Problem, Required};
use crate::tolerance::ToleranceClass;
use crate::usual::{models, product, rows, small_rows};
use atlas_dsl::DType;

pub(crate) const OP: Op = Op {
    demo,
    as_in_a_model,
    ..Op::of(Required {
        name: "softmax",
        kernels: const { &[&super::softmax] },
        class: ToleranceClass::Norm,
        batch: "N",
        reference: |p, i| vec![super::reference(&i.get("x"), p.dim("D"))],
        flops: |p| 5.0 * product(p, &["N", "D"]),
        verification,
        simulation,
        measured: &[Measured::bf16("softmax", "softmax", &[32_768, 8192])],
    })
};

fn verification(op: &'static Op, dtype: DType) -> Vec<Problem> {
    let p = |dims: &[u64]| Problem::new(op, op.kernel(0), dtype, dims);
    rows(op, dtype)
        .into_iter()
        .chain([
            p(&[5, 64]).fill("x", Fill::Around(500.0, 20.0)).note("large"),
            p(&[4, 64]).fill("x", Fill::Around(-500.0, 20.0)).note("large negative"),
        ])
        .collect()
}

fn simulation(op: &'static Op, dtype: DType) -> Vec<Problem> {
    small_rows(op, dtype)
}

fn demo(op: &'static Op) -> Vec<Problem> {
    models().map(|m| Problem::new(op, op.kernel(0), DType::Bf16, &[m.tokens, m.tokens])).collect()
}

/// Scores of about 1/2.
fn as_in_a_model(p: Problem) -> Problem {
    p.fill("x", Fill::Normal(0.5))
}
