//! The op `linear_gelu`: the row of the table, and its problems to verify, simulate and measure.

use crate::problem::{Fill, Layout, Measured, Op, Problem, Required};
use crate::tolerance::ToleranceClass;
use crate::usual::product;
use atlas_dsl::DType;

pub(crate) const OP: Op = Op {
    fill: |p, name| Fill::Normal(if name == "w" { (p.dim("K").max(1) as f64).powf(-0.5) } else { 1.0 }),
    ..Op::of(Required {
        name: "linear_gelu",
        kernels: const { &[&super::linear_gelu] },
        class: ToleranceClass::Mlp,
        batch: "M",
        reference: |p, i| {
            let [x, w, b] = ["x", "w", "b"].map(|name| i.get(name));
            vec![super::reference(&x, &w, &b, ["M", "N", "K"].map(|dim| p.dim(dim)))]
        },
        flops: |p| 2.0 * product(p, &["M", "N", "K"]),
        verification,
        simulation,
        measured: &[Measured::bf16("linear_gelu", "linear_gelu", &[8192, 1024, 4096])],
    })
};

fn verification(op: &'static Op, dtype: DType) -> Vec<Problem> {
    let p = |dims: &[u64]| Problem::new(op, op.kernel(0), dtype, dims);
    vec![
        p(&[256, 512, 256]),
        p(&[200, 136, 72]).note("ragged"),
        p(&[37, 29, 51]).note("odd"),
        p(&[70, 64, 128]).layout("w", Layout::Padded).note("padded rows"),
    ]
}

fn simulation(op: &'static Op, dtype: DType) -> Vec<Problem> {
    let p = |dims: &[u64]| Problem::new(op, op.kernel(0), dtype, dims);
    vec![p(&[70, 40, 72]).note("ragged"), p(&[64, 64, 64])]
}
