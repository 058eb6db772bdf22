//! The op `activation_grad`: the row of the table, its reference, and its problems to verify, simulate and measure.

use crate::memory::gelu_slope;
use crate::problem::{Fill, Inputs, Layout, Measured, Op, Problem, Required};
use crate::tolerance::ToleranceClass;
use crate::usual::product;
use atlas_dsl::DType;

pub(crate) const OP: Op = Op::of(Required {
    name: "activation_grad",
    kernels: const { &[&super::gelu_grad, &super::silu_grad, &super::silu_gate_grad] },
    class: ToleranceClass::Features,
    batch: "M",
    reference: checked,
    flops: |p| 10.0 * product(p, &["M", "N"]),
    verification,
    simulation,
    measured: &[
        Measured::bf16("gelu_grad", "gelu_grad", &[16_384, 4096]),
        Measured::bf16("silu_grad", "silu_grad", &[16_384, 4096]),
        Measured::bf16("silu_gate_grad", "silu_gate_grad", &[16_384, 4096]),
    ],
});

fn checked(p: &Problem, inputs: &Inputs) -> Vec<Vec<f64>> {
    let [z, dy, x, gate] = ["z", "dy", "x", "gate"].map(|name| inputs.get(name));
    let sigmoid = |z: f64| 1.0 / (1.0 + (-z).exp());
    let silu_slope = |z: f64| sigmoid(z) + z * sigmoid(z) * sigmoid(-z);
    let times_dy = |of: &dyn Fn(usize) -> f64| (0..dy.len()).map(|i| dy[i] * of(i)).collect();
    match p.kernel.name {
        "gelu_grad" => vec![times_dy(&|i| gelu_slope(z[i]))],
        "silu_grad" => vec![times_dy(&|i| silu_slope(z[i]))],
        _ => vec![times_dy(&|i| gate[i] * sigmoid(gate[i])), times_dy(&|i| x[i] * silu_slope(gate[i]))],
    }
}

/// Dims: M N.
fn verification(op: &'static Op, dtype: DType) -> Vec<Problem> {
    let of_kernel = |kernel: usize| {
        let p = |dims: &[u64]| Problem::new(op, op.kernel(kernel), dtype, dims);
        vec![
            p(&[9, 300]).note("ragged"),
            p(&[37, 3]).note("odd"),
            p(&[1, 1]).note("one element"),
            p(&[0, 64]).note("no row"),
            p(&[5, 72]).layout("dy", Layout::Padded).note("padded rows"),
            p(&[5, 64]).fill("dy", Fill::NanAt(2)).note("NaN in one row"),
            p(&[5, 64]).fill("z", Fill::Normal(20.0)).fill("gate", Fill::Normal(20.0)).note("large"),
        ]
    };
    (0..3).flat_map(of_kernel).collect()
}

fn simulation(op: &'static Op, dtype: DType) -> Vec<Problem> {
    let p = |kernel: usize, dims: &[u64]| Problem::new(op, op.kernel(kernel), dtype, dims);
    (0..3).flat_map(|kernel| [p(kernel, &[5, 300]).note("ragged"), p(kernel, &[2, 3]).note("odd")]).collect()
}
