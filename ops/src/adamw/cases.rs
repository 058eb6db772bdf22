//! The op `adamw`: the row of the table, and its problems to verify, simulate and measure.

use super::Numbers;
use crate::problem::{Fill, Inputs, Measured, Op, Problem, Required};
use crate::tolerance::ToleranceClass;
use crate::usual::product;
use atlas_dsl::DType;

pub(crate) const OP: Op = Op {
    scalars: &[
        ("rate", 1e-2),
        ("beta1", 0.9),
        ("beta2", 0.95),
        ("eps", 1e-8),
        ("decay", 0.1),
        ("bias1", 0.271),
        ("bias2", 0.142_625),
    ],
    state: &["p", "m", "v"],
    fill: |_, name| match name {
        // Means of squares are not negative.
        "v" => Fill::Around(1.0, 0.1),
        "factor" => Fill::Around(0.5, 0.0),
        _ => Fill::Normal(1.0),
    },
    ..Op::of(Required {
        name: "adamw",
        kernels: const { &[&super::adamw, &super::adamw_rounded] },
        class: ToleranceClass::Features,
        batch: "N",
        reference: checked,
        flops: |p| 16.0 * product(p, &["N"]),
        verification,
        simulation,
        measured: &[
            Measured::f32("adamw", "adamw", &[33_554_432, 1]),
            Measured::bf16("adamw_rounded", "adamw_rounded", &[33_554_432, 1]),
        ],
    })
};

fn checked(p: &Problem, inputs: &Inputs) -> Vec<Vec<f64>> {
    let [w, m, v, g, factor] = ["p", "m", "v", "g", "factor"].map(|name| inputs.get(name));
    let number = |name: &str| f64::from(p.scalar(name));
    let s = Numbers {
        rate: number("rate"),
        betas: [number("beta1"), number("beta2")],
        eps: number("eps"),
        decay: number("decay"),
        biases: [number("bias1"), number("bias2")],
    };
    let g: Vec<f64> = g.iter().map(|g| g * factor[0]).collect();
    let [w, m, v] = super::reference([&w, &m, &v, &g], s);
    let copy = (p.kernel.name == "adamw_rounded").then(|| w.clone());
    [w, m, v].into_iter().chain(copy).collect()
}

/// Dims: N K.
fn verification(op: &'static Op, dtype: DType) -> Vec<Problem> {
    (0..2)
        .flat_map(|kernel| {
            let p = |n: u64| Problem::new(op, op.kernel(kernel), dtype, &[n, 1]);
            [
                p(4096),
                p(3001).note("odd"),
                p(1).note("one element"),
                p(0).note("no element"),
                p(100).with_scalar("decay", 0.0).note("no decay"),
                p(100).fill("g", Fill::Around(0.0, 0.0)).note("no gradient"),
            ]
        })
        .collect()
}

fn simulation(op: &'static Op, dtype: DType) -> Vec<Problem> {
    let p = |kernel: usize, n: u64| Problem::new(op, op.kernel(kernel), dtype, &[n, 1]);
    (0..2).flat_map(|kernel| [p(kernel, 2500).note("ragged"), p(kernel, 3).note("odd")]).collect()
}
