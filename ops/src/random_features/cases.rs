//! The op `random_features`: the row of the table, and its problems to verify, simulate and measure.

use crate::problem::{Fill, Layout, Measured, Op, Problem, Required};
use crate::tolerance::ToleranceClass;
use crate::usual::{of_unit_rows, product};
use atlas_dsl::DType;

pub(crate) const OP: Op = Op {
    scalars: &[("scale", 0.35), ("shift", 0.5)],
    fill: of_unit_rows,
    ..Op::of(Required {
        name: "random_features",
        kernels: const { &[&super::favor_features, &super::fourier_features, &super::fourier_pairs] },
        class: ToleranceClass::Projected,
        batch: "N",
        reference: |p, i| {
            let b = i.get("b");
            let feature = match p.kernel.name {
                "favor_features" => super::Feature::Favor(f64::from(p.scalar("scale")), f64::from(p.scalar("shift"))),
                "fourier_features" => super::Feature::Cosine(&b),
                _ => super::Feature::Pair,
            };
            vec![super::reference(&i.get("x"), &i.get("w"), &feature, [p.dim("D"), p.dim("M")])]
        },
        flops: |p| 2.0 * product(p, &["N", "D", "M"]),
        verification,
        simulation,
        measured: &[
            Measured::bf16("favor_features", "favor_features", &[2_097_152, 64, 256]),
            Measured::bf16("fourier_features", "fourier_features", &[2_097_152, 64, 256]),
            Measured::bf16("fourier_pairs", "fourier_pairs", &[2_097_152, 64, 256, 2]),
        ],
    })
};

fn verification(op: &'static Op, dtype: DType) -> Vec<Problem> {
    let on = |kernel: usize, dims: &[u64]| Problem::new(op, op.kernel(kernel), dtype, dims);
    (0..3)
        .flat_map(|k| {
            let on = |n: u64, d: u64, m: u64| on(k, &[n, d, m, 2][..3 + usize::from(k == 2)]);
            [
                on(130, 64, 256),
                on(37, 48, 100).note("ragged"),
                on(1, 64, 64).note("one row"),
                on(20, 5, 33).note("odd"),
                on(0, 64, 64).note("no row"),
                on(40, 64, 64).layout("x", Layout::Padded).note("padded rows"),
                on(3, 64, 64).fill("x", Fill::ZeroAt(1)).note("a zero row"),
                on(4, 64, 32).fill("x", Fill::NanAt(2)).note("NaN in one row"),
            ]
        })
        .collect()
}

fn simulation(op: &'static Op, dtype: DType) -> Vec<Problem> {
    let on = |kernel: usize, dims: &[u64]| Problem::new(op, op.kernel(kernel), dtype, dims);
    (0..3)
        .flat_map(|k| {
            let on = |n: u64, d: u64, m: u64| on(k, &[n, d, m, 2][..3 + usize::from(k == 2)]);
            [on(70, 32, 72).note("ragged"), on(64, 64, 64), on(5, 3, 17).note("odd")]
        })
        .collect()
}
