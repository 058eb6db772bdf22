//! The op `matmul`: the row of the table, and its problems to verify, simulate and measure.

use crate::problem::{Layout, Measured, Op, Problem, Required};
use crate::tolerance::ToleranceClass;
use crate::usual::product;
use atlas_dsl::DType;

pub(crate) const OP: Op = Op::of(Required {
    name: "matmul",
    kernels: const { &[&super::matmul] },
    class: ToleranceClass::Mlp,
    batch: "M",
    reference: |p, i| vec![super::reference(&i.get("a"), &i.get("b"), ["M", "N", "K"].map(|dim| p.dim(dim)))],
    flops: |p| 2.0 * product(p, &["M", "N", "K"]),
    verification,
    simulation,
    measured: &[
        Measured::bf16("matmul_2048", "matmul", &[2048, 2048, 2048]),
        Measured::bf16("matmul_4096", "matmul", &[4096, 4096, 4096]),
        Measured::bf16("matmul_8192", "matmul", &[8192, 8192, 8192]),
        Measured::bf16("matmul_nn", "matmul", &[4096, 4096, 4096]).layouts(&[("b", Layout::Swapped)]),
        Measured::bf16("matmul_tn", "matmul", &[4096, 4096, 4096])
            .layouts(&[("a", Layout::Swapped), ("b", Layout::Swapped)]),
        Measured::bf16("matmul_tt", "matmul", &[4096, 4096, 4096]).layouts(&[("a", Layout::Swapped)]),
        Measured::bf16("matmul_skinny", "matmul", &[64, 4096, 4096]),
    ],
});

fn verification(op: &'static Op, dtype: DType) -> Vec<Problem> {
    let p = |dims: &[u64]| Problem::new(op, op.kernel(0), dtype, dims);
    vec![
        p(&[256, 512, 256]),
        p(&[200, 136, 72]).note("ragged"),
        p(&[1, 300, 64]).note("one row"),
        p(&[37, 29, 51]).note("odd"),
        p(&[1200, 96, 700]).note("a last group of programs"),
        p(&[64, 64, 128]).layout("a", Layout::Padded).note("padded rows"),
        p(&[256, 264, 256]).layout("b", Layout::Swapped).note("B by columns"),
        p(&[200, 136, 72]).layout("a", Layout::Swapped).note("A by columns"),
        p(&[37, 29, 51]).layout("a", Layout::Swapped).layout("b", Layout::Swapped).note("odd, both by columns"),
    ]
}

fn simulation(op: &'static Op, dtype: DType) -> Vec<Problem> {
    let p = |dims: &[u64]| Problem::new(op, op.kernel(0), dtype, dims);
    vec![
        p(&[70, 40, 72]).note("ragged"),
        p(&[64, 64, 64]),
        p(&[5, 33, 17]).note("odd"),
        p(&[72, 136, 72]).layout("b", Layout::Swapped).note("B by columns"),
    ]
}
