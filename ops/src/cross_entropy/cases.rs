//! The op `cross_entropy`: the row of the table, and its problems to verify, simulate and measure.

use crate::problem::{Fill, Layout, Measured, Op, Problem, Required};
use crate::tolerance::ToleranceClass;
use crate::usual::product;
use atlas_dsl::DType;

pub(crate) const OP: Op = Op {
    scalars: &[("scale", 0.25)],
    // Some targets are no column.
    fill: |p, name| match name {
        "target" => Fill::Around(0.5 * p.dim("V") as f64, 0.4 * p.dim("V") as f64),
        _ => Fill::Normal(1.0),
    },
    ..Op::of(Required {
        name: "cross_entropy",
        kernels: const { &[&super::cross_entropy] },
        class: ToleranceClass::Norm,
        batch: "N",
        reference: |p, i| {
            let scale = f64::from(p.scalar("scale"));
            super::reference(&i.get("logits"), &i.get("target"), p.dim("V"), scale).into()
        },
        flops: |p| 8.0 * product(p, &["N", "V"]),
        verification,
        simulation,
        measured: &[
            Measured::bf16("cross_entropy", "cross_entropy", &[8192, 50_304]),
            Measured::bf16("cross_entropy_256", "cross_entropy", &[16_384, 256]),
        ],
    })
};

fn verification(op: &'static Op, dtype: DType) -> Vec<Problem> {
    let p = |dims: &[u64]| Problem::new(op, op.kernel(0), dtype, dims);
    vec![
        p(&[37, 256]).note("bytes"),
        p(&[19, 300]).note("ragged"),
        p(&[3, 5000]),
        p(&[2, 131_072]).note("long rows"),
        p(&[7, 3]).note("odd"),
        p(&[6, 1]).fill("target", Fill::Around(0.0, 0.0)).note("one column"),
        p(&[1, 64]).note("one row"),
        p(&[0, 64]).note("no row"),
        p(&[9, 64]).fill("target", Fill::Around(-100.0, 0.0)).note("no row counts"),
        p(&[9, 64]).fill("target", Fill::Around(64.0, 0.0)).note("targets past the end"),
        p(&[9, 128]).fill("target", Fill::Ordinals).fill("logits", Fill::Normal(20.0)).note("sharp"),
        p(&[9, 128]).fill("logits", Fill::Around(500.0, 2.0)).note("large"),
        p(&[9, 72]).layout("logits", Layout::Padded).layout("dlogits", Layout::Padded).note("padded rows"),
        p(&[4, 64]).fill("logits", Fill::NanAt(2)).fill("target", Fill::Ordinals).note("NaN in one row"),
        p(&[4, 64]).fill("logits", Fill::NanAt(2)).fill("target", Fill::Around(-1.0, 0.0)).note("NaN does not count"),
    ]
}

fn simulation(op: &'static Op, dtype: DType) -> Vec<Problem> {
    let p = |dims: &[u64]| Problem::new(op, op.kernel(0), dtype, dims);
    vec![
        p(&[5, 40]).note("ragged"),
        p(&[3, 2100]).note("ragged"),
        p(&[7, 3]).note("odd"),
        p(&[1, 256]).note("one row"),
        p(&[5, 72]).layout("logits", Layout::Padded).note("padded rows"),
        p(&[4, 64]).fill("logits", Fill::NanAt(2)).fill("target", Fill::Ordinals).note("NaN in one row"),
    ]
}
