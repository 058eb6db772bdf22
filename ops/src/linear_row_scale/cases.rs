//! The op `linear_row_scale`: the row of the table, and its problems to verify, simulate and measure.

use crate::problem::{Fill, Layout, Measured, Op, Problem, Required};
use crate::tolerance::ToleranceClass;
use crate::usual::{product, unit, usual_products};
use atlas_dsl::DType;

pub(crate) const OP: Op = Op {
    fill: |p, name| Fill::Normal(if name == "w" { unit(p.dim("K")) } else { 1.0 }),
    ..Op::of(Required {
        name: "linear_row_scale",
        kernels: const { &[&super::linear_row_scale] },
        class: ToleranceClass::Mlp,
        batch: "M",
        reference: |p, i| {
            let [x, w, s] = ["x", "w", "s"].map(|name| i.get(name));
            vec![super::reference([&x, &w, &s], ["M", "N", "K"].map(|dim| p.dim(dim)))]
        },
        flops: |p| 2.0 * product(p, &["M", "N", "K"]),
        verification,
        simulation,
        measured: &[
            Measured::bf16("linear_row_scale", "linear_row_scale", &[8192, 1024, 4096]),
            Measured::bf16("linear_row_scale_4096", "linear_row_scale", &[4096, 4096, 4096]),
        ],
    })
};

fn verification(op: &'static Op, dtype: DType) -> Vec<Problem> {
    let p = |dims: &[u64]| Problem::new(op, op.kernel(0), dtype, dims);
    let more = vec![
        p(&[70, 128, 64]).layout("x", Layout::Padded).layout("w", Layout::Padded).note("padded rows"),
        p(&[37, 51, 29]).layout("x", Layout::Swapped).layout("w", Layout::Swapped).note("odd, both by columns"),
        p(&[70, 64, 40]).fill("s", Fill::NanAt(2)).note("NaN for one row"),
    ];
    [usual_products(op, dtype), more].concat()
}

fn simulation(op: &'static Op, dtype: DType) -> Vec<Problem> {
    let p = |dims: &[u64]| Problem::new(op, op.kernel(0), dtype, dims);
    vec![p(&[70, 72, 40]).note("ragged"), p(&[64, 64, 64]), p(&[5, 17, 33]).note("odd")]
}
