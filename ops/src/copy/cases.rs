//! The op `copy`: the row of the table, its reference, and its problems to verify, simulate and measure.

use crate::problem::{Fill, Layout, Measured, Op, Problem, Required};
use crate::tolerance::ToleranceClass;
use atlas_dsl::DType;

pub(crate) const OP: Op = Op::of(Required {
    name: "copy",
    kernels: const { &[&super::copy] },
    class: ToleranceClass::Exact,
    batch: "A",
    reference: |_, i| vec![i.get("x")],
    flops: |_| 0.0,
    verification,
    simulation,
    measured: &[Measured::bf16("copy", "copy", &[16, 16, 256, 64])],
});

/// Dims: A B C D.
fn verification(op: &'static Op, dtype: DType) -> Vec<Problem> {
    let p = |dims: &[u64]| Problem::new(op, op.kernel(0), dtype, dims);
    vec![
        p(&[2, 3, 40, 64]),
        p(&[2, 1, 37, 300]).note("ragged"),
        p(&[1, 5, 3, 1]).note("odd"),
        p(&[2, 0, 4, 8]).note("nothing"),
        p(&[3, 2, 20, 48]).layout("x", Layout::Shared).note("repeated"),
        p(&[2, 3, 20, 24]).layout("x", Layout::Swapped).note("other order"),
        p(&[2, 2, 24, 40]).layout("x", Layout::Transposed).note("columns"),
        p(&[2, 2, 9, 96]).layout("x", Layout::Padded).note("padded rows"),
        p(&[3, 2, 5, 16]).fill("x", Fill::NanAt(1)).note("NaN in one part"),
    ]
}

fn simulation(op: &'static Op, dtype: DType) -> Vec<Problem> {
    let p = |dims: &[u64]| Problem::new(op, op.kernel(0), dtype, dims);
    vec![
        p(&[2, 2, 20, 72]).note("ragged"),
        p(&[1, 3, 2, 5]).note("odd"),
        p(&[2, 1, 9, 40]).layout("x", Layout::Shared).note("repeated"),
    ]
}
