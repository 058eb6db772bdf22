//! The op `clip_factor`: the rows of the table, and their problems to verify, simulate and measure.

use crate::problem::{Fill, Inputs, Measured, Op, Problem, Required};
use crate::tolerance::ToleranceClass;
use crate::usual::product;
use atlas_dsl::DType;

pub(crate) const SUMS: Op = Op::of(Required {
    name: "square_sums",
    kernels: const { &[&super::square_sums] },
    class: ToleranceClass::Norm,
    batch: "",
    reference: sums,
    flops: |p| 2.0 * product(p, &["N"]),
    verification: sums_verified,
    simulation: sums_simulated,
    measured: &[Measured::f32("square_sums", "square_sums", &[33_554_432, 528])],
});

/// It has no element type of its own.
pub(crate) const OP: Op = Op {
    dtypes: &[DType::F32],
    scalars: &[("limit", 1.0)],
    fill: |_, _| Fill::Around(2.0, 0.3),
    ..Op::of(Required {
        name: "clip_factor",
        kernels: const { &[&super::clip_factor] },
        class: ToleranceClass::Norm,
        batch: "",
        reference: |p, i| {
            let norm = i.get("sums").iter().sum::<f64>().sqrt();
            vec![vec![norm], vec![(f64::from(p.scalar("limit")) / (norm + 1e-6)).min(1.0)]]
        },
        flops: |p| product(p, &["X"]),
        verification: |op, dtype| {
            let p = |x: u64| Problem::new(op, op.kernel(0), dtype, &[x, 1]);
            let small = |x: u64| p(x).with_scalar("limit", 1e9).note("below the limit");
            vec![p(528), p(3000), p(1).note("one part"), p(0).note("no part"), small(5)]
        },
        simulation: |op, dtype| vec![Problem::new(op, op.kernel(0), dtype, &[300, 1])],
        measured: &[Measured::f32("clip_factor", "clip_factor", &[528, 1])],
    })
};

/// The sums of the squares of a few parts, which only their total does not depend on: parts are whole tiles of the config.
fn sums(p: &Problem, inputs: &Inputs) -> Vec<Vec<f64>> {
    let g = inputs.get("g");
    // All elements are in the first part if one tile holds them, or if there is no other.
    let mut sums = vec![0.0; p.dim("X")];
    if let Some(first) = sums.first_mut() {
        *first = g.iter().map(|g| g * g).sum();
    }
    vec![sums]
}

/// Dims: N X.
fn sums_verified(op: &'static Op, dtype: DType) -> Vec<Problem> {
    let p = |dims: &[u64]| Problem::new(op, op.kernel(0), dtype, dims);
    vec![
        p(&[20_000, 1]).note("one part"),
        p(&[1000, 3]).note("parts of nothing"),
        p(&[1, 1]).note("one element"),
        p(&[0, 3]).note("no element"),
        p(&[700, 2]).fill("g", Fill::NanAt(600)).note("NaN"),
    ]
}

fn sums_simulated(op: &'static Op, dtype: DType) -> Vec<Problem> {
    let p = |dims: &[u64]| Problem::new(op, op.kernel(0), dtype, dims);
    vec![p(&[9000, 1]).note("ragged"), p(&[1000, 3]).note("parts of nothing")]
}
