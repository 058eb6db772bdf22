//! The op `poly_features`: the row of the table, and its problems to verify, simulate and measure.

use crate::problem::{Fill, Layout, Measured, Op, Problem, Required};
use crate::tolerance::ToleranceClass;
use crate::usual::{models, product};
use atlas_dsl::DType;

/// Learned coefficients of a polynomial feature map start near those of an exponential.
const COEFFICIENTS: [(&str, f32); 4] = [("a1", 1.0), ("a2", 0.5), ("a3", -0.25), ("a4", 0.125)];

pub(crate) const OP: Op = Op {
    scalars: &COEFFICIENTS,
    demo,
    as_in_a_model,
    ..Op::of(Required {
        name: "poly_features",
        kernels: const { &[&super::poly1, &super::poly2, &super::poly3, &super::poly4] },
        class: ToleranceClass::Features,
        batch: "N",
        reference: |p, i| {
            let degree = p.kernel.params.len() - 2;
            let a: Vec<f64> = COEFFICIENTS[..degree].iter().map(|(_, a)| f64::from(*a)).collect();
            vec![super::reference(&i.get("x"), &a)]
        },
        flops: |p| 2.0 * (p.kernel.params.len() - 2) as f64 * product(p, &["N", "D"]),
        verification,
        simulation,
        measured: &[Measured::bf16("poly3", "poly3", &[2_097_152, 64])],
    })
};

fn verification(op: &'static Op, dtype: DType) -> Vec<Problem> {
    let on = |kernel: usize, dims: &[u64]| Problem::new(op, op.kernel(kernel), dtype, dims);
    (0..4)
        .flat_map(|k| {
            [
                on(k, &[64, 64]),
                on(k, &[37, 48]).note("ragged"),
                on(k, &[1, 64]).note("one row"),
                on(k, &[200, 40]).layout("x", Layout::Padded).note("padded rows"),
            ]
        })
        .chain([on(2, &[5, 3]).note("odd"), on(2, &[0, 64]).note("no row")])
        .collect()
}

fn simulation(op: &'static Op, dtype: DType) -> Vec<Problem> {
    let on = |kernel: usize, dims: &[u64]| Problem::new(op, op.kernel(kernel), dtype, dims);
    (0..4)
        .flat_map(|k| {
            [
                on(k, &[133, 48]).note("ragged"),
                on(k, &[64, 64]),
                on(k, &[1, 64]).note("one row"),
                on(k, &[37, 40]).layout("x", Layout::Padded).note("padded rows"),
                on(k, &[5, 3]).note("odd"),
            ]
        })
        .collect()
}

fn demo(op: &'static Op) -> Vec<Problem> {
    models().map(|m| Problem::new(op, op.kernel(2), DType::Bf16, &[16 * m.tokens, m.head])).collect()
}

/// Features of normalised keys, whose elements are about `D^-1/2`.
fn as_in_a_model(p: Problem) -> Problem {
    let scale = (p.dim("D") as f64).powf(-0.5);
    p.fill("x", Fill::Normal(scale))
}
