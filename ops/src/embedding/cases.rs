//! The op `embedding`: the rows of the table, and their problems to verify, simulate and measure.

use crate::problem::{Fill, Layout, Measured, Op, Problem, Required};
use crate::tolerance::ToleranceClass;
use crate::usual::product;
use atlas_dsl::DType;

pub(crate) const OP: Op = Op {
    fill,
    ..Op::of(Required {
        name: "embedding",
        kernels: const { &[&super::embedding] },
        class: ToleranceClass::Exact,
        batch: "N",
        reference: super::reference::checked,
        flops: |_| 0.0,
        verification,
        simulation,
        measured: &[Measured::bf16("embedding", "embedding", &[50_304, 1024, 16_384])],
    })
};

/// The gradient by the table, which sums over the tokens.
pub(crate) const GRADIENT: Op = Op {
    fill,
    ..Op::of(Required {
        name: "embedding_grad",
        kernels: const { &[&super::embedding_grad] },
        class: ToleranceClass::Mlp,
        batch: "D",
        reference: super::reference::checked,
        flops: |p| 2.0 * product(p, &["N", "D", "V"]),
        verification: gradients,
        simulation: gradients_simulated,
        measured: &[Measured::bf16("embedding_grad", "embedding_grad", &[16_384, 1024, 256])],
    })
};

/// Some indices are no row.
fn fill(p: &Problem, name: &str) -> Fill {
    let rows = p.dim("V") as f64;
    if name == "index" { Fill::Around(0.5 * rows, 0.4 * rows) } else { Fill::Normal(1.0) }
}

/// Dims: V D N.
fn verification(op: &'static Op, dtype: DType) -> Vec<Problem> {
    let p = |dims: &[u64]| Problem::new(op, op.kernel(0), dtype, dims);
    vec![
        p(&[256, 64, 37]).note("bytes"),
        p(&[5, 300, 70]).note("ragged"),
        p(&[1, 1, 1]).note("single elements"),
        p(&[9, 40, 0]).note("no token"),
        p(&[9, 40, 3]).fill("index", Fill::Around(f64::from(i32::MIN), 0.0)).note("indices of no row"),
        p(&[9, 40, 30]).layout("table", Layout::Padded).layout("y", Layout::Padded).note("padded rows"),
        p(&[3, 40, 30]).fill("table", Fill::NanAt(1)).note("NaN in one row"),
    ]
}

fn simulation(op: &'static Op, dtype: DType) -> Vec<Problem> {
    let p = |dims: &[u64]| Problem::new(op, op.kernel(0), dtype, dims);
    vec![p(&[40, 300, 5]).note("ragged"), p(&[7, 3, 9]).note("odd")]
}

/// Dims: N D V.
fn gradients(op: &'static Op, dtype: DType) -> Vec<Problem> {
    let p = |dims: &[u64]| Problem::new(op, op.kernel(0), dtype, dims);
    vec![
        p(&[130, 64, 256]).note("bytes"),
        p(&[70, 100, 5]).note("ragged"),
        p(&[1, 1, 1]).note("single elements"),
        p(&[0, 40, 9]).note("no token"),
        p(&[30, 40, 9]).fill("index", Fill::Around(-1.0, 0.0)).note("indices of no row"),
        p(&[300, 40, 9]).fill("index", Fill::Around(3.0, 0.0)).note("one row"),
        p(&[70, 40, 9]).layout("dy", Layout::Padded).note("padded rows"),
    ]
}

fn gradients_simulated(op: &'static Op, dtype: DType) -> Vec<Problem> {
    let p = |dims: &[u64]| Problem::new(op, op.kernel(0), dtype, dims);
    vec![p(&[130, 40, 70]).note("ragged"), p(&[9, 3, 7]).note("odd")]
}
