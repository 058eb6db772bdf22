//! The op `inverse`: the row of the table, and its problems to verify, simulate and measure.

use crate::problem::{Fill, Measured, Op, Problem, Required};
use crate::tolerance::ToleranceClass;
use crate::usual::product;
use atlas_dsl::DType;

pub(crate) const OP: Op = Op {
    scalars: &[("count", 20.0), ("damping", 4.0)],
    fill: |p, _| Fill::Normal((p.dim("N").max(1) as f64).powf(-0.5)),
    far_from_one,
    ..Op::of(Required {
        name: "inverse",
        kernels: const { &[&super::inverse] },
        class: ToleranceClass::Mlp,
        batch: "B",
        reference: |p, i| super::reference(&i.get("a"), p.dim("N"), f64::from(p.scalar("damping"))).into(),
        flops: |p| 4.0 * f64::from(p.scalar("count")) * product(p, &["B", "N", "N", "N"]),
        verification,
        simulation,
        measured: &[Measured::bf16("inverse", "inverse", &[256, 64])],
    })
};

fn verification(op: &'static Op, dtype: DType) -> Vec<Problem> {
    let p = |dims: &[u64]| Problem::new(op, op.kernel(0), dtype, dims);
    vec![
        p(&[3, 48]),
        p(&[2, 17]).note("odd"),
        p(&[2, 1]).note("one number"),
        p(&[3, 24]).fill("a", Fill::NanAt(1)).note("NaN in one matrix"),
        p(&[2, 16]).with_scalar("damping", 0.0).fill("a", Fill::ZeroAt(0)).with_scalar("count", 60.0).note("singular"),
    ]
}

fn simulation(op: &'static Op, dtype: DType) -> Vec<Problem> {
    let p = |dims: &[u64]| Problem::new(op, op.kernel(0), dtype, dims);
    vec![p(&[2, 16]).with_scalar("count", 8.0), p(&[1, 9]).with_scalar("count", 8.0).note("odd")]
}

fn far_from_one(op: &'static Op, dtype: DType) -> Vec<Problem> {
    let on = |kernel: usize, dims: &[u64]| Problem::new(op, op.kernel(kernel), dtype, dims);
    [if dtype == DType::F16 { 1e3 } else { 1e20 }, if dtype == DType::F16 { 2e-3 } else { 1e-24 }]
        .into_iter()
        .map(|size| {
            let p = on(0, &[2, 16]).fill("a", Fill::Normal(0.25 * size)).with_scalar("damping", 4.0 * size as f32);
            p.note(if size > 1.0 { "far above 1" } else { "far below 1" })
        })
        .collect()
}
