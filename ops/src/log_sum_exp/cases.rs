//! The op `log_sum_exp`: the row of the table, and its problems to verify, simulate and measure.

use crate::problem::{Fill, Layout, Measured, Op, Problem, Required};
use crate::tolerance::ToleranceClass;
use crate::usual::product;
use atlas_dsl::DType;

pub(crate) const OP: Op = Op::of(Required {
    name: "log_sum_exp",
    kernels: const { &[&super::log_sum_exp] },
    class: ToleranceClass::Norm,
    batch: "N",
    reference: |p, i| vec![super::reference(&i.get("x"), p.dim("V"))],
    flops: |p| 4.0 * product(p, &["N", "V"]),
    verification,
    simulation,
    measured: &[
        Measured::bf16("log_sum_exp", "log_sum_exp", &[8192, 32000]),
        Measured::bf16("log_sum_exp_odd", "log_sum_exp", &[8192, 50257]),
        Measured::bf16("log_sum_exp_128256", "log_sum_exp", &[2048, 128_256]),
    ],
});

fn verification(op: &'static Op, dtype: DType) -> Vec<Problem> {
    let p = |dims: &[u64]| Problem::new(op, op.kernel(0), dtype, dims);
    vec![
        p(&[5, 3000]),
        p(&[9, 8192]),
        p(&[7, 4097]).note("odd"),
        p(&[3, 1]).note("one column"),
        p(&[9, 1500]).layout("x", Layout::Padded).note("padded rows"),
        p(&[4, 600]).fill("x", Fill::Around(500.0, 20.0)).note("large"),
        p(&[4, 64]).fill("x", Fill::NanAt(2)).note("NaN in one row"),
    ]
}

fn simulation(op: &'static Op, dtype: DType) -> Vec<Problem> {
    let p = |dims: &[u64]| Problem::new(op, op.kernel(0), dtype, dims);
    vec![p(&[5, 1100]).note("ragged"), p(&[3, 2048]), p(&[4, 33]).note("odd")]
}
