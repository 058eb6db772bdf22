//! The op `linear_residual`: the row of the table, and its problems to verify, simulate and measure.

use crate::problem::{Fill, Layout, Measured, Op, Problem, Required};
use crate::tolerance::ToleranceClass;
use crate::usual::{product, unit};
use atlas_dsl::DType;

pub(crate) const OP: Op = Op {
    fill: |p, name| Fill::Normal(if name == "w" { unit(p.dim("K")) } else { 1.0 }),
    ..Op::of(Required {
        name: "linear_residual",
        kernels: const {
            &[
                &super::linear_residual,
                &super::linear_relu_residual,
                &super::linear_gelu_residual,
                &super::linear_silu_residual,
            ]
        },
        class: ToleranceClass::Mlp,
        batch: "M",
        reference: |p, i| {
            let [x, w, b, r] = ["x", "w", "b", "r"].map(|name| i.get(name));
            vec![super::reference([&x, &w, &b, &r], ["M", "N", "K"].map(|dim| p.dim(dim)), activation(p.kernel.name))]
        },
        flops: |p| 2.0 * product(p, &["M", "N", "K"]),
        verification,
        simulation,
        measured: &[
            Measured::bf16("linear_residual", "linear_residual", &[8192, 4096, 1024]),
            Measured::bf16("linear_residual_shallow", "linear_residual", &[8192, 1024, 4096]),
            Measured::bf16("linear_relu_residual", "linear_relu_residual", &[8192, 1024, 4096]),
            Measured::bf16("linear_gelu_residual", "linear_gelu_residual", &[8192, 1024, 4096]),
            Measured::bf16("linear_silu_residual", "linear_silu_residual", &[8192, 1024, 4096]),
        ],
    })
};

fn activation(kernel: &str) -> fn(f64) -> f64 {
    match kernel {
        "linear_relu_residual" => |z| if z < 0.0 { 0.0 } else { z },
        "linear_gelu_residual" => crate::memory::gelu,
        "linear_silu_residual" => |z| z / (1.0 + (-z).exp()),
        _ => |z| z,
    }
}

fn verification(op: &'static Op, dtype: DType) -> Vec<Problem> {
    let of = |at: usize| {
        let p = move |dims: &[u64]| Problem::new(op, op.kernel(at), dtype, dims);
        vec![p(&[200, 72, 136]).note("ragged"), p(&[37, 51, 29]).note("odd")]
    };
    let p = |dims: &[u64]| Problem::new(op, op.kernel(0), dtype, dims);
    let edges = vec![
        p(&[256, 256, 512]),
        p(&[1, 1, 1]).note("single elements"),
        p(&[0, 64, 32]).note("no row"),
        p(&[24, 0, 32]).note("a product over nothing"),
        p(&[70, 64, 40]).fill("r", Fill::NanAt(2)).note("NaN in one row"),
        p(&[70, 128, 64]).layout("w", Layout::Padded).layout("r", Layout::Padded).note("padded rows"),
        p(&[70, 64, 40]).layout("r", Layout::Swapped).note("residual by columns"),
        p(&[70, 64, 40]).layout("r", Layout::Shared).note("one row for all of the residual"),
        p(&[37, 51, 29]).layout("x", Layout::Swapped).layout("w", Layout::Swapped).note("odd, x and w by columns"),
    ];
    edges.into_iter().chain((0..op.kernels.len()).flat_map(of)).collect()
}

fn simulation(op: &'static Op, dtype: DType) -> Vec<Problem> {
    let of = |at: usize| {
        let p = move |dims: &[u64]| Problem::new(op, op.kernel(at), dtype, dims);
        vec![p(&[70, 72, 40]).note("ragged"), p(&[5, 17, 33]).note("odd")]
    };
    let p = |dims: &[u64]| Problem::new(op, op.kernel(0), dtype, dims);
    let edges = vec![p(&[40, 72, 72]).layout("r", Layout::Padded).note("padded rows")];
    edges.into_iter().chain((0..op.kernels.len()).flat_map(of)).collect()
}
