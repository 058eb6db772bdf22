//! The op `scaled_gate`: the row of the table, and its problems to verify, simulate and measure.

use super::reference::{gradient, reference};
use crate::problem::{Fill, Inputs, Layout, Measured, Op, Problem, Required};
use crate::tolerance::ToleranceClass;
use crate::usual::product;
use atlas_dsl::DType;

pub(crate) const OP: Op = Op {
    scalars: &[("scale", 0.07)],
    ..Op::of(Required {
        name: "scaled_gate",
        kernels: const { &[&super::scaled_gate, &super::scaled_gate_grad] },
        class: ToleranceClass::Features,
        batch: "N",
        reference: checked,
        flops: |p| 8.0 * product(p, &["N", "D"]),
        verification,
        simulation,
        measured: &[
            Measured::bf16("scaled_gate", "scaled_gate", &[32_768, 256]),
            Measured::bf16("scaled_gate_grad", "scaled_gate_grad", &[32_768, 256]),
        ],
    })
};

fn checked(p: &Problem, inputs: &Inputs) -> Vec<Vec<f64>> {
    let [z, bias, dy] = ["z", "bias", "dy"].map(|name| inputs.get(name));
    let scale = f64::from(p.scalar("scale"));
    vec![match p.kernel.name {
        "scaled_gate" => reference(&z, &bias, scale),
        _ => gradient([&z, &bias, &dy], scale),
    }]
}

/// Dims: N D.
fn verification(op: &'static Op, dtype: DType) -> Vec<Problem> {
    let of_kernel = |kernel: usize| {
        let p = |dims: &[u64]| Problem::new(op, op.kernel(kernel), dtype, dims);
        vec![
            p(&[9, 300]).note("ragged"),
            p(&[37, 3]).note("odd"),
            p(&[70, 1]).note("one column"),
            p(&[1, 48]).note("one token"),
            p(&[0, 64]).note("no token"),
            p(&[21, 24]).layout("z", Layout::Padded).note("columns of wider rows"),
            p(&[5, 64]).fill("z", Fill::NanAt(2)).note("NaN in one row"),
            p(&[5, 64]).fill("bias", Fill::Around(8.0, 0.0)).note("gates near their scale"),
            p(&[5, 64]).fill("z", Fill::Normal(20.0)).note("large"),
            p(&[5, 64]).with_scalar("scale", 0.0).note("no gate"),
        ]
    };
    (0..2).flat_map(of_kernel).collect()
}

fn simulation(op: &'static Op, dtype: DType) -> Vec<Problem> {
    let p = |kernel: usize, dims: &[u64]| Problem::new(op, op.kernel(kernel), dtype, dims);
    (0..2).flat_map(|kernel| [p(kernel, &[37, 72]).note("ragged"), p(kernel, &[5, 3]).note("odd")]).collect()
}
