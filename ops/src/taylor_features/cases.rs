//! The op `taylor_features`: the row of the table, and its problems to verify, simulate and measure.

use crate::problem::{Measured, Op, Problem, Required};
use crate::tolerance::ToleranceClass;
use crate::usual::product;
use atlas_dsl::DType;

pub(crate) const OP: Op = Op::of(Required {
    name: "taylor_features",
    kernels: const { &[&super::taylor2_features] },
    class: ToleranceClass::Features,
    batch: "N",
    reference: |p, i| vec![super::reference(&i.get("x"), p.dim("D"))],
    flops: |p| 2.0 * product(p, &["N", "D", "D"]),
    verification,
    simulation,
    measured: &[Measured::bf16("taylor2", "taylor2_features", &[262_144, 64, 4161])],
});

fn verification(op: &'static Op, dtype: DType) -> Vec<Problem> {
    let p = |dims: &[u64]| Problem::new(op, op.kernel(0), dtype, dims);
    vec![
        p(&[40, 64, 4161]),
        p(&[37, 16, 273]).note("ragged"),
        p(&[5, 3, 13]).note("odd"),
        p(&[1, 1, 3]).note("one number"),
    ]
}

fn simulation(op: &'static Op, dtype: DType) -> Vec<Problem> {
    let p = |dims: &[u64]| Problem::new(op, op.kernel(0), dtype, dims);
    vec![p(&[21, 16, 273]).note("ragged"), p(&[5, 3, 13]).note("odd")]
}
