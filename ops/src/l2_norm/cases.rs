//! The op `l2_norm`: the row of the table, and its problems to verify, simulate and measure.

use crate::problem::{Fill, Measured, Op, Problem, Required};
use crate::tolerance::ToleranceClass;
use crate::usual::{long_rows, product, rows, short_rows, small_rows};
use atlas_dsl::DType;

pub(crate) const OP: Op = Op {
    scalars: &[("eps", 1e-6)],
    far_from_one,
    ..Op::of(Required {
        name: "l2_norm",
        kernels: const { &[&super::l2_norm] },
        class: ToleranceClass::Norm,
        batch: "N",
        reference: |p, i| vec![super::reference(&i.get("x"), p.dim("D"), f64::from(p.scalar("eps")))],
        flops: |p| 3.0 * product(p, &["N", "D"]),
        verification,
        simulation: small_rows,
        measured: &[Measured::bf16("l2_norm", "l2_norm", &[524_288, 128])],
    })
};

fn verification(op: &'static Op, dtype: DType) -> Vec<Problem> {
    let p = |dims: &[u64]| Problem::new(op, op.kernel(0), dtype, dims);
    let mut problems = rows(op, dtype);
    problems.extend([
        p(&[70, 128]),
        p(&[5, 64]).fill("x", Fill::Normal(1e-3)).note("small"),
        p(&[3, 40]).fill("x", Fill::ZeroAt(1)).note("a zero row"),
    ]);
    problems
}

fn far_from_one(op: &'static Op, dtype: DType) -> Vec<Problem> {
    let on = |kernel: usize, dims: &[u64]| Problem::new(op, op.kernel(kernel), dtype, dims);
    vec![long_rows(on(0, &[3, 1000])), short_rows(on(0, &[5, 40]))]
}
