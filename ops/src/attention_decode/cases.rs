//! The op `attention_decode`: the row of the table, and its problems to verify, simulate and measure.

use crate::problem::{Fill, Measured, Op, Problem, Required};
use crate::tolerance::ToleranceClass;
use crate::usual::product;
use atlas_dsl::DType;

pub(crate) const OP: Op = Op {
    scalars: &[("scale", 0.125)],
    fill: |p, name| match name {
        "tokens" => Fill::Around(0.8 * p.dim("W") as f64, 0.3 * p.dim("W") as f64),
        "totals" => Fill::Around(20.0, 2.0),
        _ => Fill::Normal(1.0),
    },
    plans: super::plans::PLANS,
    ..Op::of(Required {
        name: "attention_decode",
        kernels: const { &[&super::decode_parts, &super::decode_join] },
        class: ToleranceClass::Mlp,
        batch: "S",
        reference: super::reference::checked,
        flops: |p| 4.0 * product(p, &["S", "J", "R", "D"]) * p.dim("W").max(p.dim("X")) as f64,
        verification,
        simulation,
        measured: &[
            Measured::bf16("decode_parts", "decode_parts", &[64, 8, 4, 128, 2048, 4]),
            Measured::bf16("decode_join", "decode_join", &[64, 8, 4, 4, 128]),
        ],
    })
};

/// Dims of parts: S J R D W X.
fn verification(op: &'static Op, dtype: DType) -> Vec<Problem> {
    let on = |kernel: usize, dims: &[u64]| Problem::new(op, op.kernel(kernel), dtype, dims);
    vec![
        on(0, &[3, 2, 4, 64, 200, 3]).note("partly filled"),
        on(0, &[2, 1, 1, 128, 70, 4]).fill("tokens", Fill::Around(500.0, 1.0)).note("a ring that is full"),
        on(0, &[2, 2, 8, 48, 33, 1]).fill("tokens", Fill::Around(1.0, 0.1)).note("one token"),
        on(0, &[2, 2, 3, 64, 40, 5]).fill("tokens", Fill::Around(0.0, 0.1)).note("no token"),
        on(0, &[2, 2, 3, 32, 40, 5])
            .fill("tokens", Fill::Around(f64::from(i32::MIN), 0.0))
            .note("fewer tokens than none"),
        on(0, &[2, 1, 4, 32, 70, 2]).with_scalar("scale", -0.125).note("a negative scale"),
        on(0, &[2, 1, 4, 32, 70, 2]).with_scalar("scale", 0.0).note("scale 0"),
        on(1, &[3, 2, 4, 64, 8]),
        on(1, &[2, 1, 1, 40, 3]).note("odd"),
    ]
}

fn simulation(op: &'static Op, dtype: DType) -> Vec<Problem> {
    let on = |kernel: usize, dims: &[u64]| Problem::new(op, op.kernel(kernel), dtype, dims);
    vec![
        on(0, &[2, 1, 4, 32, 70, 2]).fill("tokens", Fill::Around(50.0, 10.0)).note("partly filled"),
        on(1, &[1, 2, 2, 32, 3]).note("odd"),
    ]
}
