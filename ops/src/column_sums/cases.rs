//! The op `column_sums`: the row of the table, its reference, and its problems to verify, simulate and measure.

use crate::problem::{Fill, Layout, Measured, Op, Problem, Required};
use crate::tolerance::ToleranceClass;
use crate::usual::product;
use atlas_dsl::DType;

pub(crate) const OP: Op = Op::of(Required {
    name: "column_sums",
    kernels: const { &[&super::column_sums] },
    class: ToleranceClass::Norm,
    batch: "D",
    reference: |p, i| {
        let (x, d) = (i.get("x"), p.dim("D"));
        vec![(0..d).map(|column| x.iter().skip(column).step_by(d.max(1)).sum()).collect()]
    },
    flops: |p| product(p, &["N", "D"]),
    verification,
    simulation,
    measured: &[Measured::bf16("column_sums", "column_sums", &[16_384, 4096])],
});

/// Dims: N D.
fn verification(op: &'static Op, dtype: DType) -> Vec<Problem> {
    let p = |dims: &[u64]| Problem::new(op, op.kernel(0), dtype, dims);
    vec![
        p(&[100, 64]),
        p(&[37, 300]).note("ragged"),
        p(&[1, 40]).note("one row"),
        p(&[0, 40]).note("no row"),
        // Terms of both signs would cancel in the only sum.
        p(&[70, 1]).fill("x", Fill::Around(1.0, 0.2)).note("one column"),
        p(&[70, 96]).layout("x", Layout::Padded).note("padded rows"),
        p(&[70, 96]).fill("x", Fill::NanAt(3)).note("NaN in one row"),
    ]
}

fn simulation(op: &'static Op, dtype: DType) -> Vec<Problem> {
    let p = |dims: &[u64]| Problem::new(op, op.kernel(0), dtype, dims);
    vec![p(&[70, 72]).note("ragged"), p(&[5, 3]).note("odd"), p(&[200, 300])]
}
