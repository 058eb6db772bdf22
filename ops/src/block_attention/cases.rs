//! The op `block_attention`: the row of the table, and its problems to verify, simulate and measure.

use crate::problem::{Fill, Measured, Op, Problem, Required};
use crate::tolerance::ToleranceClass;
use crate::usual::product;
use atlas_dsl::DType;

pub(crate) const OP: Op = Op {
    scalars: &[("scale", 0.125), ("causal", 1.0)],
    // Each block of queries sees the blocks of keys up to its own.
    fill: |_, name| match name {
        "blocks" => Fill::Starts(1),
        "counts" => Fill::Ordinals,
        _ => Fill::Normal(1.0),
    },
    ..Op::of(Required {
        name: "block_attention",
        kernels: const { &[&super::block_attention] },
        class: ToleranceClass::Mlp,
        batch: "B",
        reference: super::reference::checked,
        flops: |p| 4.0 * product(p, &["B", "M", "H", "D", "K"]) * super::BLOCK as f64 / 2.0,
        verification,
        simulation,
        measured: &[Measured::bf16("block_attention", "block_attention", &[4, 4096, 16, 128, 4096, 16, 64, 64])],
    })
};

fn verification(op: &'static Op, dtype: DType) -> Vec<Problem> {
    let p = |dims: &[u64]| Problem::new(op, op.kernel(0), dtype, dims);
    vec![
        p(&[2, 200, 4, 64, 200, 2, 4, 4]).note("ragged"),
        p(&[1, 128, 2, 48, 256, 2, 2, 4]).with_scalar("causal", 0.0).note("more keys than queries"),
        p(&[1, 40, 2, 32, 40, 1, 1, 1]).note("one block"),
        p(&[2, 150, 2, 64, 300, 1, 3, 5]).fill("blocks", Fill::Down).note("the last blocks first"),
        p(&[1, 200, 2, 32, 200, 2, 4, 2]).note("counts above what is listed"),
        p(&[1, 150, 2, 32, 150, 1, 3, 3]).fill("counts", Fill::Starts(1)).note("queries that see nothing"),
        p(&[1, 150, 2, 32, 150, 1, 3, 3]).with_scalar("scale", -0.125).note("a negative scale"),
        p(&[1, 150, 2, 32, 150, 1, 3, 3]).with_scalar("scale", 0.0).note("scale 0"),
        p(&[1, 150, 2, 32, 150, 1, 3, 3]).fill("blocks", Fill::Every(1 << 26, 0)).note("blocks that are none"),
    ]
}

fn simulation(op: &'static Op, dtype: DType) -> Vec<Problem> {
    let p = |dims: &[u64]| Problem::new(op, op.kernel(0), dtype, dims);
    vec![p(&[1, 150, 2, 32, 150, 1, 3, 3]).note("ragged"), p(&[1, 40, 1, 16, 70, 1, 1, 2]).note("sees nothing")]
}
