//! The op `linear_square_sums`: the row of the table, and its problems to verify, simulate and measure.

use crate::problem::{Fill, Layout, Measured, Op, Problem, Required};
use crate::tolerance::ToleranceClass;
use crate::usual::{product, unit};
use atlas_dsl::DType;

pub(crate) const OP: Op = Op {
    fill: |p, name| Fill::Normal(if name == "w" { unit(p.dim("K")) } else { 1.0 }),
    ..Op::of(Required {
        name: "linear_square_sums",
        kernels: const { &[&super::linear_square_sums] },
        class: ToleranceClass::Mlp,
        batch: "M",
        reference: |p, i| super::reference([&i.get("x"), &i.get("w")], ["M", "J", "C", "K"].map(|dim| p.dim(dim))),
        flops: |p| 2.0 * product(p, &["M", "J", "C", "K"]),
        verification,
        simulation,
        measured: &[
            Measured::bf16("linear_square_sums", "linear_square_sums", &[8192, 1024, 32, 128]),
            Measured::bf16("linear_square_sums_4096", "linear_square_sums", &[4096, 4096, 32, 128]),
        ],
    })
};

fn verification(op: &'static Op, dtype: DType) -> Vec<Problem> {
    let p = |dims: &[u64]| Problem::new(op, op.kernel(0), dtype, dims);
    vec![
        p(&[256, 256, 4, 128]),
        p(&[200, 72, 3, 64]).note("ragged"),
        p(&[37, 51, 2, 29]).note("odd"),
        p(&[1, 1, 1, 1]).note("single elements"),
        p(&[0, 64, 2, 32]).note("no row"),
        p(&[24, 0, 2, 32]).note("a product over nothing"),
        p(&[70, 64, 0, 32]).note("no head"),
        p(&[70, 128, 2, 64]).layout("x", Layout::Padded).layout("w", Layout::Padded).note("padded rows"),
        p(&[37, 51, 2, 29]).layout("x", Layout::Swapped).layout("w", Layout::Transposed).note("odd, both by columns"),
    ]
}

fn simulation(op: &'static Op, dtype: DType) -> Vec<Problem> {
    let p = |dims: &[u64]| Problem::new(op, op.kernel(0), dtype, dims);
    vec![p(&[70, 72, 2, 40]).note("ragged"), p(&[64, 64, 1, 64]), p(&[5, 17, 3, 33]).note("odd")]
}
