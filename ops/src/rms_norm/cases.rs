//! The op `rms_norm`: the row of the table, and its problems to verify, simulate and measure.

use crate::problem::{Fill, Measured, Op, Problem, Required};
use crate::tolerance::ToleranceClass;
use crate::usual::{long_rows, models, product, rows, short_rows, small_rows};
use atlas_dsl::DType;

pub(crate) const OP: Op = Op {
    scalars: &[("eps", 1e-6)],
    far_from_one,
    demo,
    ..Op::of(Required {
        name: "rms_norm",
        kernels: const { &[&super::rms_norm] },
        class: ToleranceClass::Norm,
        batch: "N",
        reference: |p, i| vec![super::reference(&i.get("x"), &i.get("w"), f64::from(p.scalar("eps")))],
        flops: |p| 4.0 * product(p, &["N", "D"]),
        verification,
        simulation,
        measured: &[Measured::bf16("rms_norm", "rms_norm", &[32_768, 8192])],
    })
};

fn verification(op: &'static Op, dtype: DType) -> Vec<Problem> {
    let p = |dims: &[u64]| Problem::new(op, op.kernel(0), dtype, dims);
    rows(op, dtype)
        .into_iter()
        .chain([
            p(&[5, 64]).fill("x", Fill::Normal(1e-3)).note("small"),
            p(&[3, 40]).fill("x", Fill::ZeroAt(1)).note("a zero row"),
        ])
        .collect()
}

fn simulation(op: &'static Op, dtype: DType) -> Vec<Problem> {
    small_rows(op, dtype)
}

fn far_from_one(op: &'static Op, dtype: DType) -> Vec<Problem> {
    let on = |kernel: usize, dims: &[u64]| Problem::new(op, op.kernel(kernel), dtype, dims);
    vec![long_rows(on(0, &[3, 1000])), short_rows(on(0, &[5, 40]))]
}

fn demo(op: &'static Op) -> Vec<Problem> {
    models().map(|m| Problem::new(op, op.kernel(0), DType::Bf16, &[m.tokens, m.width])).collect()
}
