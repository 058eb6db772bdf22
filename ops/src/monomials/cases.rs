//! The op `monomials`: the row of the table, and its problems to verify, simulate and measure.

use crate::problem::{Fill, Measured, Op, Problem, Required};
use crate::tolerance::ToleranceClass;
use crate::usual::product;
use atlas_dsl::DType;

pub(crate) const OP: Op = Op {
    scalars: &[("c0", 1.0), ("c1", 1.0), ("c2", 0.75), ("c3", 0.5)],
    as_in_a_model,
    ..Op::of(Required {
        name: "monomials",
        kernels: const { &[&super::monomials2, &super::monomials3, &super::powers2, &super::powers3] },
        class: ToleranceClass::Features,
        batch: "N",
        reference: |p, i| {
            let (x, d, is_plain) = (i.get("x"), p.dim("D"), p.scalar("plain") > 0.0);
            let c = ["c0", "c1", "c2", "c3"].map(|c| f64::from(p.scalar(c)));
            vec![match p.kernel.name {
                "monomials2" => super::reference(&x, d, p.dim("E"), &c[..3], is_plain),
                "monomials3" => super::reference(&x, d, p.dim("E"), &c, is_plain),
                "powers2" => super::powers(&x, d, 2),
                _ => super::powers(&x, d, 3),
            }]
        },
        flops: |p| match p.kernel.name {
            "powers2" => 2.0 * product(p, &["N", "D", "D"]),
            "powers3" => 3.0 * product(p, &["N", "D", "D", "D"]),
            _ => 2.0 * product(p, &["N", "E"]),
        },
        verification,
        simulation,
        measured: &[
            Measured::bf16("monomials2", "monomials2", &[262_144, 64, 2145]),
            Measured::bf16("monomials3", "monomials3", &[65_536, 16, 969]),
            Measured::bf16("powers2", "powers2", &[262_144, 64]),
            Measured::bf16("powers3", "powers3", &[65_536, 16]),
        ],
    })
};

fn verification(op: &'static Op, dtype: DType) -> Vec<Problem> {
    let on = |kernel: usize, dims: &[u64]| Problem::new(op, op.kernel(kernel), dtype, dims);
    vec![
        on(0, &[40, 64, 2145]),
        on(0, &[37, 16, 153]).with_scalar("plain", 1.0).note("plain"),
        on(0, &[21, 16, 160]).note("columns left over"),
        on(0, &[5, 3, 10]).note("odd"),
        on(0, &[1, 1, 3]).note("one number"),
        on(1, &[19, 8, 165]).note("ragged"),
        on(1, &[7, 5, 56]).with_scalar("plain", 1.0).note("plain"),
        on(1, &[4, 8, 168]).note("columns left over"),
        on(1, &[1, 1, 4]).note("one number"),
        on(2, &[37, 24]).note("ragged"),
        on(3, &[9, 8]),
    ]
}

fn simulation(op: &'static Op, dtype: DType) -> Vec<Problem> {
    let on = |kernel: usize, dims: &[u64]| Problem::new(op, op.kernel(kernel), dtype, dims);
    vec![
        on(0, &[21, 16, 153]).note("ragged"),
        on(0, &[5, 3, 11]).note("odd"),
        on(1, &[19, 6, 84]).note("ragged"),
        on(2, &[21, 8]).note("ragged"),
        on(3, &[5, 3]).note("odd"),
    ]
}

/// Numbers near 1.
fn as_in_a_model(p: Problem) -> Problem {
    p.fill("x", Fill::Around(1.0, 0.25))
}
