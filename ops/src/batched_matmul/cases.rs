//! The op `batched_matmul`: the row of the table, and its problems to verify, simulate and measure.

use crate::problem::{Layout, Measured, Op, Problem, Required};
use crate::tolerance::ToleranceClass;
use crate::usual::product;
use atlas_dsl::DType;

pub(crate) const OP: Op = Op::of(Required {
    name: "batched_matmul",
    kernels: const { &[&super::batched_matmul] },
    class: ToleranceClass::Mlp,
    batch: "S",
    reference: |p, i| vec![super::reference(&i.get("a"), &i.get("b"), ["S", "M", "N", "K"].map(|dim| p.dim(dim)))],
    flops: |p| 2.0 * product(p, &["S", "M", "N", "K"]),
    verification,
    simulation,
    measured: &[
        Measured::bf16("batched_matmul", "batched_matmul", &[16, 2048, 2048, 2048]),
        Measured::bf16("batched_matmul_512", "batched_matmul", &[64, 512, 512, 512]),
        Measured::bf16("batched_matmul_heads", "batched_matmul", &[64, 2048, 128, 2048]),
        Measured::bf16("batched_matmul_nn", "batched_matmul", &[16, 2048, 2048, 2048])
            .layouts(&[("b", Layout::Transposed)]),
        Measured::bf16("batched_matmul_shared", "batched_matmul", &[16, 2048, 2048, 2048])
            .layouts(&[("b", Layout::Shared)]),
    ],
});

fn verification(op: &'static Op, dtype: DType) -> Vec<Problem> {
    let p = |dims: &[u64]| Problem::new(op, op.kernel(0), dtype, dims);
    vec![
        p(&[3, 128, 64, 256]),
        p(&[1, 200, 72, 136]).note("one pair, ragged"),
        p(&[5, 37, 51, 29]).note("odd"),
        p(&[2, 1, 1, 1]).note("single elements"),
        p(&[7, 13, 17, 1]).note("prime, one column"),
        p(&[0, 16, 32, 16]).note("no pair"),
        p(&[2, 0, 32, 16]).note("no row"),
        p(&[2, 24, 0, 16]).note("products over nothing"),
        p(&[3, 70, 64, 40]).layout("a", Layout::Padded).layout("b", Layout::Padded).note("padded rows"),
        p(&[3, 70, 64, 40]).layout("a", Layout::Swapped).layout("b", Layout::Swapped).note("the batch inside of rows"),
        p(&[3, 72, 64, 136]).layout("b", Layout::Transposed).note("B by columns"),
        p(&[3, 72, 64, 136]).layout("a", Layout::Transposed).note("A by columns"),
        p(&[3, 37, 51, 29])
            .layout("a", Layout::Transposed)
            .layout("b", Layout::Transposed)
            .note("odd, both by columns"),
        p(&[3, 70, 64, 40]).layout("b", Layout::Shared).note("one B"),
        p(&[3, 37, 51, 29]).layout("a", Layout::Shared).note("odd, one A"),
    ]
}

fn simulation(op: &'static Op, dtype: DType) -> Vec<Problem> {
    let p = |dims: &[u64]| Problem::new(op, op.kernel(0), dtype, dims);
    vec![
        p(&[2, 70, 72, 40]).note("ragged"),
        p(&[3, 5, 17, 33]).note("odd"),
        p(&[2, 64, 64, 64]).layout("b", Layout::Shared).note("one B"),
        p(&[2, 40, 72, 72]).layout("b", Layout::Transposed).note("B by columns"),
    ]
}
