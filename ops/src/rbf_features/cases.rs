//! The op `rbf_features`: the row of the table, and its problems to verify, simulate and measure.

use crate::problem::{Fill, Layout, Measured, Op, Problem, Required};
use crate::tolerance::ToleranceClass;
use crate::usual::{of_unit_rows, product};
use atlas_dsl::DType;

pub(crate) const OP: Op = Op {
    fill: of_unit_rows,
    ..Op::of(Required {
        name: "rbf_features",
        kernels: const { &[&super::rbf_features] },
        class: ToleranceClass::Projected,
        batch: "N",
        reference: |p, i| vec![super::reference(&i.get("x"), &i.get("c"), &i.get("g"), p.dim("D"))],
        flops: |p| 2.0 * product(p, &["N", "D", "M"]),
        verification,
        simulation,
        measured: &[Measured::bf16("rbf_features", "rbf_features", &[2_097_152, 64, 256])],
    })
};

fn verification(op: &'static Op, dtype: DType) -> Vec<Problem> {
    let p = |dims: &[u64]| Problem::new(op, op.kernel(0), dtype, dims);
    [
        p(&[130, 64, 256]),
        p(&[37, 48, 100]).note("ragged"),
        p(&[1, 64, 64]).note("one row"),
        p(&[20, 5, 33]).note("odd"),
        p(&[0, 64, 64]).note("no row"),
        p(&[40, 64, 64]).layout("x", Layout::Padded).layout("c", Layout::Padded).note("padded rows"),
        p(&[3, 64, 64]).fill("x", Fill::ZeroAt(1)).fill("c", Fill::ZeroAt(0)).note("a centre that is met"),
        p(&[4, 64, 32]).fill("x", Fill::NanAt(2)).note("NaN in one row"),
    ]
    .to_vec()
}

fn simulation(op: &'static Op, dtype: DType) -> Vec<Problem> {
    let p = |dims: &[u64]| Problem::new(op, op.kernel(0), dtype, dims);
    vec![p(&[70, 32, 72]).note("ragged"), p(&[64, 64, 64]), p(&[5, 3, 17]).note("odd")]
}
