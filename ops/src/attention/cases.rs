//! The op `attention`: the row of the table, and its problems to verify, simulate and measure.

use crate::problem::{Fill, Layout, Measured, Op, Problem, Required};
use crate::tolerance::ToleranceClass;
use crate::usual::product;
use atlas_dsl::DType;

pub(crate) const OP: Op = Op {
    scalars: &[("scale", 0.125)],
    ..Op::of(Required {
        name: "attention",
        kernels: const { &[&super::attention] },
        class: ToleranceClass::Mlp,
        batch: "H",
        reference: |p, i| {
            let shape = [p.dim("M"), p.dim("N"), p.dim("D")];
            vec![super::reference(&i.get("q"), &i.get("k"), &i.get("v"), f64::from(p.scalar("scale")), shape)]
        },
        flops: |p| 4.0 * product(p, &["H", "M", "N", "D"]),
        verification,
        simulation,
        measured: &[
            Measured::bf16("attention_128", "attention", &[64, 4096, 128, 4096]),
            Measured::bf16("attention_64", "attention", &[64, 4096, 64, 4096]),
        ],
    })
};

fn verification(op: &'static Op, dtype: DType) -> Vec<Problem> {
    let p = |dims: &[u64]| Problem::new(op, op.kernel(0), dtype, dims);
    vec![
        p(&[3, 130, 64, 200]).note("ragged"),
        p(&[2, 128, 128, 256]),
        p(&[2, 1, 64, 70]).note("one query"),
        p(&[1, 40, 48, 33]).note("ragged"),
        p(&[2, 50, 64, 96]).layout("q", Layout::Padded).layout("k", Layout::Padded).note("padded rows"),
        p(&[2, 40, 64, 96]).with_scalar("scale", -0.125).note("a negative scale"),
        p(&[2, 40, 32, 96]).with_scalar("scale", -2.0).fill("q", Fill::Normal(30.0)).note("large, and negative"),
        p(&[1, 33, 16, 70]).with_scalar("scale", 0.0).note("scale 0: a mean"),
        p(&[2, 17, 32, 0]).note("no key"),
    ]
}

fn simulation(op: &'static Op, dtype: DType) -> Vec<Problem> {
    let p = |dims: &[u64]| Problem::new(op, op.kernel(0), dtype, dims);
    vec![p(&[1, 70, 32, 90]).note("ragged"), p(&[2, 16, 64, 64])]
}
