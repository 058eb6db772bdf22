//! The op `muon`: the row of the table, and its problems to verify, simulate and measure.

use crate::problem::{Fill, Measured, Op, Problem, Required};
use crate::tolerance::ToleranceClass;
use crate::usual::product;
use atlas_dsl::DType;

pub(crate) const OP: Op = Op {
    scalars: &[
        ("stretch", 1.02),
        ("eps", 1e-7),
        ("least", 0.0),
        ("safe", 0.0),
        ("centre", 0.25),
        ("first", 3.4),
        ("second", -4.8),
        ("third", 2.0),
        ("mu", 0.95),
        ("fresh", 1.0),
        ("ahead", 1.0),
        ("momentum", 0.95),
        ("keep", 0.99),
        ("step", 0.02),
    ],
    state: &["buf", "w"],
    fill: |p, name| match name {
        "largest" | "squares" => Fill::Around(3.0, 0.3),
        "p" | "q" if p.kernel.name == "ns_product" => Fill::Circulant((p.dim("M").max(1) as f64).powf(-0.5)),
        "p" => Fill::Normal((p.dim("M").max(1) as f64).powf(-0.5)),
        _ => Fill::Normal(1.0),
    },
    far_from_one,
    plans: super::plans::PLANS,
    ..Op::of(Required {
        name: "muon",
        kernels: const {
            &[
                &super::ns_squares,
                &super::ns_normalise,
                &super::ns_gram,
                &super::ns_product,
                &super::ns_apply,
                &super::muon_momentum,
                &super::muon_apply,
            ]
        },
        class: ToleranceClass::Mlp,
        batch: "B",
        reference: super::reference::checked,
        flops: |p| match p.kernel.name {
            "ns_apply" => 2.0 * product(p, &["B", "M", "M", "N"]),
            // Half of it: what is symmetric is needed once.
            "ns_gram" => product(p, &["B", "M", "M", "N"]),
            "ns_product" => product(p, &["B", "M", "M", "M"]),
            _ => 4.0 * product(p, &["B", "M", "N"]),
        },
        verification,
        simulation,
        measured: &[
            Measured::bf16("ns_squares", "ns_squares", &[24, 1024, 4096]),
            Measured::bf16("ns_normalise", "ns_normalise", &[24, 1024, 4096]),
            Measured::bf16("ns_gram", "ns_gram", &[24, 1024, 4096]),
            Measured::bf16("ns_product", "ns_product", &[24, 1024]),
            Measured::bf16("ns_apply", "ns_apply", &[24, 1024, 4096]),
            Measured::bf16("muon_momentum", "muon_momentum", &[1024, 4096]),
            Measured::bf16("muon_apply", "muon_apply", &[1024, 4096]),
        ],
    })
};

fn verification(op: &'static Op, dtype: DType) -> Vec<Problem> {
    let mut problems = of_sizes(op, dtype, &[&[2, 100, 300], &[1, 64, 256], &[3, 7, 9], &[1, 1, 40]]);
    problems.push(at_least(op, dtype, &[2, 9, 40]));
    problems
}

fn simulation(op: &'static Op, dtype: DType) -> Vec<Problem> {
    let mut problems = of_sizes(op, dtype, &[&[2, 37, 70], &[1, 5, 9]]);
    problems.push(at_least(op, dtype, &[1, 5, 9]));
    problems
}

/// Matrices whose norm is below the least one.
fn at_least(op: &'static Op, dtype: DType, dims: &[u64]) -> Problem {
    let p = Problem::new(op, op.kernel(1), dtype, dims).note("a norm below the least");
    p.with_scalar("eps", 0.0).with_scalar("least", 1e3)
}

fn far_from_one(op: &'static Op, dtype: DType) -> Vec<Problem> {
    let on = |kernel: usize, dims: &[u64]| Problem::new(op, op.kernel(kernel), dtype, dims);
    (0..2)
        .map(|k| {
            on(k, &[2, 5, 70]).fill("g", Fill::Normal(if dtype == DType::F16 { 1e4 } else { 1e30 })).note("far above 1")
        })
        .collect()
}

/// Problems of the launches of Muon, for these numbers and sizes of matrices.
fn of_sizes(op: &'static Op, dtype: DType, sizes: &[&[u64; 3]]) -> Vec<Problem> {
    let of = |k: usize| {
        sizes.iter().map(move |&&[b, m, n]| {
            let dims: &[u64] = match k {
                3 => &[b, m],
                5 | 6 => &[m, n],
                _ => &[b, m, n],
            };
            Problem::new(op, op.kernel(k), dtype, dims).note(if n % 8 == 0 { "" } else { "odd" })
        })
    };
    (0..7).flat_map(of).collect()
}
