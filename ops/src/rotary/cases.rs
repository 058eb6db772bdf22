//! The op `rotary`: the row of the table, and its problems to verify, simulate and measure.

use crate::problem::{Layout, Measured, Op, Problem, Required};
use crate::tolerance::ToleranceClass;
use crate::usual::product;
use atlas_dsl::DType;

pub(crate) const OP: Op = Op::of(Required {
    name: "rotary",
    kernels: const { &[&super::rotary] },
    class: ToleranceClass::Features,
    batch: "N",
    reference: |p, i| vec![super::reference(&i.get("x"), &i.get("c"), &i.get("s"), [p.dim("H"), p.dim("D")])],
    flops: |p| 6.0 * product(p, &["N", "H", "D"]),
    verification,
    simulation,
    measured: &[Measured::bf16("rotary", "rotary", &[32768, 32, 2, 64])],
});

fn verification(op: &'static Op, dtype: DType) -> Vec<Problem> {
    let p = |dims: &[u64]| Problem::new(op, op.kernel(0), dtype, dims);
    vec![
        p(&[5, 16, 2, 64]),
        p(&[3, 33, 2, 48]).note("ragged"),
        p(&[2, 1, 2, 5]).note("odd"),
        p(&[40, 8, 2, 64]).layout("c", Layout::Padded).note("padded rows"),
    ]
}

fn simulation(op: &'static Op, dtype: DType) -> Vec<Problem> {
    let p = |dims: &[u64]| Problem::new(op, op.kernel(0), dtype, dims);
    vec![p(&[3, 9, 2, 32]).note("ragged"), p(&[2, 8, 2, 5]).note("odd")]
}
