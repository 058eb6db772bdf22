//! The op `transpose`: the row of the table, and its problems to verify, simulate and measure.

use crate::problem::{Fill, Layout, Measured, Op, Problem, Required};
use crate::tolerance::ToleranceClass;
use atlas_dsl::DType;

pub(crate) const OP: Op = Op::of(Required {
    name: "transpose",
    kernels: const { &[&super::transpose, &super::swap_axes] },
    class: ToleranceClass::Exact,
    batch: "N",
    reference: |p, i| {
        vec![match p.kernel.name {
            "swap_axes" => super::swapped(&i.get("x"), [p.dim("B"), p.dim("C"), p.dim("D")]),
            _ => super::reference(&i.get("x"), [p.dim("N"), p.dim("M")]),
        }]
    },
    flops: |_| 0.0,
    verification,
    simulation,
    measured: &[
        Measured::bf16("transpose", "transpose", &[8192, 8192]),
        Measured::bf16("swap_axes", "swap_axes", &[16, 2048, 16, 64]),
        Measured::bf16("swap_axes_blocks", "swap_axes", &[64, 128, 64, 128]),
    ],
});

fn verification(op: &'static Op, dtype: DType) -> Vec<Problem> {
    let on = |kernel: usize, dims: &[u64]| Problem::new(op, op.kernel(kernel), dtype, dims);
    let p = |dims: &[u64]| on(0, dims);
    vec![
        p(&[256, 192]),
        p(&[130, 70]).note("ragged"),
        p(&[1, 300]).note("one row"),
        p(&[300, 1]).note("one column"),
        p(&[37, 51]).note("odd"),
        p(&[0, 64]).note("no row"),
        p(&[100, 64]).layout("x", Layout::Padded).note("padded rows"),
        p(&[20, 40]).fill("x", Fill::NanAt(2)).note("NaN in one row"),
        on(1, &[2, 50, 6, 64]),
        on(1, &[3, 7, 37, 20]).note("ragged"),
        on(1, &[1, 5, 3, 1]).note("odd"),
        on(1, &[2, 0, 4, 8]).note("nothing"),
        on(1, &[2, 40, 3, 24]).layout("x", Layout::Padded).note("padded rows"),
    ]
}

fn simulation(op: &'static Op, dtype: DType) -> Vec<Problem> {
    let on = |kernel: usize, dims: &[u64]| Problem::new(op, op.kernel(kernel), dtype, dims);
    let p = |dims: &[u64]| on(0, dims);
    vec![
        p(&[70, 40]).note("ragged"),
        p(&[128, 64]),
        p(&[5, 33]).note("odd"),
        on(1, &[2, 5, 37, 24]).note("ragged"),
        on(1, &[1, 3, 2, 5]).note("odd"),
    ]
}
