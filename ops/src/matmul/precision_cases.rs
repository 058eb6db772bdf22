//! The ops `matmul_tf32`, `matmul_bf16x3` and `matmul_tf32x3`: their rows of the table, and their problems.

use super::precisions;
use crate::problem::{Inputs, Layout, Measured, Op, Problem, Required};
use crate::tolerance::ToleranceClass;
use crate::usual::product;
use atlas_dsl::DType;

pub(crate) const TF32: Op = Op {
    dtypes: &[DType::F32],
    ..Op::of(Required {
        name: "matmul_tf32",
        kernels: const { &[&precisions::matmul_tf32] },
        class: ToleranceClass::Tf32,
        batch: "M",
        reference,
        flops,
        verification,
        simulation,
        measured: &[Measured::f32("matmul_tf32", "matmul_tf32", &[4096, 4096, 4096])],
    })
};

pub(crate) const BF16X3: Op = Op {
    dtypes: &[DType::F32],
    ..Op::of(Required {
        name: "matmul_bf16x3",
        kernels: const { &[&precisions::matmul_bf16x3] },
        class: ToleranceClass::Bf16x3,
        batch: "M",
        reference,
        flops,
        verification,
        simulation,
        measured: &[Measured::f32("matmul_bf16x3", "matmul_bf16x3", &[4096, 4096, 4096])],
    })
};

pub(crate) const TF32X3: Op = Op {
    dtypes: &[DType::F32],
    ..Op::of(Required {
        name: "matmul_tf32x3",
        kernels: const { &[&precisions::matmul_tf32x3] },
        class: ToleranceClass::Tf32x3,
        batch: "M",
        reference,
        flops,
        verification,
        simulation,
        measured: &[Measured::f32("matmul_tf32x3", "matmul_tf32x3", &[4096, 4096, 4096])],
    })
};

fn reference(p: &Problem, i: &Inputs) -> Vec<Vec<f64>> {
    vec![super::reference(&i.get("a"), &i.get("b"), ["M", "N", "K"].map(|dim| p.dim(dim)))]
}

fn flops(p: &Problem) -> f64 {
    2.0 * product(p, &["M", "N", "K"])
}

fn verification(op: &'static Op, dtype: DType) -> Vec<Problem> {
    let p = |dims: &[u64]| Problem::new(op, op.kernel(0), dtype, dims);
    vec![
        p(&[256, 512, 256]),
        p(&[200, 136, 72]).note("ragged"),
        p(&[1, 300, 64]).note("one row"),
        p(&[37, 29, 51]).note("odd"),
        p(&[64, 64, 128]).layout("a", Layout::Padded).note("padded rows"),
        p(&[256, 264, 256]).layout("b", Layout::Swapped).note("B by columns"),
        p(&[37, 29, 51]).layout("a", Layout::Swapped).layout("b", Layout::Swapped).note("odd, both by columns"),
    ]
}

fn simulation(op: &'static Op, dtype: DType) -> Vec<Problem> {
    let p = |dims: &[u64]| Problem::new(op, op.kernel(0), dtype, dims);
    vec![
        p(&[70, 40, 72]).note("ragged"),
        p(&[5, 33, 17]).note("odd"),
        p(&[72, 136, 72]).layout("b", Layout::Swapped).note("B by columns"),
    ]
}
